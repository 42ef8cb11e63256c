"""The brokers with Java's frames that the embedded broker can stand in for: ActiveMQ Classic and Artemis."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker import destinations, profile
from stompy.broker.refusals import HEART_BEAT, TOKEN, VERSIONS, FrameOrigin, Refusal, filled, in_hash_map, in_order
from stompy.errors import LimitExceededError
from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS, Version
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import ACK_MODES, Fault, Lookup, fault_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompy.frames.frame import Frame, Pairs


def _or_null(login: str | None) -> str:
    return "null" if login is None else login


def _milliseconds(moment: float | None) -> str:
    return str(round(moment * 1000)) if moment else "0"


# ActiveMQ Classic

_INSERTED = in_order(
    "destination message-id correlation-id expires redelivered priority reply-to timestamp type original-destination "
    "persistent * subscription ack"
)
"""The order in which ActiveMQ puts headers into the map of a frame; `*` stands for those of the sender."""


def java_hash_map(names: Sequence[str], sized: bool) -> list[int]:
    """Return the places of the names of headers in ActiveMQ's order; the map of a MESSAGE begins larger."""
    return in_hash_map(
        names, _INSERTED(names, False), "H", 32 if "message-id" in names and "browser" not in names else 16, len(names)
    )


_PROTOCOL_EXCEPTION = "org.apache.activemq.transport.stomp.ProtocolException: "
_EMPTY = "Invalid empty or 'null' Destination header"
_SERVER = "StompWireFormat is configured for 'server' mode and received"
_ACTIVEMQ_MESSAGES: dict[tuple[str, Fault | None], str] = {
    ("SEND", Fault.NO_DESTINATION): "SEND received without a Destination specified!",
    ("SUBSCRIBE", Fault.NO_ID): "SUBSCRIBE received without a subscription id!",
    ("UNSUBSCRIBE", Fault.UNKNOWN_SUBSCRIPTION): "No subscription matched.",
    ("NACK", Fault.UNKNOWN_COMMAND): "NACK received but connection is in v1.0 mode.",
    ("UNSUBSCRIBE", Fault.NO_ID): "{command} received without a subscription id!",
    ("BEGIN", Fault.TRANSACTION_EXISTS): "The transaction was already started: {transaction}",
    ("BEGIN", Fault.NO_TRANSACTION): "Must specify the transaction you are beginning",
    ("COMMIT", Fault.NO_TRANSACTION): "Must specify the transaction you are committing",
    ("ABORT", Fault.NO_TRANSACTION): "Must specify the transaction you are aborting",
    ("SUBSCRIBE", Fault.DURABLE_QUEUE): "Invalid Subscription: cannot durably subscribe to a Queue destination!",
    ("SUBSCRIBE", Fault.NO_DESTINATION): _EMPTY,
    ("SUBSCRIBE", Fault.EMPTY_DESTINATION): _EMPTY,
    ("", Fault.UNKNOWN_TRANSACTION): "Invalid transaction id: {transaction}",
    ("", Fault.UNKNOWN_MESSAGE): "Unexpected {command} received for message-id [{message-id}]",
    ("", Fault.NO_OTHER_HEADER): "{command} received without {needed}",
    ("ACK", Fault.NO_ID): "{command} received without {needed}",
    ("NACK", Fault.NO_ID): "NACK received without an ack header to acknowledge!",
}
"""What ActiveMQ says, by fault, and by command where it says something else for others."""


_NO_CONNECTION = "Temporary queue must have a connectionId"
_NO_CONNECTION_5 = (
    'Cannot invoke "String.equals(Object)" because the return value of '
    '"org.apache.activemq.command.ActiveMQTempDestination.getConnectionId()" is null'
)

_ACTIVEMQ_UNREADABLE = {
    "a body of content-length": "content-length bytes were read and there was no trailing null byte",
    "content-length must be decimal digits, not '-": "Specified content-length may not be negative",
    "content-length must be decimal digits": "Specified content-length is not a valid integer",
}
"""What it says of a frame that cannot be read, by the start of what the parser says."""


