"""What SEND and SUBSCRIBE ask for in headers of their own: each header that a known broker has works, or is refused."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.broker.profile import OWN, Declaration, Profile
from stompy.broker.selector import Evaluation, Selector, SelectorError, compiled
from stompy.errors import RemoteProtocolError
from stompy.protocol.rules import ACK_MODES, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompy.broker.destinations import Target
    from stompy.frames.frame import Frame
    from stompy.protocol.rules import Lookup

DEFAULT_PRIORITY = 4

PREFETCH = ("prefetch-count", "activemq.prefetchSize")
"""RabbitMQ's and ActiveMQ's names for the same wish; 0 is no bound at the one, and room for nothing at the other."""

DURABLE = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")
EXCLUSIVE = "activemq.exclusive"
NO_LOCAL = ("activemq.noLocal", "no-local")

UNSUPPORTED = {
    "SEND": {
        "AMQ_SCHEDULED_CRON": "no schedule by cron expressions",
        "AMQ_SCHEDULED_PERIOD": "no repeated delivery",
        "AMQ_SCHEDULED_REPEAT": "no repeated delivery",
        "x-delay": "no delayed-message exchange",
    },
    "SUBSCRIBE": {
        "activemq.priority": "no priorities of consumers",
        "consumer-priority": "no priorities of consumers",
        "activemq.retroactive": "no retroactive consumers",
        "activemq.maximumPendingMessageLimit": "no limit of its own for a subscriber's backlog",
        "consumer-window-size": "no window in bytes",
        "transformation": "no transformation of bodies",
        "subcriptionName": "no such header: it is activemq.subscriptionName",
        "x-queue-name": "no queues bound to topics",
        "x-queue-type": "no types of queues",
        "x-stream-offset": "no streams",
        "x-dead-letter-exchange": "no exchanges",
        "x-dead-letter-routing-key": "no exchanges",
        "x-max-priority": "no arguments of queues",
        "x-max-length": "no arguments of queues",
        "x-max-length-bytes": "no arguments of queues",
        "x-message-ttl": "no arguments of queues",
        "x-expires": "no arguments of queues",
        "x-single-active-consumer": "no arguments of queues: it has activemq.exclusive",
        "durable": "no durable queues: it has activemq.subscriptionName",
        "auto-delete": "no queues that delete themselves",
        "exclusive": "no queues of one connection: it has activemq.exclusive and temporary queues",
    },
}
"""Headers that ask known brokers for something that this one cannot do, by command, and what that is."""

_NUMBER = re.compile(r"-?0*[0-9]{1,9}")
_MILLISECONDS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class SendRequest:
    """What a SEND asks for.

    Attributes:
        priority: 0 to 9.
        persistent: whether it outlives a restart of the broker; `None` where it does not say.
        expires: the moment after which nobody gets it, in seconds since the epoch.
        due: the moment before which nobody gets it.
        group: messages of one group go to one consumer.
        group_ends: the group may have another consumer after it.
        dedupe_id: it is dropped where the same id was seen.
    """

    priority: int = DEFAULT_PRIORITY
    persistent: bool | None = None
    expires: float | None = None
    due: float | None = None
    group: str | None = None
    group_ends: bool = False
    dedupe_id: str | None = None


PLAIN = SendRequest()
"""Those of a SEND that asks for nothing."""


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a SUBSCRIBE asks for.

    Attributes:
        mode: `auto`, `client` or `client-individual`.
        prefetch: how many messages may wait for their ACK; with 0 or less nothing is ever delivered.
        selector: which messages it gets.
        durable: the name under which the messages of a topic are kept while nobody is subscribed.
        browse: look at the messages of a queue without taking them.
        exclusive: of several consumers only one gets messages, until it is gone.
        no_local: leave out what the same session sends.
        declares: the queue that it makes.
    """

    mode: str = "auto"
    prefetch: int = 1_000
    selector: Selector | None = None
    durable: str | None = None
    browse: bool = False
    exclusive: bool = False
    no_local: bool = False
    declares: Declaration | None = None


_ROUTING = {"SEND": "destination-type", "SUBSCRIBE": "subscription-type"}
"""By command: Artemis's header that says what a destination is, and must not say otherwise than its name here."""


SEND_HEADERS = frozenset(UNSUPPORTED["SEND"]) | {
    "priority",
    "persistent",
    "expires",
    "expiration",
    "AMQ_SCHEDULED_DELAY",
    "AMQ_SCHEDULED_TIME",
    "JMSXGroupID",
    "_AMQ_DUPL_ID",
    "destination-type",
    "reply-to",
}
"""The headers of a SEND that the broker looks at beside those of the specification; most messages have none."""


def check_routing(command: str, header: Lookup, targets: Sequence[Target]) -> None:
    """Refuse a routing type that is not that of a destination.

    Raises:
        RemoteProtocolError: it is not.
    """
    asked = header(_ROUTING[command])
    kind = {"ANYCAST": "queue", "MULTICAST": "topic"}.get(asked or "")
    if asked is not None and any(target.kind != kind for target in targets):
        raise RemoteProtocolError(f"{_ROUTING[command]} does not match the destination, whose name says what it is")


