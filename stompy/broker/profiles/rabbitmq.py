"""RabbitMQ with its STOMP plugin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompy.broker.destinations import Names
from stompy.broker.profile import Profile, Refusal, exact_versions
from stompy.frames.grammar import Leniency, Limits
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import Fault, fault_of

if TYPE_CHECKING:
    from stompy.frames.frame import Frame
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
}
"""What RabbitMQ says."""

_TAKEN = {
    ("SUBSCRIBE", Fault.NO_ID),
    ("BEGIN", Fault.TRANSACTION_EXISTS),
    ("NACK", Fault.UNKNOWN_COMMAND),
}
"""What is wrong and taken all the same, by command."""

_TOKEN = re.compile(r"(ack-)?[0-9a-f]+-[0-9]+-[0-9]+")
"""What an ACK names; one of this form was delivered some time."""

_HIDDEN = {
    "SEND": frozenset({"JMSXGroupID", "_AMQ_DUPL_ID", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "expires"}),
    "SUBSCRIBE": frozenset({"selector", "browser", "activemq.exclusive", "activemq.prefetchSize", "no-local"}),
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
    if fault is Fault.UNKNOWN_MESSAGE:
        token = frame.headers._peek("id") or frame.headers._peek("message-id") or ""
        if _TOKEN.fullmatch(token):
            return Refusal("precondition_failed", headers=_VERSIONS, named=False, confirmed="before")
    text = _MESSAGES.get(fault, message) if fault is not None else message
    return Refusal(text, detail=f"{message}\n", headers=_VERSIONS, named=False, closes=False)


def takes(error: Exception, frame: Frame) -> bool:
    """Whether RabbitMQ takes a frame that is wrong."""
    return (frame.command, fault_of(error)) in _TAKEN


def translate(command: str, header: Lookup) -> Lookup:
    """Return a lookup that passes over what RabbitMQ does, and knows its durable queues of topics."""
    hidden = _HIDDEN.get(command, frozenset())

    def lookup(name: str) -> str | None:
        if name in hidden:
            return None
        if name == "activemq.subscriptionName" and (header("durable") or "") == "true":
            return header("x-queue-name") or header("id")
        return header(name)

    return lookup


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
    limits=Limits(max_body=4 * 1024 * 1024),
    offered=exact_versions,
    names=Names(rest=("#",), pattern_queues=False, queued=True),
    heartbeat=whole_seconds,
    beats_in_1_0=True,
    hosts=frozenset({"/"}),
    refused_login=refused_login,
    refused_host=refused_host,
    refuse=refuse,
    takes=takes,
    translate=translate,
    supported=frozenset({"durable", "auto-delete", "exclusive", "x-queue-name"}),
    keeps_letter=lambda options: False,
    nack="requeued",
    ack_reaches_connection=True,
    ack_after_unsubscribe=False,
    late_receipts=True,
    prioritized=False,
    keeps_by_default=False,
    restored_as_redelivered=True,
    first=b"redelivered:false\n",
    counts=False,
    own_headers=frozenset({"ack", "receipt", "transaction"}),
    repeated="first",
    deaf=lambda seconds: Refusal("it missed its heart-beats", silent=True),
)