def _activemq_unreadable_send(header: Lookup) -> Refusal | None:
    """Return how ActiveMQ refuses a SEND that it cannot make a message of."""
    kind = header("amq-msg-type")
    if kind not in (None, "text", "bytes"):
        return _activemq_refusal(f"Unsupported message type '{kind}'", closes=False)
    numbers = [header(name) or "0" for name in ("priority", "expires", "timestamp", "JMSXGroupSeq")]
    return None if all(map(_INTEGER.fullmatch, numbers)) else Refusal("a header is no number", silent=True)


def _activemq_refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that leaves the connection open, but for unknown commands and unreadable frames."""
    message, fault = str(error), fault_of(error)
    if frame is None:
        message = next((text for start, text in _ACTIVEMQ_UNREADABLE.items() if message.startswith(start)), message)
        return _activemq_refusal(message, named=False)
    header, command = frame.headers.get, frame.command
    if fault is Fault.NO_COMMON_VERSION:
        message = f"Invalid Protocol version[{header('accept-version')}], supported versions are: [1.2, 1.1, 1.0]"
        return _activemq_refusal(message, raw=True)
    if command in SERVER_COMMANDS:
        message = f"{_SERVER} a frame that is only expected when configured for 'client' mode: {command}"
        return _activemq_refusal(message, named=False, raw=version is None)
    if version is None and command in ("CONNECT", "STOMP"):
        return _activemq_refusal(f"Invalid heart-beat header:{header('heart-beat')}", raw=True)
    if version is None:
        message = f"{_SERVER} an unexpected frame before CONNECT or STOMP frame: {command}"
        return _activemq_refusal(message, named=False, raw=True)
    if command == "SEND" and fault is Fault.UNKNOWN_TRANSACTION:  # which it looks for after it has read the others
        if (unreadable := _activemq_unreadable_send(header)) is not None:
            return unreadable
        if (header("destination") or "").strip() in ("", *destinations.KINDS):
            return Refusal(message, silent=True)
    empty = fault is Fault.EMPTY_DESTINATION and (command == "SEND" or bool(header("destination")))
    if empty or fault in (Fault.UNREADABLE_ID, Fault.INVALID_VALUE):
        return Refusal(message, silent=True)
    if fault is Fault.COMMAND_NOT_ALLOWED or command == "STOMP":
        return _activemq_refusal(f"{_SERVER} a duplicate CONNECT or STOMP frame", named=False)
    if fault is Fault.UNKNOWN_COMMAND and command != "NACK":
        return _activemq_refusal(f"Unknown STOMP action: {command}")
    if fault is Fault.NO_OWNER:
        detail = f"org.apache.activemq.DestinationDoesNotExistException: The destination {message} does not exist.\n"
        return Refusal(message, detail, closes=False, length=False)
    if fault is Fault.INVALID_SELECTOR and header("destination", "").startswith(destinations.TOPIC):
        return _activemq_refusal("Couldn't create TopicSubscription", "jakarta.jms.JMSException: ", closes=False)
    if fault is Fault.INVALID_SELECTOR:
        return _activemq_refusal(header("selector") or "", "jakarta.jms.InvalidSelectorException: ", closes=False)
    if fault is Fault.LOCKED:
        return _activemq_refusal(_NO_CONNECTION, "java.lang.IllegalArgumentException: ", closes=False)
    if fault is Fault.UNKNOWN_DURABLE:
        return _activemq_refusal(message, "jakarta.jms.InvalidDestinationException: ", closes=False)
    if fault is Fault.NOT_TRANSACTED or (command == "UNSUBSCRIBE" and fault is Fault.DURABLE_IN_USE):
        message = message if fault is Fault.NOT_TRANSACTED else "Durable consumer is in use"
        return _activemq_refusal(message, "jakarta.jms.JMSException: ", closes=False)
    if fault is Fault.NO_DESTINATION and command == "SUBSCRIBE" and version is not Version.V1_0:
        fault = fault if "id" in frame.headers else Fault.NO_ID
    message = _ACTIVEMQ_MESSAGES.get((command, fault)) or _ACTIVEMQ_MESSAGES.get(("", fault), message)
    if fault is Fault.NO_ID and version is Version.V1_0 and command == "UNSUBSCRIBE":
        message = "Must specify the subscriptionId or the destination you are unsubscribing from"
    missing = header("message-id") if command == "ACK" else header("subscription") is None
    needed = "a subscription id for acknowledge!" if missing else "a message-id to acknowledge!"
    needed = "a ack id for acknowledge!" if version is Version.V1_2 else needed
    return _activemq_refusal(filled(message, frame, "null", needed=needed), closes=False)


def _activemq_refusal(
    message: str, exception: str = _PROTOCOL_EXCEPTION, *, named: bool = True, closes: bool = True, raw: bool = False
) -> Refusal:
    """Return a refusal with the first line of Java's stack trace in its body."""
    return Refusal(message, f"{exception}{message}\n", named=named, closes=closes, raw=raw, length=False)


