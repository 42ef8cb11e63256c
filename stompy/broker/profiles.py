"""The brokers that the embedded broker can stand in for, each as one table and the functions that it names.

ActiveMQ Classic, Artemis, and RabbitMQ with its STOMP plugin.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.profile import (
    DURABLE,
    EXCLUSIVE,
    NO_LOCAL,
    REMOTE,
    TOO_LONG,
    Declaration,
    DeliveryRules,
    HandshakeRules,
    LetterRules,
    Names,
    Profile,
    QueueRules,
    Refusal,
    RefusalRules,
    RequestRules,
    SettlingRules,
    TransactionRules,
    below_queue,
    exact_versions,
)
from stompy.broker.selector import Evaluation
from stompy.errors import RemoteProtocolError
from stompy.frames.grammar import NEGOTIABLE, SERVER_COMMANDS, FrameLimits, Leniency, Version
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import Fault, FaultyFrame, fault_of, shown

if TYPE_CHECKING:
    from stompy.broker.profile import SendRequest
    from stompy.frames.frame import Frame, Pairs
    from stompy.protocol.rules import Lookup

# ActiveMQ Classic

_NO_TRANSACTION = "Invalid transaction id: {transaction}"
_ACTIVEMQ_MESSAGES: dict[tuple[str, Fault | None], str] = {
    ("SEND", Fault.NO_DESTINATION): "SEND received without a Destination specified!",
    ("SUBSCRIBE", Fault.NO_DESTINATION): "SUBSCRIBE received without a Destination specified!",
    ("SUBSCRIBE", Fault.NO_ID): "SUBSCRIBE received without a subscription id!",
    ("UNSUBSCRIBE", Fault.UNKNOWN_SUBSCRIPTION): "No subscription matched.",
    **{(command, Fault.UNKNOWN_TRANSACTION): _NO_TRANSACTION for command in ("SEND", "ACK", "COMMIT", "ABORT")},
    ("ACK", Fault.UNKNOWN_MESSAGE): "Unexpected ACK received for message-id [{id}]",
    ("NACK", Fault.UNKNOWN_MESSAGE): "Unexpected NACK received for message-id [{id}]",
}
"""What ActiveMQ says, by command and fault."""


def _activemq_refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that leaves the connection open, but for unknown commands and unreadable frames."""
    message, fault = str(error), fault_of(error)
    if frame is None:
        return Refusal(message, named=False, length=False)
    header = frame.headers.get
    if fault is Fault.NO_COMMON_VERSION:
        message = f"Invalid Protocol version[{header('accept-version')}], supported versions are: [1.2, 1.1, 1.0]"
        return Refusal(message, length=False)
    if version is None:
        return Refusal("Not connected.", named=False, length=False)
    if fault is Fault.EMPTY_DESTINATION and frame.command == "SEND":
        return Refusal(message, silent=True)
    if fault is Fault.COMMAND_NOT_ALLOWED:
        return Refusal("Already connected.", named=False, length=False)
    if frame.command in SERVER_COMMANDS:
        return Refusal(message, named=False, length=False)
    if fault is Fault.UNKNOWN_COMMAND and frame.command != "NACK":
        return Refusal(f"Unknown STOMP action: {frame.command}", length=False)
    message = _ACTIVEMQ_MESSAGES.get((frame.command, fault), message)
    identity = header("id") or header("message-id") or ""
    return Refusal(
        message.replace("{transaction}", header("transaction") or "").replace("{id}", identity),
        closes=False,
        length=False,
    )


