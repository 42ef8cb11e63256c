"""ActiveMQ Classic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.destinations import Names, below_queue
from stompy.broker.profile import Profile, Refusal, exact_versions
from stompy.broker.selector import Evaluation
from stompy.frames.grammar import NEGOTIABLE, SERVER_COMMANDS, FrameLimits, Leniency
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import Fault, fault_of

if TYPE_CHECKING:
    from stompy.broker.profile import SendRequest
    from stompy.frames.frame import Frame, Pairs
    from stompy.frames.grammar import Version

_NO_TRANSACTION = "Invalid transaction id: {transaction}"
_MESSAGES: dict[tuple[str, Fault | None], str] = {
    ("SEND", Fault.NO_DESTINATION): "SEND received without a Destination specified!",
    ("SUBSCRIBE", Fault.NO_DESTINATION): "SUBSCRIBE received without a Destination specified!",
    ("SUBSCRIBE", Fault.NO_ID): "SUBSCRIBE received without a subscription id!",
    ("UNSUBSCRIBE", Fault.UNKNOWN_SUBSCRIPTION): "No subscription matched.",
    **{(command, Fault.UNKNOWN_TRANSACTION): _NO_TRANSACTION for command in ("SEND", "ACK", "COMMIT", "ABORT")},
    ("ACK", Fault.UNKNOWN_MESSAGE): "Unexpected ACK received for message-id [{id}]",
    ("NACK", Fault.UNKNOWN_MESSAGE): "Unexpected NACK received for message-id [{id}]",
}
"""What ActiveMQ says, by command and fault."""


def refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that leaves the connection open, but for an unknown command and what cannot be read."""
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
    message = _MESSAGES.get((frame.command, fault), message)
    identity = header("id") or header("message-id") or ""
    return Refusal(
        message.replace("{transaction}", header("transaction") or "").replace("{id}", identity),
        closes=False,
        length=False,
    )


def refuse_as_5(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Do the same as version 5.17 does."""
    refusal, fault = refuse(error, frame, version), fault_of(error)
    if frame is None and version is None:  # it looks for the end of a frame first
        return replace(refusal, closes=False, ignored=True)
    if fault is Fault.COMMAND_NOT_ALLOWED:
        return replace(refusal, closes=False, named=True)
    return replace(refusal, named=frame is not None and version is not None)


def takes(error: Exception, frame: Frame) -> bool:
    """Whether ActiveMQ takes a frame that is wrong."""
    return fault_of(error) in (Fault.UNKNOWN_ACK_MODE, Fault.SUBSCRIPTION_EXISTS)


def added(options: SendRequest, now: float) -> tuple[tuple[str, str], ...]:
    """Return the headers that ActiveMQ adds to each message."""
    expires = str(round(options.expires * 1000)) if options.expires else "0"
    pairs = [("expires", expires), ("priority", str(options.priority)), ("timestamp", str(round(now * 1000)))]
    if options.due is not None:
        pairs.append(("scheduledJobId", f"ID:stompy-{round(now * 1000)}"))
    return tuple(pairs)


def letter(pairs: Pairs, options: SendRequest, queue: str) -> Pairs:
    """Return the headers of a dead letter."""
    return (*pairs, ("originalExpiration", str(round(options.expires * 1000)) if options.expires else "0"))


def mirrored(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return what the client asks for, the other way round."""
    return HeartbeatOffer(asked.receive_ms, asked.send_ms)


def refused_login(login: str | None) -> Refusal:
    """Return the refusal of a wrong login."""
    return Refusal(f"User name [{login or 'null'}] or password is invalid.", named=False, length=False)


ACTIVEMQ = Profile(
    name="activemq",
    server="ActiveMQ/6.1.7",
    session="ID:stompy-%s",
    leniency=Leniency.ESCAPED_CONNECT
    | Leniency.UNDEFINED_ESCAPES
    | Leniency.UNEXPECTED_BODY
    | Leniency.LINES_WITHOUT_COLON,
    limits=FrameLimits(max_body=100 * 1024 * 1024),
    offered=exact_versions,
    names=Names(rest=(">",), read=below_queue),
    heartbeat=mirrored,
    beats_in_1_0=True,
    refused_login=refused_login,
    refuse=refuse,
    takes=takes,
    dead_letter="/queue/ActiveMQ.DLQ",
    expired="/queue/ActiveMQ.DLQ",
    letter=letter,
    keeps_letter=lambda options: options.persistent is True,
    selectors=Evaluation(activemq=True),
    nack="dead letter",
    nack_alone=True,
    refuses_transacted={"NACK": "Poison ack cannot be transacted: {id}"},
    rollback_only=True,
    prioritized=False,
    keeps_by_default=False,
    counts=False,
    added=added,
    own_headers=frozenset({"ack"}),
    repeated="first",
    own_length=frozenset(NEGOTIABLE),
    text=True,
    deaf=lambda seconds: Refusal("it missed its heartbeats", silent=True),
    ends_late_replies=True,
)

ACTIVEMQ_5 = replace(ACTIVEMQ, name="activemq5", server="ActiveMQ/5.17.6", refuse=refuse_as_5, text=False)