def _activemq_refused_login(login: str | None) -> Refusal:
    """Return the refusal of a wrong login."""
    return Refusal(f"User name [{_or_null(login)}] or password is invalid.", named=False, length=False, raw=True)


def _activemq_refused_client(client: str, peer: str) -> Refusal:
    """Return the refusal of a client id that another session has."""
    message = f"Broker: stompy - Client: {client} already connected from tcp://{peer}"
    return _activemq_refusal(message, "jakarta.jms.InvalidClientIDException: ", named=False, raw=True)


_CAST = (
    "class org.apache.activemq.broker.region.{0}TopicSubscription cannot be cast to class "
    "org.apache.activemq.broker.region.QueueBrowserSubscription "
    "(org.apache.activemq.broker.region.{0}TopicSubscription "
    "and org.apache.activemq.broker.region.QueueBrowserSubscription are in unnamed module of loader 'app')"
)


def _activemq_refuses(command: str, header: Lookup, session: FrameOrigin) -> Refusal | None:
    """Return how ActiveMQ refuses a frame that the embedded broker takes."""
    if command == "SEND":
        return _activemq_unreadable_send(header)
    if command == "CONNECT":
        beats = header("heart-beat")
        wrong = beats is not None and not HEART_BEAT.fullmatch(beats)
        return _activemq_refusal(f"Invalid heart-beat header:{beats}", raw=True) if wrong else None
    browses, durable = header("browser") == "true", header(profile.DURABLE[0])
    topic = next((name for name in destinations.KINDS if (header("destination") or "").strip().startswith(name)), "")
    if browses and session.protocol.version is Version.V1_0:
        return _activemq_refusal("Queue Browser feature only valid for Stomp v1.1+ clients!", closes=False)
    if durable is not None and "topic" not in topic:
        return _activemq_refusal(_ACTIVEMQ_MESSAGES[command, Fault.DURABLE_QUEUE], closes=False)
    if durable is not None and topic != destinations.TOPIC:
        message = "A durable subscription cannot be created for a temporary topic."
        return _activemq_refusal(message, "jakarta.jms.JMSException: ", closes=False)
    if browses and "topic" in topic:
        kind = "" if durable is None else "Durable"
        return _activemq_refusal(_CAST.format(kind), "java.lang.ClassCastException: ", closes=False)
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


def _as_5(refusal: Refusal) -> Refusal:
    """Return a refusal with the names of Java's packages before they moved."""
    return replace(refusal, detail=(refusal.detail or refusal.message).replace("jakarta.", "javax."))


