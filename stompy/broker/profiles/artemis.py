"""Artemis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompy.broker.destinations import Names
from stompy.broker.profile import Profile, Refusal, exact_versions
from stompy.broker.selector import Evaluation
from stompy.frames.grammar import FrameLimits, Leniency, Version
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import Fault, fault_of

if TYPE_CHECKING:
    from stompy.broker.profile import SendRequest
    from stompy.frames.frame import Frame
    from stompy.protocol.rules import Lookup

_NAMED = frozenset({"UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "SEND", "RECEIPT"})
"""The commands whose ERROR names the frame."""

_TAKEN = {
    ("CONNECT", Fault.COMMAND_NOT_ALLOWED),
    ("STOMP", Fault.COMMAND_NOT_ALLOWED),
    ("SEND", Fault.UNKNOWN_TRANSACTION),
    ("SUBSCRIBE", Fault.NO_ID),
    ("SUBSCRIBE", Fault.UNKNOWN_ACK_MODE),
}
"""What is wrong and taken all the same, by command."""


def refuse(error: Exception, frame: Frame | None, version: Version | None) -> Refusal:
    """Return an ERROR after which the connection stays open, or in 1.2 is of no use."""
    message, fault = str(error), fault_of(error)
    if version is None and fault is not Fault.NO_COMMON_VERSION:
        return Refusal(message, closes=False, ignored=True)
    if frame is None or version is None or frame.command not in {*_NAMED, "SUBSCRIBE"}:
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
    named = frame.command in _NAMED
    return Refusal(message, named=named, closes=False, last=version is Version.V1_2)


def takes(error: Exception, frame: Frame) -> bool:
    """Whether Artemis takes a frame that is wrong."""
    return (frame.command, fault_of(error)) in _TAKEN


def value(text: str, version: Version) -> str:
    """Return a header's value as Artemis passes it on: in 1.0 what is not ASCII is lost."""
    return text if version is not Version.V1_0 else text.encode("utf-8", "replace").decode("ascii", "replace")


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


def added(options: SendRequest, now: float) -> tuple[tuple[str, str], ...]:
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
    leniency=Leniency.CR_ESCAPE_IN_1_1 | Leniency.UNEXPECTED_BODY | Leniency.LINES_WITHOUT_COLON,
    limits=FrameLimits(max_body=1024 * 1024 * 1024),
    offered=exact_versions,
    names=Names(rest=("#",), composite=False, nameless=True, temporary="shared"),
    heartbeat=least,
    nameless_in_1_0=True,
    refused_login=refused_login,
    refuse=refuse,
    takes=takes,
    translate=translate,
    supported=frozenset({"destination-type", "subscription-type", "consumer-window-size"}),
    selectors=Evaluation(convert=False, activemq=True),
    expired="/queue/ExpiryQueue",
    deaf=lambda seconds: Refusal(
        f"AMQ229014: Did not receive data from client within the {seconds * 1000:.0f}ms connection TTL. "
        "The connection will now be closed.",
        named=False,
    ),
    nack="discarded",
    returns_as_new=True,
    first_as_redelivered=True,
    transacted=frozenset(),
    implied_begin=True,
    max_deliveries=10,
    keeps_by_default=False,
    first=b"redelivered:false\n",
    counts=False,
    added=added,
    own_headers=frozenset({"ack", "receipt", "transaction"}),
    repeated="last before 1.2",
    own_length=frozenset({Version.V1_0}),
    value=value,
    text=True,
)
