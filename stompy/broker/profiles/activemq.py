"""ActiveMQ Classic."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.destinations import Names
from stompy.broker.profile import Profile, Refusal
from stompy.frames.grammar import SERVER_COMMANDS, Leniency
from stompy.protocol.heartbeat import HeartbeatOffer

if TYPE_CHECKING:
    from stompy.broker.options import SendOptions
    from stompy.frames.frame import Frame
    from stompy.frames.grammar import Version

_MESSAGES = (
    ("SEND", r"needs a (destination|'destination')", "SEND received without a Destination specified!"),
    ("SUBSCRIBE", "needs a 'destination'", "SUBSCRIBE received without a Destination specified!"),
    ("SUBSCRIBE", "needs a 'id'", "SUBSCRIBE received without a subscription id!"),
    ("UNSUBSCRIBE", "there is no subscription", "No subscription matched."),
    ("COMMIT", "there is no open transaction", "Invalid transaction id: {transaction}"),
    ("ABORT", "there is no open transaction", "Invalid transaction id: {transaction}"),
    ("SEND", "there is no open transaction", "Invalid transaction id: {transaction}"),
    ("ACK", "no unacknowledged message", "Unexpected ACK received for message-id [{id}]"),
    ("NACK", "no unacknowledged message", "Unexpected NACK received for message-id [{id}]"),
)
"""By command: what is wrong in the words of this broker, and in those of ActiveMQ."""


def refuse(wrong: str, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR that leaves the connection open, but for an unknown command and what cannot be read."""
    if version is None and "no common version" in wrong:
        asked = frame.headers._peek("accept-version") if frame is not None else ""
        return Refusal(f"Invalid Protocol version[{asked}], supported versions are: [1.2, 1.1, 1.0]", length=False)
    if frame is None or version is None or "message could not" in wrong:
        return Refusal(wrong, named=False, length=False)
    if frame.command == "SEND" and "that is not empty" in wrong and frame.headers._peek("destination") == "":
        return Refusal(wrong, silent=True)
    if "is not allowed" in wrong:
        return Refusal("Already connected.", named=False, length=False)
    if frame.command in SERVER_COMMANDS:
        return Refusal(wrong, named=False, length=False)
    if wrong.startswith("unknown command") and frame.command not in ("NACK",):
        return Refusal(f"Unknown STOMP action: {frame.command}", length=False)
    header = frame.headers._peek
    identity = header("id") or header("message-id") or ""
    for command, pattern, message in _MESSAGES:
        if frame.command == command and re.search(pattern, wrong):
            wrong = message.format(transaction=header("transaction"), id=identity)
            break
    return Refusal(wrong, closes=False, length=False)


def refuse_as_5(wrong: str, frame: Frame | None, version: Version | None) -> Refusal:
    """Do the same as version 5.17 does."""
    refusal = refuse(wrong, frame, version)
    if refusal.message == "Already connected.":
        return replace(refusal, closes=False, named=True)
    return replace(refusal, named=frame is not None and version is not None)


def takes(wrong: str, frame: Frame) -> bool:
    """Whether ActiveMQ takes a frame that is wrong."""
    return "unknown ack mode" in wrong or (frame.command == "SUBSCRIBE" and "already a subscription" in wrong)


def added(options: SendOptions, now: float) -> tuple[tuple[str, str], ...]:
    """Return the headers that ActiveMQ adds to each message."""
    expires = str(round(options.expires * 1000)) if options.expires else "0"
    pairs = [("expires", expires), ("priority", str(options.priority)), ("timestamp", str(round(now * 1000)))]
    if options.due is not None:
        pairs.append(("scheduledJobId", f"ID:stompy-{round(now * 1000)}"))
    return tuple(pairs)


def letter(options: SendOptions) -> tuple[tuple[str, str], ...]:
    """Return the further headers of a dead letter."""
    return (("originalExpiration", str(round(options.expires * 1000)) if options.expires else "0"),)


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
    leniency=Leniency.ESCAPED_CONNECT | Leniency.UNDEFINED_ESCAPES | Leniency.UNEXPECTED_BODY,
    names=Names(rest=(">",), rooted=True),
    heartbeat=mirrored,
    beats_in_1_0=True,
    refused_login=refused_login,
    refuse=refuse,
    takes=takes,
    dead_letter="/queue/ActiveMQ.DLQ",
    expired="/queue/ActiveMQ.DLQ",
    letter=letter,
    keeps_letter=lambda options: options.persistent is True,
    nack="dead letter",
    nack_alone=True,
    ack_after_unsubscribe=False,
    unsubscribe_returns=True,
    refuses_transacted={"NACK": "Poison ack cannot be transacted: {id}"},
    prioritized=False,
    keeps_by_default=False,
    counts=False,
    added=added,
    own_headers=frozenset({"ack"}),
    repeated="first",
    own_length=True,
    text=True,
    deaf=lambda seconds: Refusal("it missed its heartbeats", silent=True),
    ends_late_replies=True,
)

ACTIVEMQ_5 = replace(ACTIVEMQ, name="activemq5", server="ActiveMQ/5.17.6", refuse=refuse_as_5, text=False)