def _activemq_refuse_as_5(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Do the same as version 5.17 does."""
    refusal, fault = _activemq_refuse(error, frame, version), fault_of(error)
    if frame is None and version is None:  # it looks for the end of a frame first
        return replace(refusal, closes=False, ignored=True)
    if fault is Fault.COMMAND_NOT_ALLOWED:
        return replace(refusal, closes=False, named=True)
    return replace(refusal, named=frame is not None and version is not None)


def _activemq_takes(error: Exception, frame: Frame) -> bool:
    """Whether ActiveMQ takes a frame that is wrong."""
    return fault_of(error) in (Fault.UNKNOWN_ACK_MODE, Fault.SUBSCRIPTION_EXISTS)


def _activemq_added(options: SendRequest, now: float) -> tuple[tuple[str, str], ...]:
    """Return the headers that ActiveMQ adds to each message."""
    expires = str(round(options.expires * 1000)) if options.expires else "0"
    pairs = [("expires", expires), ("priority", str(options.priority)), ("timestamp", str(round(now * 1000)))]
    if options.due is not None:
        pairs.append(("scheduledJobId", f"ID:stompy-{round(now * 1000)}"))
    return tuple(pairs)


def _activemq_letter(pairs: Pairs, options: SendRequest, queue: str) -> Pairs:
    """Return the headers of a dead letter."""
    return (*pairs, ("originalExpiration", str(round(options.expires * 1000)) if options.expires else "0"))


def mirrored(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return the client's offer, the other way round."""
    return HeartbeatOffer(asked.receive_ms, asked.send_ms)


def _activemq_refused_login(login: str | None) -> Refusal:
    """Return the refusal of a wrong login."""
    return Refusal(f"User name [{login or 'null'}] or password is invalid.", named=False, length=False)


ACTIVEMQ = Profile(
    name="activemq",
    server="ActiveMQ/6.1.7",
    names=Names(rest=(">",), read=below_queue, refuses_late_replies=True),
    handshake=HandshakeRules(
        session="ID:stompy-%s",
        leniency=Leniency.ESCAPED_CONNECT
        | Leniency.UNDEFINED_ESCAPES
        | Leniency.UNEXPECTED_BODY
        | Leniency.LINES_WITHOUT_COLON,
        limits=FrameLimits(max_body=100 * 1024 * 1024),
        offered=exact_versions,
        heartbeat=mirrored,
        beats_in_1_0=True,
    ),
    refusals=RefusalRules(
        refuse=_activemq_refuse,
        takes=_activemq_takes,
        login=_activemq_refused_login,
        deaf=lambda seconds: Refusal("it missed its heartbeats", silent=True),
    ),
    requests=RequestRules(selectors=Evaluation(activemq=True)),
    letters=LetterRules(
        dead="/queue/ActiveMQ.DLQ",
        expired="/queue/ActiveMQ.DLQ",
        headers=_activemq_letter,
        keeps=lambda options: options.persistent is True,
    ),
    settling=SettlingRules(nack="dead letter", nack_alone=True),
    transactions=TransactionRules(refuses={"NACK": "Poison ack cannot be transacted: {id}"}, rollback_only=True),
    queues=QueueRules(prioritized=False, keeps_by_default=False),
    deliveries=DeliveryRules(
        counts=False,
        added=_activemq_added,
        own_headers=frozenset({"ack"}),
        repeated="first",
        own_length=frozenset(NEGOTIABLE),
        text=True,
    ),
)

ACTIVEMQ_5 = replace(
    ACTIVEMQ,
    name="activemq5",
    server="ActiveMQ/5.17.6",
    refusals=replace(ACTIVEMQ.refusals, refuse=_activemq_refuse_as_5),
    deliveries=replace(ACTIVEMQ.deliveries, text=False),
)


# Artemis

_ARTEMIS_NAMED = frozenset({"UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "SEND", "RECEIPT"})
"""The commands whose ERROR names the frame."""

_ARTEMIS_TAKEN = {
    ("CONNECT", Fault.COMMAND_NOT_ALLOWED),
    ("STOMP", Fault.COMMAND_NOT_ALLOWED),
    ("SEND", Fault.UNKNOWN_TRANSACTION),
    ("SUBSCRIBE", Fault.NO_ID),
    ("SUBSCRIBE", Fault.UNKNOWN_ACK_MODE),
}
"""What is wrong and taken all the same, by command."""


def _artemis_refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR after which the connection stays open, or in 1.2 is of no use."""
    message, fault = str(error), fault_of(error)
    if version is None and fault is not Fault.NO_COMMON_VERSION:
        return Refusal(message, closes=False, ignored=True)
    if frame is None or version is None or frame.command not in {*_ARTEMIS_NAMED, "SUBSCRIBE"}:
        return Refusal(message, headers=(("version", "1.0,1.1,1.2"),) if version is None else (), named=False)
    header = frame.headers.get
    if fault is Fault.SUBSCRIPTION_EXISTS:
        message = f"There already is a subscription for: {header('id')}. Either use unique subscription IDs"
    elif fault is Fault.UNKNOWN_MESSAGE:
        message = f"AMQ339018 Error acknowledging message {header('id') or header('message-id')}"
    elif frame.command == "SEND":
        message = f"AMQ339011 Error sending message {message}"
    elif frame.command == "COMMIT":
        message = f"AMQ339013 Error committing {header('transaction')}"
    elif frame.command == "RECEIPT":
        message = "AMQ339029 Unsupported command RECEIPT"
    if frame.command == "NACK" and version is Version.V1_0:
        return Refusal(message, named=False)
    named = frame.command in _ARTEMIS_NAMED
    return Refusal(message, named=named, closes=False, last=version is Version.V1_2)


def _artemis_takes(error: Exception, frame: Frame) -> bool:
    """Whether Artemis takes a frame that is wrong."""
    return (frame.command, fault_of(error)) in _ARTEMIS_TAKEN


def _artemis_value(text: str, version: Version) -> str:
    """Return a header's value as Artemis passes it on: in 1.0 only ASCII is kept."""
    return text if version is not Version.V1_0 else text.encode("utf-8", "replace").decode("ascii", "replace")


def _artemis_translate(command: str, header: Lookup) -> Lookup:
    """Return a lookup that ignores the headers that Artemis ignores, and knows its window."""

    def lookup(name: str) -> str | None:
        if name in ("browser", "activemq.exclusive"):
            return None
        if name == "prefetch-count" and command == "SUBSCRIBE" and header("consumer-window-size") == "0":
            return "1"
        return header(name)

    return lookup


def least(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return the client's offer, the other way round, and at least 500 ms."""
    send = max(500, asked.receive_ms) if asked.receive_ms else 0
    receive = max(500, asked.send_ms) if asked.send_ms else 30_000
    return HeartbeatOffer(send, receive)


def _artemis_added(options: SendRequest, now: float) -> tuple[tuple[str, str], ...]:
    """Return the headers that Artemis adds to each message."""
    return (
        ("persistent", "true" if options.persistent else "false"),
        ("expires", str(round(options.expires * 1000)) if options.expires else "0"),
        ("priority", str(options.priority)),
        ("timestamp", str(round(now * 1000))),
    )


def _artemis_refused_login(login: str | None) -> Refusal:
    """Return the refusal of a wrong login."""
    return Refusal(f"Security Error occurred: User name [{login or 'null'}] or password is invalid", named=False)


ARTEMIS = Profile(
    name="artemis",
    server="ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine",
    names=Names(rest=("#",), composite=False, nameless=True, temporary="shared"),
    handshake=HandshakeRules(
        leniency=Leniency.CR_ESCAPE_IN_1_1 | Leniency.UNEXPECTED_BODY | Leniency.LINES_WITHOUT_COLON,
        limits=FrameLimits(max_body=1024 * 1024 * 1024),
        offered=exact_versions,
        heartbeat=least,
        nameless_in_1_0=True,
    ),
    refusals=RefusalRules(
        refuse=_artemis_refuse,
        takes=_artemis_takes,
        login=_artemis_refused_login,
        deaf=lambda seconds: Refusal(
            f"AMQ229014: Did not receive data from client within the {seconds * 1000:.0f}ms connection TTL. "
            "The connection will now be closed.",
            named=False,
        ),
    ),
    requests=RequestRules(
        translate=_artemis_translate,
        supported=frozenset({"destination-type", "subscription-type", "consumer-window-size"}),
        selectors=Evaluation(convert=False, activemq=True),
    ),
    letters=LetterRules(expired="/queue/ExpiryQueue"),
    settling=SettlingRules(nack="discarded", returns_as_new=True, first_as_redelivered=True, max_deliveries=10),
    transactions=TransactionRules(waits=frozenset(), implied_begin=True),
    queues=QueueRules(keeps_by_default=False),
    deliveries=DeliveryRules(
        first=b"redelivered:false\n",
        counts=False,
        added=_artemis_added,
        own_headers=frozenset({"ack", "receipt", "transaction"}),
        repeated="last before 1.2",
        own_length=frozenset({Version.V1_0}),
        value=_artemis_value,
        text=True,
    ),
)


# RabbitMQ

_VERSIONS = (("version", "1.0,1.1,1.2"),)
_RABBITMQ_MESSAGES = {
    Fault.NO_COMMON_VERSION: "Version mismatch",
    Fault.COMMAND_NOT_ALLOWED: "Illegal command",
    Fault.NO_DESTINATION: "Missing destination",
    Fault.EMPTY_DESTINATION: "Missing destination",
    Fault.UNKNOWN_SUBSCRIPTION: "No subscription found",
    Fault.UNKNOWN_COMMAND: "Bad command",
    Fault.UNKNOWN_ACK_MODE: "Processing error",
    Fault.SUBSCRIPTION_ENDED: "Subscription not found",
    Fault.UNKNOWN_MESSAGE: "Message not found",
    Fault.UNKNOWN_TRANSACTION: "Bad transaction",
    Fault.NO_TRANSACTION: "Missing transaction",
    Fault.INVALID_DESTINATION: "Invalid destination",
    Fault.UNKNOWN_DESTINATION: "Unknown destination",
    Fault.UNKNOWN_EXCHANGE: "not_found",
    Fault.DECLARED_OTHERWISE: "precondition_failed",
}
"""What RabbitMQ says."""

_RABBITMQ_TAKEN = {
    ("SUBSCRIBE", Fault.NO_ID),
    ("BEGIN", Fault.TRANSACTION_EXISTS),
    ("NACK", Fault.UNKNOWN_COMMAND),
}
"""What is wrong and taken all the same, by command."""

_REPLY, _GENERATED = "/reply-queue/", "amq.gen-"

_TOKEN = re.compile(r"(ack-)?[0-9a-f]+-[0-9]+-[0-9]+")
"""What an ACK names; one of this form was delivered some time."""

_NUMBER = re.compile(r"[0-9]{1,10}")
_REASONS = {"expired": "expired", TOO_LONG: "maxlen"}
"""RabbitMQ's words for why a message is a dead letter."""

_HIDDEN = {
    "SEND": frozenset({"JMSXGroupID", "_AMQ_DUPL_ID", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "expires"}),
    "SUBSCRIBE": frozenset({"selector", "browser", EXCLUSIVE, "activemq.prefetchSize", *NO_LOCAL, *DURABLE}),
}
"""Headers that RabbitMQ passes over."""

_SUPPORTED = frozenset({"durable", "auto-delete", "exclusive", "x-queue-name", "x-dead-letter-exchange"}) | {
    "x-dead-letter-routing-key",
    "x-expires",
    "x-max-length",
    "x-max-priority",
    "x-message-ttl",
}


def _rabbitmq_refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that names no frame and leaves the connection open; unreadable frames end it silently."""
    message, fault = str(error), fault_of(error)
    if frame is None:  # before CONNECT it looks for the end of a frame first
        return Refusal(message, closes=version is not None, silent=version is not None, ignored=version is None)
    if fault is Fault.COMMAND_NOT_ALLOWED and version is not None:
        return Refusal(message, silent=True)
    if fault is Fault.SUBSCRIPTION_EXISTS:
        return Refusal("Duplicated subscription identifier", headers=_VERSIONS, named=False, confirmed="after")
    if fault in (Fault.UNKNOWN_EXCHANGE, Fault.DECLARED_OTHERWISE):
        return Refusal(
            _RABBITMQ_MESSAGES[fault], detail=f"{message}\n", headers=_VERSIONS, named=False, confirmed="after"
        )
    if fault is Fault.UNKNOWN_MESSAGE:
        token = frame.headers.get("id") or frame.headers.get("message-id") or ""
        if _TOKEN.fullmatch(token):
            return Refusal("precondition_failed", headers=_VERSIONS, named=False, confirmed="before")
    text = _RABBITMQ_MESSAGES.get(fault, message) if fault is not None else message
    return Refusal(text, detail=f"{message}\n", headers=_VERSIONS, named=False, closes=False)


def _rabbitmq_takes(error: Exception, frame: Frame) -> bool:
    """Whether RabbitMQ takes a frame that is wrong."""
    return (frame.command, fault_of(error)) in _RABBITMQ_TAKEN


def read(name: str) -> tuple[str, str]:
    """Return a name's meaning for RabbitMQ: the queue or the topic of an exchange, and its name in MESSAGE frames.

    Raises:
        FaultyFrame: there is no such kind of destination, or no such exchange.
    """
    if not name.startswith("/"):
        return f"/queue/{name}", f"/queue/{name}"
    if name.startswith(_REPLY):
        return _reply_queue(name)
    if name.startswith("/exchange/"):
        return _of_exchange(*name[len("/exchange/") :].partition("/")[::2])
    for prefix, kept in (("/queue/", "/queue/"), ("/amq/queue/", "/queue/"), ("/topic/", "/topic/")):
        rest = name[len(prefix) :]
        if name.startswith(prefix) and rest and "/" not in rest:
            return kept + rest, kept + rest
    if name.startswith(("/queue/", "/amq/", "/topic/", "/temp-queue/")):
        raise FaultyFrame(Fault.INVALID_DESTINATION, f"{shown(name)} is not a valid destination")
    raise FaultyFrame(Fault.UNKNOWN_DESTINATION, f"{shown(name)} is not a valid destination")


def _of_exchange(exchange: str, key: str) -> tuple[str, str]:
    if exchange == "amq.topic":
        return f"/topic/{key}", f"/topic/{key}"
    if exchange not in ("amq.direct", "amq.fanout", "amq.headers"):
        raise FaultyFrame(Fault.UNKNOWN_EXCHANGE, f"NOT_FOUND - no exchange {exchange[:80]!r} in vhost '/'")
    visible = f"/exchange/{exchange}/{key}" if key else f"/exchange/{exchange}"
    # In the name that the broker keeps, a dot or a wildcard of a key of `amq.direct` would be one.
    return f"/topic//{exchange}/" + ("=" + key.replace(".", "\0") if exchange == "amq.direct" else ""), visible


def reply_name(name: str) -> str:
    """Return the name of a temporary queue that other clients see."""
    return _REPLY + _GENERATED + name.removeprefix(REMOTE[0]).encode().hex()


def _reply_queue(name: str) -> tuple[str, str]:
    queue = name[len(_REPLY) :]
    try:
        return REMOTE[0] + bytes.fromhex(queue.removeprefix(_GENERATED)).decode(), f"/queue/{queue}"
    except ValueError:
        return f"/queue/{queue}", f"/queue/{queue}"


def declares(header: Lookup) -> Declaration | None:
    """Return the queue that a SUBSCRIBE makes: that of its name, or a queue bound to a topic."""
    destination, durable = header("destination") or "", header("durable") == "true"
    exclusive = header("exclusive")
    exchange, key = header("x-dead-letter-exchange"), header("x-dead-letter-routing-key") or ""
    letters = None if exchange is None else _of_exchange(exchange, key)[0] if exchange else f"/queue/{key}"
    lifetime, unused = _number(header, "x-message-ttl", least=1), _number(header, "x-expires", least=1)
    arguments = Declaration(
        letters=letters,
        max_length=_number(header, "x-max-length"),
        lifetime=None if lifetime is None else lifetime / 1000,
        unused=None if unused is None else unused / 1000,
        max_priority=_number(header, "x-max-priority"),
    )
    if not destination.startswith(("/topic/", "/exchange/")):
        if destination.startswith("/amq/"):
            return None
        return replace(arguments, auto_delete=header("auto-delete") == "true", exclusive=exclusive == "true")
    name = header("x-queue-name")
    if name is None and durable:
        name = "stomp-subscription-" + hashlib.sha256(f"{header('id')} {destination}".encode()).hexdigest()[:22]
    if name is None:
        return None
    lasts = durable and header("auto-delete") == "false"
    own = exclusive == "true" if durable else exclusive != "false"
    return replace(arguments, name=name, auto_delete=not lasts, exclusive=own)


def _number(header: Lookup, name: str, *, least: int = 0) -> int | None:
    value = header(name)
    if value is None:
        return None
    if not _NUMBER.fullmatch(value) or int(value) < least:
        raise RemoteProtocolError(f"{name} must be a number of {least} or more, not {shown(value)}")
    return int(value)


def _rabbitmq_letter(pairs: Pairs, options: SendRequest, queue: str) -> Pairs:
    """Return the headers of a dead letter."""
    reason = _REASONS.get(dict(pairs)["dead-letter-reason"], "rejected")
    queue = queue.removeprefix("/queue/")
    return (("x-first-death-exchange", ""), ("x-first-death-queue", queue), ("x-first-death-reason", reason))


def _rabbitmq_translate(command: str, header: Lookup) -> Lookup:
    """Return a lookup without the headers that RabbitMQ ignores."""
    hidden = _HIDDEN.get(command, frozenset())
    return lambda name: None if name in hidden else header(name)


def whole_seconds(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return the client's offer, the other way round and in whole seconds."""
    send, receive = (-(-value // 1000) * 1000 for value in (asked.receive_ms, asked.send_ms))
    return HeartbeatOffer(send, receive)


def _rabbitmq_refused_login(login: str | None) -> Refusal:
    """Return the refusal of a wrong login."""
    detail = f"Access refused for user '{login or 'guest'}'\n"
    return Refusal("Bad CONNECT", detail=detail, headers=_VERSIONS, named=False, closes=False)


def _rabbitmq_refused_host(host: str) -> Refusal:
    """Return the refusal of a host that is not a virtual host."""
    detail = f"Virtual host '{host}' access denied\n"
    return Refusal("Bad CONNECT", detail=detail, headers=_VERSIONS, named=False, closes=False)


RABBITMQ = Profile(
    name="rabbitmq",
    server="RabbitMQ/4.0.5",
    names=Names(
        rest=("#",),
        pattern_queues=False,
        read=read,
        composite=False,
        temporary="in reply-to",
        reply_name=reply_name,
    ),
    handshake=HandshakeRules(
        session="session-%s",
        leniency=Leniency.ESCAPED_CONNECT
        | Leniency.ESCAPES_IN_1_0
        | Leniency.WRITE_CR_ESCAPE_IN_1_1
        | Leniency.CRLF_IN_1_1
        | Leniency.INVALID_UTF8
        | Leniency.UNEXPECTED_BODY,
        limits=FrameLimits(max_body=4 * 1024 * 1024),
        offered=exact_versions,
        heartbeat=whole_seconds,
        beats_in_1_0=True,
        hosts=frozenset({"/"}),
    ),
    refusals=RefusalRules(
        refuse=_rabbitmq_refuse,
        takes=_rabbitmq_takes,
        login=_rabbitmq_refused_login,
        host=_rabbitmq_refused_host,
        deaf=lambda seconds: Refusal("it missed its heartbeats", silent=True),
    ),
    requests=RequestRules(translate=_rabbitmq_translate, declares=declares, supported=_SUPPORTED),
    letters=LetterRules(headers=_rabbitmq_letter, keeps=lambda options: False),
    settling=SettlingRules(nack="requeued", ack_reaches_connection=True, unsubscribe_returns=False),
    transactions=TransactionRules(found_at_commit=frozenset({Fault.UNKNOWN_EXCHANGE}), late_receipts=True),
    queues=QueueRules(prioritized=False, keeps_by_default=False, restored_as_redelivered=True),
    deliveries=DeliveryRules(
        first=b"redelivered:false\n",
        counts=False,
        own_headers=frozenset({"ack", "receipt", "transaction"}),
        repeated="first",
    ),
)