def _activemq_refuse_as_5(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Do the same as version 5.17 does."""
    refusal, fault = _as_5(_activemq_refuse(error, frame, version)), fault_of(error)
    if fault is Fault.LOCKED:
        return _activemq_refusal(_NO_CONNECTION_5, "java.lang.NullPointerException: ", closes=False)
    if frame is not None and (frame.command in SERVER_COMMANDS or frame.command not in CLIENT_COMMANDS):
        return _activemq_refusal(f"Unknown STOMP action: {frame.command}", raw=version is None)
    if frame is None and version is None:  # it looks for the end of a frame first
        return replace(refusal, closes=False, ignored=True)
    if frame is not None and version is None and frame.command not in ("CONNECT", "STOMP"):
        return _activemq_refusal("Not connected.", closes=False, raw=True)
    if frame is None and "may not be negative" in refusal.message:
        return replace(refusal, silent=True)
    if frame is not None and (fault is Fault.COMMAND_NOT_ALLOWED or (version and frame.command == "STOMP")):
        return _activemq_refusal("Already connected.", closes=False)
    return replace(refusal, named=frame is not None and (version is not None or frame.command in ("CONNECT", "STOMP")))


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
    profile.described("activemq", profile.STAND_IN),
    read_name=destinations.below_queue,
    parts=lambda name: name.rstrip(",").split(","),
    original_part=_activemq_part,
    virtual_topic=_activemq_virtual,
    heartbeat=mirrored,
    refuse=_activemq_refuse,
    refused_login=lambda login, version: _activemq_refused_login(login),
    refused_client=_activemq_refused_client,
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
    refused_login=lambda login, version: replace(_activemq_refused_login(login), named=True),
    refused_client=lambda client, peer: _as_5(_activemq_refused_client(client, peer)),
    refuses=lambda *frame: None if (refusal := _activemq_refuses(*frame)) is None else _as_5(refusal),
)


# Artemis

_ARTEMIS_NAMED = frozenset({"MESSAGE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "SEND", "RECEIPT"})
"""The commands whose ERROR names the frame."""

_ARTEMIS_MESSAGES: dict[tuple[str, Fault | None], str] = {
    ("SUBSCRIBE", Fault.SUBSCRIPTION_EXISTS): "There already is a subscription for: {subscription}. Either use unique "
    "subscription IDs or do not create multiple subscriptions for the same destination",
    ("SUBSCRIBE", None): "AMQ339016 Error creating subscription {subscription}",
    ("UNSUBSCRIBE", None): "Cannot unsubscribe as no subscription exists for id: {subscription}",
    ("SEND", None): "AMQ339031 Error handling send",
    ("SEND", Fault.INVALID_DESTINATION): "AMQ339011 Error sending message CoreMessage[address={destination}]",
    ("UNSUBSCRIBE", Fault.NO_ID): "AMQ339037 Must specify the subscription's id",
    ("ACK", Fault.NO_OTHER_HEADER): "AMQ339037 Must specify the subscription's id",
    ("ACK", Fault.NO_ID): "AMQ339039 No id header in ACK/NACK frame.",
    ("ACK", None): "AMQ339018 Error acknowledging message {token}",
    ("BEGIN", Fault.TRANSACTION_EXISTS): "Transaction already started: {transaction}",
    ("BEGIN", Fault.NO_TRANSACTION): "AMQ339032 Need a transaction id to begin",
    ("BEGIN", None): "AMQ339009 Error beginning a transaction {transaction}",
    ("COMMIT", Fault.NO_TRANSACTION): "AMQ339030 transaction header is mandatory to COMMIT a transaction",
    ("COMMIT", None): "AMQ339013 Error committing {transaction}",
    ("ABORT", Fault.NO_TRANSACTION): "AMQ339033 transaction header is mandatory to ABORT a transaction",
    ("ABORT", None): "No transaction started: {transaction}",
    ("RECEIPT", None): "AMQ339029 Unsupported command RECEIPT",
    ("MESSAGE", None): "AMQ339029 Unsupported command MESSAGE",
}
"""What Artemis says, by command and fault; to a NACK the same as to an ACK."""

_ADDRESS = "org.apache.activemq.artemis.api.core.SimpleString"
_ARTEMIS_NO_ADDRESS = f'Cannot invoke "{_ADDRESS}.startsWith({_ADDRESS})" because "address" is null'

_ARTEMIS_UNREADABLE = re.compile(r"not a STOMP command line: '([A-Za-z ]+)")
"""What the parser says of a first line that is no command."""
_ESCAPE = re.compile(r"undefined escape sequence '\\(\\.)")
_ARTEMIS_BARE = functools.partial(Refusal, detail="", named=False, length=False, bare=True)


def _artemis_refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR after which the connection stays open, but in 1.2 ends at once."""
    message, fault, sized = str(error), fault_of(error), version is not Version.V1_0
    if version is None and fault is not Fault.NO_COMMON_VERSION:
        return Refusal(message, closes=False, ignored=True)
    if frame is not None and version is None:
        message = f"AMQ339002 Stomp versions not supported {frame.headers.get('accept-version')}"
        detail = "Supported protocol versions are v1.0 v1.1 v1.2"
        return Refusal(message, detail, VERSIONS, named=False, length=False)
    if frame is None and message.startswith("content-length must be"):
        return Refusal(message, closes=False, ignored=True)
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
    if command not in {*_ARTEMIS_NAMED, "SUBSCRIBE"} or (command == "NACK" and version is Version.V1_0):
        return _artemis_invalid(command, length=sized)
    last = version is Version.V1_2
    stays = functools.partial(Refusal, named=command in _ARTEMIS_NAMED, closes=False, last=last, length=sized)
    if fault is Fault.INVALID_SELECTOR and not header("selector"):
        return stays("Selector cannot be empty", "", bare=True, length=False)
    if fault is Fault.INVALID_SELECTOR:
        return stays(f'Invalid selector "{header("selector")}"', header("selector"))
    if fault is Fault.EMPTY_DESTINATION:
        return stays("AMQ229216 Invalid queue name ", "AMQ229216: Invalid queue name: ")
    if fault is Fault.NO_DESTINATION and command == "SUBSCRIBE":
        return stays(_ARTEMIS_NO_ADDRESS)
    token = header("id" if version is Version.V1_2 else "message-id", "null")
    key = "ACK" if command == "NACK" else command
    if fault is Fault.NO_OTHER_HEADER and (version is Version.V1_0 or header("subscription") is not None):
        fault = None
    text = _ARTEMIS_MESSAGES.get((key, fault)) or _ARTEMIS_MESSAGES.get((key, None), message)
    if isinstance(error, LimitExceededError) and command == "SEND":
        text = f"AMQ339011 Error sending message {message}"
    if "{token}" in text and TOKEN.fullmatch(token):
        text = "AMQ339025 failed to ack because no message with id {token}"
    identity = header("id", _artemis_subscription(header("destination", "")))
    text = filled(text, frame, "null", token=token, subscription=identity)
    nameless = last and text.startswith("AMQ339016") and fault is not Fault.INVALID_DESTINATION
    return stays(text.replace(":", "") if text.startswith("AMQ") else text, "", bare=True, closes=nameless)


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


_ARTEMIS_WINDOW = ("consumer-window-size", "activemq.prefetchSize")


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
        return next((size for each in _ARTEMIS_WINDOW if (size := header(each)) is not None), None)
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


def _artemis_refused_login(login: str | None, version: Version | None) -> Refusal:
    """Return the refusal of a wrong login."""
    message = f"Security Error occurred: User name [{_or_null(login)}] or password is invalid"
    bare = version is Version.V1_0
    return Refusal(message, bare=bare, raw=bare, length=not bare)


_ARTEMIS_ORDER = (
    "message version session server heart-beat subscription content-length? message-id destination correlation-id "
    "expires redelivered priority persistent reply-to timestamp type content-type destination-type * ack "
    "content-length receipt-id"
)
"""Its own headers, those of the sender, and what it adds for an ACK."""
_ARTEMIS_HELD = ("correlation-id", "reply-to", "type", "content-type", "content-length")
"""Headers that Artemis holds among those of the sender, beside three of its own."""


def _artemis_others(names: Sequence[str]) -> list[int]:
    """Return the places of the headers in the order of the map that holds those of the sender."""
    sent = 1 + sum(name in _ARTEMIS_HELD or name not in _ARTEMIS_ORDER.split() for name in names)
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


def _artemis_refuses(command: str, header: Lookup, session: FrameOrigin) -> Refusal | None:
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
    profile.described("artemis", profile.STAND_IN),
    read_name=lambda name: (name if name.startswith(("/queue/", "/topic/")) else "/topic/" + name, name),
    parts=lambda name: [name],
    implied_id=_artemis_subscription,
    heartbeat=least,
    refuse=_artemis_refuse,
    refused_login=_artemis_refused_login,
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
    arrange=in_order(_ARTEMIS_ORDER, _artemis_others),
)
