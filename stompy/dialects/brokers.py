"""The dialects of the brokers that stompy knows, and how to choose one.

Every fact was observed on the wire; the frames are in `docs/reference/brokers.md`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from typing import Literal, get_args

from stompy.dialects.dialect import Dialect, HeaderPitfall
from stompy.errors import ConfigurationError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Leniency
from stompy.values import replace

DialectName = Literal["activemq", "artemis", "rabbitmq", "stompy", "generic"]
"""The values of `connect(dialect=...)`."""

_BROWSER_CONSUMES = "the broker cannot browse: it would deliver the messages and delete them"

ACTIVEMQ = Dialect(
    name="activemq",
    product="ActiveMQ",
    headers={
        "persistent": "persistent",
        "priority": "priority",
        "expires": "expires",
        "delay": "AMQ_SCHEDULED_DELAY",
        "group": "JMSXGroupID",
        "prefetch": "activemq.prefetchSize",
        "selector": "selector",
        "durable": "activemq.subscriptionName",
        "browse": "browser",
        "exclusive": "activemq.exclusive",
    },
    unsupported={"dedupe_id": "a message that is sent twice is delivered twice"},
    not_in_1_0=frozenset({"browse"}),
    leniency=Leniency.ESCAPED_CONNECT,
    slashed=True,
    ack_after_unsubscribe=False,
    nack="dead letter",
    nack_is_individual=True,
    transacted=frozenset({"ACK"}),
    # It refuses the COMMIT of a transaction in which it refused a frame without a receipt; with a receipt it would not,
    # and a SEND that waits for room in its queue would not keep the COMMIT waiting.
    transacted_receipts="later",
    # Its scheduler lost some messages that were confirmed shortly before a kill.
    durable_delay=False,
    keeps_message_id=True,
    marks_redelivered=True,
)

ARTEMIS = Dialect(
    name="artemis",
    product="Artemis",
    headers={
        "persistent": "persistent",
        "priority": "priority",
        "expires": "expires",
        "delay": "AMQ_SCHEDULED_DELAY",
        "group": "JMSXGroupID",
        "dedupe_id": "_AMQ_DUPL_ID",
        "prefetch": "consumer-window-size",
        "selector": "selector",
        "durable": "durable-subscription-name",
    },
    unsupported={
        "browse": "over STOMP it would deliver the messages and delete them",
        "exclusive": "this is a setting of the queue in broker.xml",
    },
    pitfalls=(HeaderPitfall("SUBSCRIBE", "browser", _BROWSER_CONSUMES),),
    # By default it treats every destination as a topic, and confirms and drops messages without a subscriber.
    routes={
        "SEND": {"/queue/": ("destination-type", "ANYCAST"), "/topic/": ("destination-type", "MULTICAST")},
        "SUBSCRIBE": {"/queue/": ("subscription-type", "ANYCAST"), "/topic/": ("subscription-type", "MULTICAST")},
    },
    # In 1.1 it reads a CR only unescaped, and writes it escaped.
    leniency=Leniency.CR_ESCAPE_IN_1_1,
    prefetch_as_window=True,
    ack_after_unsubscribe=False,
    nack="discarded",
    transacted=frozenset(),
    # Its ERROR may come after the RECEIPT of a later frame.
    transacted_receipts="at once",
    drops_idle=60.0,
    # But for the number of the consumer, with which the id begins. Of what a session had, only the first is marked.
    keeps_message_id=True,
    invalid_destination=("AMQ229216",),
    missed_heartbeats=("AMQ229014",),
)

RABBITMQ = Dialect(
    name="rabbitmq",
    product="RabbitMQ",
    headers={
        "persistent": "persistent",
        "priority": "priority",
        "expires": "expiration",
        "prefetch": "prefetch-count",
        "durable": "x-queue-name",
    },
    unsupported={
        "delay": "it needs the delayed-message plugin; set the exchange and the header of the plugin explicitly",
        "group": "the nearest feature is a queue with a single active consumer, which is declared outside STOMP",
        "dedupe_id": "it needs a plugin; set the header of the plugin explicitly",
        "selector": "it would ignore the selector and deliver every message",
        "browse": "it would deliver the messages and delete them",
        "exclusive": "an exclusive queue of RabbitMQ is one that is deleted with its connection",
    },
    pitfalls=(
        HeaderPitfall("SUBSCRIBE", "selector", "the broker ignores it and delivers every message"),
        HeaderPitfall("SUBSCRIBE", "browser", _BROWSER_CONSUMES),
        HeaderPitfall("SEND", "message-id", "the broker answers ERROR; 'amqp-message-id' sets the message's own id"),
        HeaderPitfall(
            "SEND",
            "persistent",
            "a queue that does not exist yet would be deleted with this connection, along with its messages;"
            " use persistent=False instead",
            value="false",
        ),
    ),
    host="/",
    # It uses all escapes of 1.2 in every version, and passes on bytes that are not UTF-8.
    leniency=Leniency.ESCAPED_CONNECT
    | Leniency.ESCAPES_IN_1_0
    | Leniency.WRITE_CR_ESCAPE_IN_1_1
    | Leniency.INVALID_UTF8,
    relative_expiry=True,
    omits_transient=True,
    # A prefetch count applies to all later subscriptions of the connection that set none; 0 means no limit.
    subscribe_defaults={"prefetch-count": "0"},
    durable_extra={"durable": "true", "auto-delete": "false"},
    durable_as_queue=True,
    subscribes_temporary=False,
    ack_reaches="connection",
    slashed=True,
    ack_after_unsubscribe=False,
    nack="requeued",
    marks_redelivered=True,
    # COMMIT runs the frames one by one, after its RECEIPT: each SEND has its own when its message is stored, and the
    # first that fails ends the session.
    transacted_receipts="after commit",
    atomic_commit=False,
    invalid_destination=("Invalid destination", "Unknown destination"),
)

EMBEDDED = Dialect(
    name="stompy",
    product="stompy-broker",
    headers={
        "persistent": "persistent",
        "priority": "priority",
        "expires": "expires",
        "delay": "AMQ_SCHEDULED_DELAY",
        "group": "JMSXGroupID",
        "prefetch": "prefetch-count",
        "selector": "selector",
        "durable": "activemq.subscriptionName",
        "browse": "browser",
        "exclusive": "activemq.exclusive",
    },
    unsupported={"dedupe_id": "it drops duplicates by a header that is set explicitly, _AMQ_DUPL_ID"},
    nack="redelivered",
    keeps_message_id=True,
    marks_redelivered=True,
    slashed=True,
    ack_after_unsubscribe=False,
    transacted_receipts="later",
    missed_heartbeats=("nothing was received for ",),
)

GENERIC = Dialect(name="generic", product="a broker unknown to stompy")
"""Standard STOMP without extensions."""

_KNOWN = {dialect.name: dialect for dialect in (ACTIVEMQ, ARTEMIS, RABBITMQ, EMBEDDED, GENERIC)}
_BY_SERVER = (("rabbitmq/", RABBITMQ), ("activemq/", ACTIVEMQ), ("stompy-broker", EMBEDDED))
_RABBITMQ_4_4 = r"(?i)rabbitmq/(4\.([4-9]|\d{2,})|[5-9]|\d{2,})\b"


def dialect_named(name: str) -> Dialect:
    """Return the dialect with the given name, as in `connect(dialect=...)`.

    Raises:
        ConfigurationError: there is no such dialect.
    """
    dialect = _KNOWN.get(name)
    if dialect is None:
        raise ConfigurationError(f"dialect must be one of {', '.join(get_args(DialectName))}, not {name!r}")
    return dialect


def check_given_once(options: Mapping[str, object], headers: Collection[str]) -> None:
    """Check that no header is an option too, for any broker, while the broker is not known.

    Raises:
        ConfigurationError: one is.
    """
    for dialect in _KNOWN.values():
        known = {name: value for name, value in options.items() if name in dialect.headers}
        dialect.send_headers(known, headers)


@functools.lru_cache(maxsize=32)
def dialect_of(server: str | None) -> Dialect:
    """Return the dialect of the broker whose CONNECTED has this `server` header; `GENERIC` if it is unknown."""
    name = (server or "").lower()
    if "artemis" in name:
        return ARTEMIS
    for start, dialect in _BY_SERVER:
        if name.startswith(start):
            return with_limits(dialect, server)
    return replace(GENERIC, product=f"broker {server!r}") if server else GENERIC


def with_limits(dialect: Dialect, server: str | None) -> Dialect:
    """Return a dialect with the limits of the release in the `server` header.

    RabbitMQ has limits of transactions from 4.4 on, by its source (`rabbit_stomp_processor.erl`); 3.10 and 4.3 have
    none.
    """
    if dialect is RABBITMQ and re.match(_RABBITMQ_4_4, server or ""):
        return replace(RABBITMQ, max_transaction_frames=1024, max_open_transactions=16)
    return dialect


def leniency_of(server: str | None) -> Leniency:
    """Return the deviations to tolerate from the broker whose CONNECTED has this `server` header."""
    return dialect_of(server).leniency


def is_unknown_virtual_host(frame: Frame) -> bool:
    """Return whether an ERROR in reply to CONNECT means that RabbitMQ has no virtual host of the `host` header's name.

    It says `message:Bad CONNECT`, and `Virtual host 'localhost' access denied` in the body.
    """
    return frame.headers.get("message") == "Bad CONNECT" and frame.body.startswith(b"Virtual host '")


def is_client_id_in_use(frame: Frame) -> bool:
    """Return whether an ERROR in reply to CONNECT means that ActiveMQ already has a session with the client id.

    It says `message:Broker: b - Client: me already connected from tcp://127.0.0.1:48770`, also while it has not noticed
    that the older session was lost.
    """
    return " already connected from " in frame.headers.get("message", "")
