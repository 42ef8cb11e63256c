"""The brokers that stompy knows, one table of facts each, and the choice between them.

Each line was seen on the wire; the frames are in `docs/reference/brokers.md`.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Literal, get_args

from stompy.dialects.dialect import Dialect, Trap
from stompy.errors import ConfigurationError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Leniency

DialectName = Literal["activemq", "artemis", "rabbitmq", "stompy", "generic"]
"""The names that `connect(dialect=...)` takes."""

_BROWSING_TAKES = "the broker does not browse: it would hand out the messages and forget them; browse= says so in time"

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
    without={"dedupe_id": "it delivers a message twice that is sent twice"},
    not_in_1_0=frozenset({"browse"}),
    leniency=Leniency.ESCAPED_CONNECT,
    ack_after_unsubscribe=False,
    nack="dead letter",
    nack_alone=True,
    transacted=frozenset({"ACK"}),
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
    without={
        "browse": "over STOMP it would hand out the messages and forget them",
        "exclusive": "that is a setting of the queue in broker.xml",
    },
    traps=(Trap("SUBSCRIBE", "browser", _BROWSING_TAKES),),
    # As installed, it takes every destination for a topic, and confirms and drops what nobody is subscribed to.
    routes={
        "SEND": {"/queue/": ("destination-type", "ANYCAST"), "/topic/": ("destination-type", "MULTICAST")},
        "SUBSCRIBE": {"/queue/": ("subscription-type", "ANYCAST"), "/topic/": ("subscription-type", "MULTICAST")},
    },
    # It writes what it does not read: in 1.1 a CR goes to it as it is and comes back escaped.
    leniency=Leniency.CR_ESCAPE_IN_1_1,
    prefetch_as_window=True,
    ack_after_unsubscribe=False,
    nack="discarded",
    transacted=frozenset(),
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
    without={
        "delay": "that takes its delayed-message plugin, whose exchange and header are set by hand",
        "group": "a queue with a single active consumer comes nearest, and is declared outside STOMP",
        "dedupe_id": "that takes a plugin, whose header is set by hand",
        "selector": "it would ignore it and deliver every message",
        "browse": "it would hand out the messages and forget them",
        "exclusive": "there, an exclusive queue is one that ends with its connection",
    },
    traps=(
        Trap("SUBSCRIBE", "selector", "the broker ignores it and delivers every message"),
        Trap("SUBSCRIBE", "browser", _BROWSING_TAKES),
        Trap("SEND", "message-id", "the broker answers ERROR; 'amqp-message-id' sets the message's own id"),
        Trap(
            "SEND",
            "persistent",
            "on a queue that is not there yet it makes one that ends with this connection, messages and all;"
            " persistent=False does what the header seems to say",
            value="false",
        ),
    ),
    host="/",
    # It escapes in every version, also what the version has no escape for, and passes on octets that are not UTF-8.
    leniency=Leniency.ESCAPED_CONNECT
    | Leniency.ESCAPES_IN_1_0
    | Leniency.WRITE_CR_ESCAPE_IN_1_1
    | Leniency.INVALID_UTF8,
    relative_expiry=True,
    omits_transient=True,
    # A prefetch count holds for every later subscription of the connection, unless that says otherwise; 0 is no bound.
    subscribe_defaults={"prefetch-count": "0"},
    durable_extra={"durable": "true", "auto-delete": "false"},
    durable_as_queue=True,
    subscribes_temporary=False,
    ack_reaches="connection",
    ack_after_unsubscribe=False,
    nack="requeued",
)

EMBEDDED = Dialect(
    name="stompy",
    product="stompy-broker",
    headers={"prefetch": "prefetch-count"},
    without={"persistent": "it lives in memory", "selector": "it is too simple for that"},
    traps=(Trap("SUBSCRIBE", "browser", _BROWSING_TAKES),),
    nack="redelivered",
)

GENERIC = Dialect(name="generic", product="a broker unknown to stompy")
"""Standard STOMP and nothing else."""

_KNOWN = {one.name: one for one in (ACTIVEMQ, ARTEMIS, RABBITMQ, EMBEDDED, GENERIC)}
_BY_SERVER = (("rabbitmq/", RABBITMQ), ("activemq/", ACTIVEMQ), ("stompy-broker", EMBEDDED))


def dialect_named(name: str) -> Dialect:
    """Return the dialect that `connect(dialect=...)` names.

    Raises:
        ConfigurationError: there is none of that name.
    """
    dialect = _KNOWN.get(name)
    if dialect is None:
        raise ConfigurationError(f"dialect must be one of {', '.join(get_args(DialectName))}, not {name!r}")
    return dialect


@functools.lru_cache(maxsize=32)
def dialect_of(server: str | None) -> Dialect:
    """Return the dialect of the broker that calls itself `server`; for an unknown one, standard STOMP only."""
    name = (server or "").lower()
    if "artemis" in name:
        return ARTEMIS
    for start, dialect in _BY_SERVER:
        if name.startswith(start):
            return dialect
    return replace(GENERIC, product=f"broker {server!r}") if server else GENERIC


def leniency_of(server: str | None) -> Leniency:
    """Return what the broker that calls itself `server` needs to be borne with."""
    return dialect_of(server).leniency


def knows_no_such_host(frame: Frame) -> bool:
    """Whether it is RabbitMQ, which takes the `host` header for one of its virtual hosts and has none of that name.

    `ERROR message:Bad CONNECT`, and `Virtual host 'localhost' access denied` in the body.
    """
    return frame.headers.get("message") == "Bad CONNECT" and frame.body.startswith(b"Virtual host '")


def client_id_in_use(frame: Frame) -> bool:
    """Whether it is ActiveMQ, which has an older session with the client id, perhaps one that it does not know is dead.

    `ERROR message:Broker: b - Client: me already connected from tcp://127.0.0.1:48770`.
    """
    return " already connected from " in frame.headers.get("message", "")