def check_supported(command: str, header: Lookup, profile: Profile = OWN) -> None:
    """Refuse a header that asks for something that cannot be had.

    Raises:
        RemoteProtocolError: there is one.
    """
    for name, reason in UNSUPPORTED[command].items():
        if header(name) is not None and name not in profile.supported:
            raise RemoteProtocolError(f"this broker has {reason} (header {name})")


def send_options(header: Lookup, now: float, profile: Profile = OWN) -> SendRequest:
    """Return what a SEND asks for.

    Args:
        header: looks up its headers.
        now: seconds since the epoch, by the broker's clock.
        profile: in whose words the headers are.

    Raises:
        RemoteProtocolError: a value is invalid, or not supported.
    """
    check_supported("SEND", header, profile)
    header = profile.translate("SEND", header)
    delay, moment = _milliseconds(header, "AMQ_SCHEDULED_DELAY"), _milliseconds(header, "AMQ_SCHEDULED_TIME")
    expires, lifetime = _milliseconds(header, "expires"), _milliseconds(header, "expiration")
    due = now + delay if delay else moment
    return SendRequest(
        priority=_priority(header("priority")),
        persistent=_boolean(header, "persistent"),
        expires=now + lifetime if lifetime is not None else expires or None,
        due=due if due is not None and due > now else None,
        group=header("JMSXGroupID") or None,
        group_ends=(header("JMSXGroupSeq") or "").startswith("-"),
        dedupe_id=header("_AMQ_DUPL_ID") or None,
    )


def subscribe_options(header: Lookup, *, prefetch: int, profile: Profile = OWN) -> SubscribeRequest:
    """Return what a SUBSCRIBE asks for.

    Args:
        header: looks up its headers.
        prefetch: where it does not say.
        profile: in whose words the headers are.

    Raises:
        RemoteProtocolError: a value is invalid, or not supported.
    """
    check_supported("SUBSCRIBE", header, profile)
    header = profile.translate("SUBSCRIBE", header)
    return SubscribeRequest(
        mode=mode if (mode := header("ack") or "auto") in ACK_MODES else "auto",
        prefetch=_prefetch(header, prefetch),
        selector=_selector(header("selector"), profile.selectors),
        durable=durable_name(header),
        browse=bool(_boolean(header, "browser")),
        exclusive=bool(_boolean(header, EXCLUSIVE)),
        no_local=any(_boolean(header, name) for name in NO_LOCAL),
        declares=profile.declares(header),
    )


def check_combination(options: SubscribeRequest, targets: Sequence[Target]) -> None:
    """Refuse options that make no sense together, or for a destination.

    Raises:
        RemoteProtocolError: there are such.
    """
    topics = [target.kind == "topic" for target in targets]
    single = len(targets) == 1 and not targets[0].pattern
    if options.browse and (options.durable is not None or options.exclusive or not single or any(topics)):
        raise RemoteProtocolError("a browser looks at one queue, and is neither durable nor exclusive")
    if options.durable is not None and len(targets) > 1:
        raise RemoteProtocolError("a durable subscription is one to a topic")
    if options.no_local and not all(topics):
        raise RemoteProtocolError("no-local is for topics: a message of a queue would never be taken")
    if options.exclusive and any(topics):
        raise RemoteProtocolError("an exclusive consumer is one of a queue")


def durable_name(header: Lookup) -> str | None:
    """Return the name of the durable subscription that a SUBSCRIBE or UNSUBSCRIBE is about."""
    return next((value for name in DURABLE if (value := header(name))), None)


def deletes_durable(frame: Frame) -> bool:
    """Whether a frame, wrong as it may be, is to delete a durable subscription that nobody is subscribed to."""
    return frame.command == "UNSUBSCRIBE" and durable_name(frame.headers._peek) is not None


def _prefetch(header: Lookup, default: int) -> int:
    for name in PREFETCH:
        value = header(name)
        if value is None:
            continue
        if not _NUMBER.fullmatch(value):
            raise RemoteProtocolError(f"{name} must be a number of at most nine digits, not {value[:40]!r}")
        return sys.maxsize if int(value) == 0 and name == PREFETCH[0] else int(value)
    return default


def _priority(value: str | None) -> int:
    if value is None:
        return DEFAULT_PRIORITY
    if not _NUMBER.fullmatch(value):
        raise RemoteProtocolError(f"priority must be a number from 0 to 9, not {shown(value)}")
    return min(max(int(value), 0), 9)


def _boolean(header: Lookup, name: str) -> bool | None:
    value = header(name)
    if value is None:
        return None
    if value.lower() not in ("true", "false"):
        raise RemoteProtocolError(f"{name} must be true or false, not {shown(value)}")
    return value.lower() == "true"


def _milliseconds(header: Lookup, name: str) -> float | None:
    """Return a duration, or a moment, in seconds."""
    value = header(name)
    if value is None:
        return None
    if not _MILLISECONDS.fullmatch(value):
        raise RemoteProtocolError(f"{name} must be a number of milliseconds, not {shown(value)}")
    return int(value) / 1000


def _selector(text: str | None, ways: Evaluation) -> Selector | None:
    if text is None or not text.strip():
        return None
    try:
        return compiled(text, ways)
    except SelectorError as error:
        raise RemoteProtocolError(f"the selector is invalid: {error}") from error
