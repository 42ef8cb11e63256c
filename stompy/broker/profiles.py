"""The brokers with Java's frames that the embedded broker can stand in for: ActiveMQ Classic and Artemis."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker import destinations, profile
from stompy.broker.profile import Profile
from stompy.broker.refusals import HEART_BEAT, TOKEN, FrameOrigin, Refusal, in_hash_map, in_order
from stompy.errors import LimitExceededError
from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS, Version
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import ACK_MODES, Fault, Lookup, fault_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompy.frames.frame import Frame, Pairs


def _milliseconds(moment: float | None) -> str:
    return str(round(moment * 1000)) if moment else "0"


# ActiveMQ Classic

_ACTIVEMQ = profile.described("activemq", profile.STAND_IN)
_INSERTED = in_order(_ACTIVEMQ.order, lambda names: range(len(names)))
"""The order in which ActiveMQ puts headers into the map of a frame; `*` stands for those of the sender."""


def java_hash_map(names: Sequence[str], sized: bool) -> list[int]:
    """Return the places of the names of headers in ActiveMQ's order; the map of a MESSAGE begins larger."""
    return in_hash_map(
        names, _INSERTED(names, False), "H", 32 if "message-id" in names and "browser" not in names else 16, len(names)
    )


def _activemq_unreadable_send(rules: Profile, header: Lookup) -> Refusal | None:
    """Return how ActiveMQ refuses a SEND that it cannot make a message of."""
    kind = header("amq-msg-type")
    if kind not in (None, "text", "bytes"):
        return rules.said("a SEND of another type", None, header)
    numbers = [header(name) or "0" for name in ("priority", "expires", "timestamp", "JMSXGroupSeq")]
    return None if all(map(_INTEGER.fullmatch, numbers)) else Refusal("a header is no number", silent=True)


