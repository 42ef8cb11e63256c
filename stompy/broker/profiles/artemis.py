"""Artemis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompy.broker.destinations import Names
from stompy.broker.profile import Profile, Refusal
from stompy.frames.grammar import Leniency, Version
from stompy.protocol.heartbeat import HeartbeatOffer

if TYPE_CHECKING:
    from stompy.broker.options import SendOptions
    from stompy.frames.frame import Frame
    from stompy.protocol.rules import Lookup

_NAMED = frozenset({"UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "SEND", "RECEIPT"})
"""The commands whose ERROR names the frame."""


def refuse(wrong: str, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR after which the connection stays open, or in 1.2 is of no use."""
    if frame is None or version is None or frame.command not in {*_NAMED, "SUBSCRIBE"}:
        return Refusal(wrong, headers=(("version", "1.0,1.1,1.2"),) if version is None else (), named=False)
    header = frame.headers._peek
    message = wrong
    if "already a subscription" in wrong:
        message = f"There already is a subscription for: {header('id')}. Either use unique subscription IDs"
    elif "no unacknowledged message" in wrong:
        message = f"AMQ339018 Error acknowledging message {header('id') or header('message-id')}"
    elif frame.command == "SEND":
        message = f"AMQ339011 Error sending message {wrong}"
    elif frame.command == "COMMIT":
        message = f"AMQ339013 Error committing {header('transaction')}"
    elif frame.command == "RECEIPT":
        message = "AMQ339029 Unsupported command RECEIPT"
    if frame.command == "NACK" and version is Version.V1_0:
        return Refusal(message, named=False)
    named = frame.command in _NAMED
    return Refusal(message, named=named, closes=False, last=version is Version.V1_2)


def takes(wrong: str, frame: Frame) -> bool:
    """Whether Artemis takes a frame that is wrong."""
    return "unknown ack mode" in wrong or (frame.command == "SUBSCRIBE" and "needs a 'id'" in wrong)


def translate(command: str, header: Lookup) -> Lookup:
    """Return a lookup that passes over what Artemis does, and knows its window."""

    def lookup(name: str) -> str | None:
        if name in ("browser", "activemq.exclusive"):
            return None
        if name == "prefetch-count" and command == "SUBSCRIBE" and header("consumer-window-size") == "0":
            return "1"
        return header(name)

    return lookup


def least(asked: HeartbeatOffer) -> HeartbeatOffer:
    """Return what the client asks for, the other way round, and at least 500 ms."""
    send = max(500, asked.receive_ms) if asked.receive_ms else 0
    receive = max(500, asked.send_ms) if asked.send_ms else 30_000
    return HeartbeatOffer(send, receive)


def added(options: SendOptions, now: float) -> tuple[tuple[str, str], ...]:
    """Return the headers that Artemis adds to each message."""
    return (
        ("persistent", "true" if options.persistent else "false"),
        ("expires", str(round(options.expires * 1000)) if options.expires else "0"),
        ("priority", str(options.priority)),
        ("timestamp", str(round(now * 1000))),
    )


def refused_login(login: str | None) -> Refusal:
    """Return the refusal of a wrong login."""
    return Refusal(f"Security Error occurred: User name [{login or 'null'}] or password is invalid", named=False)


ARTEMIS = Profile(
    name="artemis",
    server="ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine",
    leniency=Leniency.CR_ESCAPE_IN_1_1 | Leniency.UNEXPECTED_BODY,
    names=Names(rest=("#",)),
    heartbeat=least,
    nameless_in_1_0=True,
    refused_login=refused_login,
    refuse=refuse,
    takes=takes,
    translate=translate,
    supported=frozenset({"destination-type", "subscription-type", "consumer-window-size"}),
    converts=False,
    expired="/queue/ExpiryQueue",
    deaf=lambda seconds: Refusal(
        f"AMQ229014: Did not receive data from client within the {seconds * 1000:.0f}ms connection TTL. "
        "The connection will now be closed.",
        named=False,
    ),
    nack="discarded",
    ack_after_unsubscribe=False,
    unsubscribe_returns=True,
    returns_as_new=True,
    transacted=frozenset(),
    max_deliveries=10,
    keeps_by_default=False,
    first=b"redelivered:false\n",
    counts=False,
    added=added,
    own_headers=frozenset({"ack", "receipt", "transaction"}),
    repeated="last before 1.2",
    text=True,
)
