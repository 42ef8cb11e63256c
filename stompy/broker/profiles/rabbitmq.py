"""RabbitMQ with its STOMP plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompy.broker.destinations import Names
from stompy.broker.profile import Profile, Refusal
from stompy.frames.grammar import Leniency
from stompy.protocol.heartbeat import HeartbeatOffer

if TYPE_CHECKING:
    from stompy.frames.frame import Frame
    from stompy.frames.grammar import Version
    from stompy.protocol.rules import Lookup

_VERSIONS = (("version", "1.0,1.1,1.2"),)
_MESSAGES = (
    ("no common version", "Version mismatch"),
    ("needs a destination", "Missing destination"),
    ("needs a 'destination'", "Missing destination"),
    ("there is no subscription", "No subscription found"),
    ("unknown command", "Bad command"),
    ("unknown ack mode", "Processing error"),
    ("has ended", "Subscription not found"),
    ("no unacknowledged message", "Message not found"),
    ("there is no open transaction", "Bad transaction"),
    ("needs a 'transaction'", "Missing transaction"),
)
_HIDDEN = {
    "SEND": frozenset({"JMSXGroupID", "_AMQ_DUPL_ID", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "expires"}),
    "SUBSCRIBE": frozenset({"selector", "browser", "activemq.exclusive", "activemq.prefetchSize", "no-local"}),
}
"""Headers that RabbitMQ passes over."""


def refuse(wrong: str, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that names no frame and leaves the connection open; what cannot be read ends it silently."""
    if frame is None or "is not allowed" in wrong:
        return Refusal(wrong, silent=True)
    if "already a subscription" in wrong:
        return Refusal("Duplicated subscription identifier", headers=_VERSIONS, named=False)
    message = next((text for part, text in _MESSAGES if part in wrong), wrong)
    return Refusal(message, detail=f"{wrong}\n", headers=_VERSIONS, named=False, closes=False)


def takes(wrong: str, frame: Frame) -> bool:
    """Whether RabbitMQ takes a frame that is wrong."""
    return (
        (frame.command == "SUBSCRIBE" and "needs a 'id'" in wrong)
        or (frame.command == "BEGIN" and "already open" in wrong)
        or (frame.command == "NACK" and "unknown command" in wrong)
    )


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
    return Refusal("Bad CONNECT", detail=detail, headers=_VERSIONS, named=False)


def refused_host(host: str) -> Refusal:
    """Return the refusal of a host that is not a virtual host."""
    return Refusal("Bad CONNECT", detail=f"Virtual host '{host}' access denied\n", headers=_VERSIONS, named=False)


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
    deaf=lambda seconds: Refusal("it missed its heartbeats", silent=True),
)