def _activemq_refuse(rules: Profile, error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that leaves the connection open, but for unknown commands and unreadable frames."""
    message, fault = str(error), fault_of(error)
    if frame is None:
        starts = (start for start, _ in rules.refusals if start and message.startswith(start))
        return rules.said(next(starts, "an unreadable frame"), None, lambda name: None, error=message)
    header, command, version_1_0 = frame.headers.get, frame.command, version is Version.V1_0
    if command == "SEND" and fault is Fault.UNKNOWN_TRANSACTION:  # which it looks for after it has read the others
        if (unreadable := _activemq_unreadable_send(rules, header)) is not None:
            return unreadable
        if (header("destination") or "").strip() in ("", *destinations.KINDS):
            return Refusal(message, silent=True)
    if fault is Fault.NO_DESTINATION and command == "SUBSCRIBE" and not version_1_0 and "id" not in frame.headers:
        fault = Fault.NO_ID
    if fault is Fault.EMPTY_DESTINATION and command == "SUBSCRIBE" and not header("destination"):
        fault = Fault.NO_DESTINATION
    key = command
    if command in SERVER_COMMANDS:
        key, fault = "a frame of a server", None
    elif version is None and fault is not Fault.NO_COMMON_VERSION:
        key, fault = "a first CONNECT" if command in ("CONNECT", "STOMP") else "before CONNECT", None
    elif version is not None and command == "STOMP" and fault not in (Fault.WRONG_LOGIN, Fault.CLIENT_CONNECTED):
        fault = Fault.COMMAND_NOT_ALLOWED
    elif fault is Fault.INVALID_SELECTOR and header("destination", "").startswith(destinations.TOPIC):
        key = "SUBSCRIBE to a topic"
    elif fault is Fault.NO_ID and command == "UNSUBSCRIBE" and version_1_0:
        key = "UNSUBSCRIBE in 1.0"
    missing = header("message-id") if command == "ACK" else header("subscription") is None
    needed = "a subscription id for acknowledge!" if missing else "a message-id to acknowledge!"
    needed = "a ack id for acknowledge!" if version is Version.V1_2 else needed
    refusal = rules.said(key, fault, header, command=frame.command, error=message, needed=needed)
    return replace(refusal, raw=refusal.raw or version is None)


def _activemq_refuses(rules: Profile, command: str, header: Lookup, session: FrameOrigin) -> Refusal | None:
    """Return how ActiveMQ refuses a frame that the embedded broker takes."""
    if command == "SEND":
        return _activemq_unreadable_send(rules, header)
    if command == "CONNECT":
        beats = header("heart-beat")
        wrong = beats is not None and not HEART_BEAT.fullmatch(beats)
        return rules.said("a first CONNECT", None, header) if wrong else None
    browses, durable = header("browser") == "true", header(profile.DURABLE[0])
    topic = next((name for name in destinations.KINDS if (header("destination") or "").strip().startswith(name)), "")
    if browses and session.protocol.version is Version.V1_0:
        return rules.said("a browser in 1.0", None, header)
    if durable is not None and "topic" not in topic:
        return rules.said(command, Fault.DURABLE_QUEUE, header)
    if durable is not None and topic != destinations.TOPIC:
        return rules.said("a durable SUBSCRIBE to a temporary topic", None, header)
    if browses and "topic" in topic:
        return rules.said("a browser of a topic", None, header, kind="" if durable is None else "Durable")
    return None


_BOOLEANS = frozenset({profile.EXCLUSIVE, profile.NO_LOCAL[0]})


def _java_boolean(value: str | None) -> str:
    return str((value or "").lower() == "true").lower()


def _activemq_meaning(header: Lookup, name: str) -> str | None:
    """Return what a header means to ActiveMQ."""
    if name in ("persistent", "browser"):
        return str(header(name) == "true").lower()
    if name in ("activemq.prefetchSize", "activemq.priority") and not _INTEGER.fullmatch(header(name) or ""):
        return None
    if name == "AMQ_SCHEDULED_DELAY" and header(name) == "0" and header("AMQ_SCHEDULED_PERIOD") is None:
        return "1"  # it goes through the schedule too
    return _java_boolean(header(name)) if name in _BOOLEANS else header(name)


def _activemq_part(name: str) -> str:
    """Return a name in the words of ActiveMQ's own protocol."""
    kind, _, rest = name.removeprefix("/").partition("/")
    return f"{kind}://{rest}"


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_JMS_ID = re.compile(r":[0-9]+$|^[0-9a-f]+-[0-9]+-[0-9]+$")
"""An id of a message, ActiveMQ's or the embedded broker's."""

_VIRTUAL = re.compile(r"/queue/Consumer\.[^.]+\.(VirtualTopic\..+)")


def _activemq_virtual(name: str) -> str | None:
    """Return the virtual topic of a queue for its consumers."""
    found = _VIRTUAL.fullmatch(name)
    return f"/topic/{found[1]}" if found else None


def _activemq_refuse_as_5(rules: Profile, error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Do the same as version 5.17 does."""
    refusal = _activemq_refuse(rules, error, frame, version)
    if frame is None and version is None:  # it looks for the end of a frame first
        return replace(refusal, closes=False, ignored=True)
    if frame is None:
        return replace(refusal, silent="may not be negative" in refusal.message)
    if frame.command in CLIENT_COMMANDS:
        return refusal
    refusal = rules.said("", Fault.UNKNOWN_COMMAND, frame.headers.get, command=frame.command)
    return replace(refusal, raw=version is None)


def _activemq_added(options: profile.SendRequest, kind: str, now: float) -> Pairs:
    """Return the headers that ActiveMQ adds to each message."""
    return (
        *(("expires", _milliseconds(options.expires)), ("priority", str(options.priority))),
        ("timestamp", _milliseconds(now)),
        *((("persistent", "true"),) if options.persistent else ()),
        *((("scheduledJobId", f"ID:stompy-{_milliseconds(now)}"),) if options.due is not None else ()),
    )


def _activemq_letter(pairs: Pairs, options: profile.SendRequest, queue: str) -> Pairs:
    """Return the headers of a dead letter."""
    origin, _, (_, reason) = pairs
    expired = _milliseconds(options.expires)
    cause = ("dlqDeliveryFailureCause", f"java.lang.Throwable: Message Expired. Expiration:{expired}")
    return (origin, ("originalExpiration", expired), ("expires", "0"), *((cause,) if reason == "expired" else ()))


def mirrored(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return the client's offer, the other way round."""
    return HeartbeatOffer(asked.receive_ms, asked.send_ms)


ACTIVEMQ = replace(
    _ACTIVEMQ,
    read_name=destinations.below_queue,
    parts=lambda name: name.rstrip(",").split(","),
    original_part=_activemq_part,
    virtual_topic=_activemq_virtual,
    heartbeat=mirrored,
    refuse=_activemq_refuse,
    meaning=_activemq_meaning,
    refuses=_activemq_refuses,
    letter_headers=_activemq_letter,
    keeps_letter=lambda options: options.persistent is True,
    unreadable_token=lambda token: _JMS_ID.search(token) is None,
    added_headers=_activemq_added,
    arrange=java_hash_map,
)

ACTIVEMQ_5 = replace(
    profile.described("activemq5", ACTIVEMQ),
    refuse=_activemq_refuse_as_5,
)


# Artemis

_ARTEMIS_NAMED = frozenset({"MESSAGE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "SEND", "RECEIPT"})
"""The commands whose ERROR names the frame."""

_ARTEMIS_UNREADABLE = re.compile(r"not a STOMP command line: '([A-Za-z ]+)")
"""What the parser says of a first line that is no command."""
_ESCAPE = re.compile(r"undefined escape sequence '\\(\\.)")
_ARTEMIS_BARE = functools.partial(Refusal, detail="", named=False, length=False, bare=True)


def _artemis_refuse(rules: Profile, error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR after which the connection stays open, but in 1.2 ends at once."""
    message, fault, sized = str(error), fault_of(error), version is not Version.V1_0
    endless = frame is None and message.startswith("content-length must be")
    if endless or (version is None and fault is not Fault.NO_COMMON_VERSION):
        return Refusal(message, closes=False, ignored=True)
    if frame is not None and version is None:
        return rules.said("", fault, frame.headers.get)
    if frame is None and (escape := _ESCAPE.search(message)) is not None:
        return _ARTEMIS_BARE(f"AMQ339040 Undefined escape sequence {escape[1]}")
    if frame is None and message.startswith("a body of"):
        return _artemis_invalid("0,", length=False)
    unreadable = _ARTEMIS_UNREADABLE.match(message) if frame is None else None
    if unreadable is not None:
        read = ",".join([*unreadable[1], *(str(ord(each)) for each in "\r\n")]) + ","
        return _artemis_invalid(read, length=sized)
    if frame is None or version is None:
        return Refusal(message, named=False, length=False)
    command, header = frame.command, frame.headers.get
    if fault is Fault.WRONG_LOGIN:
        return replace(rules.said(command, fault, header), bare=not sized, raw=not sized, length=sized)
    if command not in {*_ARTEMIS_NAMED, "SUBSCRIBE"} or (command == "NACK" and version is Version.V1_0):
        return _artemis_invalid(command, length=sized)
    token = header("id" if version is Version.V1_2 else "message-id", "null")
    if fault is Fault.NO_OTHER_HEADER and (version is Version.V1_0 or header("subscription") is not None):
        fault = None
    key = "ACK" if command == "NACK" else command
    if fault is Fault.INVALID_SELECTOR and not header("selector"):
        key, fault = "an empty selector", None
    elif isinstance(error, LimitExceededError) and command == "SEND":
        key = "a SEND past a limit"
    elif key == "ACK" and fault not in (Fault.NO_ID, Fault.NO_OTHER_HEADER) and TOKEN.fullmatch(token):
        key = "an ACK of an earlier message"
    identity = header("id", _artemis_subscription(header("destination", "")))
    refusal = rules.said(key, fault, header, error=message, token=token, subscription=identity)
    text, last = refusal.message, version is Version.V1_2
    return replace(
        refusal,
        message=text.replace(":", "") if text.startswith("AMQ") else text,
        named=command in _ARTEMIS_NAMED,
        closes=last and text.startswith("AMQ339016") and fault is not Fault.INVALID_DESTINATION,
        last=last,
        length=sized and refusal.length,
    )


def _artemis_invalid(what: str, *, length: bool) -> Refusal:
    """Return the refusal of a frame that Artemis cannot read."""
    message, detail = f"AMQ339023 Invalid STOMP frame {what}", f"AMQ339024: Invalid STOMP frame: {what}"
    return Refusal(message, detail, named=False, length=length)


def _artemis_subscription(destination: str) -> str:
    """Return the id of a subscription that has none."""
    return "subscription/" + destination.removeprefix("/queue/").removeprefix("/topic/")


def _artemis_value(text: str, version: Version) -> str:
    """Return a header's value as Artemis passes it on: in 1.0 only ASCII is kept."""
    return text if version is not Version.V1_0 else text.encode("utf-8", "replace").decode("ascii", "replace")


def _is_int(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) and -(2**31) <= int(text) < 2**31


def _artemis_window(header: Lookup) -> int:
    """Return the bytes of frames that are delivered before an ACK."""
    if (size := header("consumer-window-size")) is None:
        return sys.maxsize if (header("ack") or "auto") == "auto" else 10 * 1024
    return sys.maxsize if int(size) == -1 else int(size) or 1


def _artemis_meaning(header: Lookup, name: str) -> str | None:
    """Return what a header means to Artemis, which has a window in place of a prefetch limit."""
    if name in (*profile.NO_LOCAL, "persistent"):
        return _java_boolean(header(name))
    if name == "ack":  # any other mode is like this one
        return "client" if header(name) not in (None, *ACK_MODES) else header(name)
    if name == "prefetch-count":
        return "0"
    if name == "consumer-window-size":
        return header("activemq.prefetchSize") if header(name) is None else header(name)
    if name == "AMQ_SCHEDULED_TIME" and re.fullmatch(r"\d{2,}", header("priority") or ""):
        return "9" * 15  # a message of a priority above 9 is never delivered
    return header(name)


def least(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return the client's offer, the other way round, and at least 500 ms."""
    send = max(500, asked.receive_ms) if asked.receive_ms else 0
    receive = max(500, asked.send_ms) if asked.send_ms else 30_000
    return HeartbeatOffer(send, receive)


def _artemis_added(options: profile.SendRequest, kind: str, now: float) -> Pairs:
    """Return the headers that Artemis adds to each message."""
    return (
        *(("persistent", "true" if options.persistent else "false"), ("expires", _milliseconds(options.expires))),
        *(("priority", str(options.priority)), ("timestamp", _milliseconds(now))),
        *((("destination-type", "ANYCAST" if kind == "queue" else "MULTICAST"),) if kind else ()),
        *((("_AMQ_GROUP_ID", options.group),) if options.group else ()),
    )


_ARTEMIS = profile.described("artemis", profile.STAND_IN)
_ARTEMIS_HELD = ("correlation-id", "reply-to", "type", "content-type", "content-length")
"""Headers that Artemis holds among those of the sender, beside three of its own."""


def _artemis_others(names: Sequence[str]) -> list[int]:
    """Return the places of the headers in the order of the map that holds those of the sender."""
    sent = 1 + sum(name in _ARTEMIS_HELD or name not in _ARTEMIS.order for name in names)
    # The headers of a SEND are in a map, which is copied; most then go to another one, and its keys are copied.
    copied = in_hash_map(names, in_hash_map(names, range(len(names)), "H", 16, sent), "H", 2, sent + 1)
    return in_hash_map(names, copied, "b", 16, sent + 3)


def _artemis_letter(pairs: Pairs, options: profile.SendRequest, queue: str) -> Pairs:
    """Return the headers of a dead letter."""
    expired, address = dict(pairs)["dead-letter-reason"] == "expired" and options.expires, queue.removeprefix("/queue/")
    return (
        *((("_AMQ_ACTUAL_EXPIRY", _milliseconds(expired)),) if expired else ()),
        *(("_AMQ_ORIG_ADDRESS", address), ("_AMQ_ORIG_QUEUE", address), ("_AMQ_ORIG_MESSAGE_ID", "1")),
        *(("_AMQ_ORIG_ROUTING_TYPE", "1"), ("expires", "0")),
    )


def _artemis_refuses(rules: Profile, command: str, header: Lookup, session: FrameOrigin) -> Refusal | None:
    """Return how Artemis refuses a frame that the embedded broker takes."""
    version, kind = session.protocol.version, header(profile.ROUTING.get(command, ""))
    beats, strange = header("heart-beat"), kind not in (None, *profile.KINDS_ROUTED)
    stays = functools.partial(Refusal, closes=False, last=version is Version.V1_2)
    if command == "CONNECT" and beats and version is not Version.V1_0 and not HEART_BEAT.fullmatch(beats):
        wrong = [each for each in beats.split(",") if not HEART_BEAT.fullmatch(f"{each},0")]
        if beats.count(",") == 1:
            return _ARTEMIS_BARE(f'For input string: "{wrong[0]}"')
        if version is Version.V1_2:
            return _ARTEMIS_BARE(f"Incorrect heartbeat header {beats}")
    if command == "SEND" and strange:
        return stays("AMQ339031 Error handling send", "", bare=True)
    size = _artemis_meaning(header, "consumer-window-size")
    if command == "SUBSCRIBE" and (strange or (size is not None and not _is_int(size))):
        text = f"No enum constant org.apache.activemq.artemis.api.core.RoutingType.{kind}"
        text = text if strange else f'For input string: "{size}"'
        return stays(text.replace(":", ""), text, named=False, length=version is not Version.V1_0)
    if command == "SUBSCRIBE" and not (header("selector") or "x").strip():
        return stays(f'Invalid selector "{header("selector")}"', header("selector"), named=False)
    return None


ARTEMIS = replace(
    _ARTEMIS,
    read_name=lambda name: (name if name.startswith(("/queue/", "/topic/")) else "/topic/" + name, name),
    implied_id=_artemis_subscription,
    heartbeat=least,
    refuse=_artemis_refuse,
    refused_silence=lambda seconds: _ARTEMIS_BARE(
        f"AMQ229014: Did not receive data from client within the {seconds * 1000:.0f}ms connection TTL. "
        "The connection will now be closed."
    ),
    meaning=_artemis_meaning,
    refuses=_artemis_refuses,
    window=_artemis_window,
    letter_headers=_artemis_letter,
    added_headers=_artemis_added,
    passed_value=_artemis_value,
    arrange=in_order(_ARTEMIS.order, _artemis_others),
)
