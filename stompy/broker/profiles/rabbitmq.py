"""RabbitMQ with its STOMP plugin."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.destinations import REMOTE, Names
from stompy.broker.profile import DURABLE, EXCLUSIVE, NO_LOCAL, TOO_LONG, Declaration, Profile, Refusal, exact_versions
from stompy.errors import RemoteProtocolError
from stompy.frames.grammar import FrameLimits, Leniency
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import Fault, FaultyFrame, fault_of, shown

if TYPE_CHECKING:
    from stompy.broker.profile import SendRequest
    from stompy.frames.frame import Frame, Pairs
    from stompy.frames.grammar import Version
    from stompy.protocol.rules import Lookup

_VERSIONS = (("version", "1.0,1.1,1.2"),)
_MESSAGES = {
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

_TAKEN = {
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


def refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that names no frame and leaves the connection open; what cannot be read ends it silently."""
    message, fault = str(error), fault_of(error)
    if frame is None:  # before CONNECT it looks for the end of a frame first
        return Refusal(message, closes=version is not None, silent=version is not None, ignored=version is None)
    if fault is Fault.COMMAND_NOT_ALLOWED and version is not None:
        return Refusal(message, silent=True)
    if fault is Fault.SUBSCRIPTION_EXISTS:
        return Refusal("Duplicated subscription identifier", headers=_VERSIONS, named=False, confirmed="after")
    if fault in (Fault.UNKNOWN_EXCHANGE, Fault.DECLARED_OTHERWISE):
        return Refusal(_MESSAGES[fault], detail=f"{message}\n", headers=_VERSIONS, named=False, confirmed="after")
    if fault is Fault.UNKNOWN_MESSAGE:
        token = frame.headers.get("id") or frame.headers.get("message-id") or ""
        if _TOKEN.fullmatch(token):
            return Refusal("precondition_failed", headers=_VERSIONS, named=False, confirmed="before")
    text = _MESSAGES.get(fault, message) if fault is not None else message
    return Refusal(text, detail=f"{message}\n", headers=_VERSIONS, named=False, closes=False)


def takes(error: Exception, frame: Frame) -> bool:
    """Whether RabbitMQ takes a frame that is wrong."""
    return (frame.command, fault_of(error)) in _TAKEN


def read(name: str) -> tuple[str, str]:
    """Return what RabbitMQ takes a name for: the queue or the topic of an exchange, and how MESSAGE frames name it.

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
    """Return the queue that a SUBSCRIBE makes: that of its name, or one that is bound to a topic."""
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


def letter(pairs: Pairs, options: SendRequest, queue: str) -> Pairs:
    """Return the headers of a dead letter."""
    reason = _REASONS.get(dict(pairs)["dead-letter-reason"], "rejected")
    queue = queue.removeprefix("/queue/")
    return (("x-first-death-exchange", ""), ("x-first-death-queue", queue), ("x-first-death-reason", reason))


def translate(command: str, header: Lookup) -> Lookup:
    """Return a lookup without the headers that RabbitMQ ignores."""
    hidden = _HIDDEN.get(command, frozenset())
    return lambda name: None if name in hidden else header(name)


def whole_seconds(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return what the client asks for, the other way round and in whole seconds."""
    send, receive = (-(-value // 1000) * 1000 for value in (asked.receive_ms, asked.send_ms))
    return HeartbeatOffer(send, receive)


def refused_login(login: str | None) -> Refusal:
    """Return the refusal of a wrong login."""
    detail = f"Access refused for user '{login or 'guest'}'\n"
    return Refusal("Bad CONNECT", detail=detail, headers=_VERSIONS, named=False, closes=False)


def refused_host(host: str) -> Refusal:
    """Return the refusal of a host that is not a virtual host."""
    detail = f"Virtual host '{host}' access denied\n"
    return Refusal("Bad CONNECT", detail=detail, headers=_VERSIONS, named=False, closes=False)


RABBITMQ = Profile(
    name="rabbitmq",
    server="RabbitMQ/4.0.5",
    session="session-%s",
    leniency=Leniency.ESCAPED_CONNECT
    | Leniency.ESCAPES_IN_1_0
    | Leniency.WRITE_CR_ESCAPE_IN_1_1
    | Leniency.CRLF_IN_1_1
    | Leniency.INVALID_UTF8
    | Leniency.UNEXPECTED_BODY,
    limits=FrameLimits(max_body=4 * 1024 * 1024),
    offered=exact_versions,
    names=Names(
        rest=("#",),
        pattern_queues=False,
        read=read,
        composite=False,
        temporary="in reply-to",
        reply_name=reply_name,
    ),
    heartbeat=whole_seconds,
    beats_in_1_0=True,
    hosts=frozenset({"/"}),
    refused_login=refused_login,
    refused_host=refused_host,
    refuse=refuse,
    takes=takes,
    translate=translate,
    declares=declares,
    supported=frozenset(
        {
            "durable",
            "auto-delete",
            "exclusive",
            "x-queue-name",
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-expires",
            "x-max-length",
            "x-max-priority",
            "x-message-ttl",
        }
    ),
    letter=letter,
    keeps_letter=lambda options: False,
    nack="requeued",
    ack_reaches_connection=True,
    unsubscribe_returns=False,
    found_at_commit=frozenset({Fault.UNKNOWN_EXCHANGE}),
    late_receipts=True,
    prioritized=False,
    keeps_by_default=False,
    restored_as_redelivered=True,
    first=b"redelivered:false\n",
    counts=False,
    own_headers=frozenset({"ack", "receipt", "transaction"}),
    repeated="first",
    deaf=lambda seconds: Refusal("it missed its heartbeats", silent=True),
)
