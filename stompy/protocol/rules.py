"""The commands of each version and side, the required headers, and version negotiation.

Source: STOMP 1.2, Frames and Headers, Protocol Negotiation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

from stompy.errors import LocalProtocolError, RemoteProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import CLIENT_COMMANDS, NEGOTIABLE, SERVER_COMMANDS, Grammar, Version

Lookup = Callable[[str], str | None]
"""Returns the value of a header, or `None` if the frame does not have it."""

_SHOWN = 60


class Fault(enum.Enum):
    """A violation that brokers treat differently."""

    UNKNOWN_COMMAND = enum.auto()
    COMMAND_NOT_ALLOWED = enum.auto()
    NO_COMMON_VERSION = enum.auto()
    NO_DESTINATION = enum.auto()
    NO_ID = enum.auto()
    NO_TRANSACTION = enum.auto()
    NO_OTHER_HEADER = enum.auto()
    EMPTY_DESTINATION = enum.auto()
    UNKNOWN_ACK_MODE = enum.auto()
    SUBSCRIPTION_EXISTS = enum.auto()
    UNKNOWN_SUBSCRIPTION = enum.auto()
    TRANSACTION_EXISTS = enum.auto()
    UNKNOWN_TRANSACTION = enum.auto()
    UNKNOWN_MESSAGE = enum.auto()
    SUBSCRIPTION_ENDED = enum.auto()
    INVALID_BODY = enum.auto()
    INVALID_DESTINATION = enum.auto()
    UNKNOWN_DESTINATION = enum.auto()
    UNKNOWN_EXCHANGE = enum.auto()
    DECLARED_OTHERWISE = enum.auto()
    INVALID_VALUE = enum.auto()
    UNREADABLE_ID = enum.auto()
    DURABLE_QUEUE = enum.auto()
    UNKNOWN_DURABLE = enum.auto()
    NO_OWNER = enum.auto()
    LOCKED = enum.auto()
    NOT_PUBLISHED = enum.auto()
    INVALID_SELECTOR = enum.auto()
    ACCESS_REFUSED = enum.auto()
    DURABLE_IN_USE = enum.auto()
    NOT_TRANSACTED = enum.auto()
    WRONG_LOGIN = enum.auto()
    CLIENT_CONNECTED = enum.auto()


class FaultyFrame(RemoteProtocolError):
    """A frame that violates a rule: raised for one of the peer, and the reason to refuse one of our own.

    Attributes:
        fault: which rule.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        self.fault = fault
        super().__init__(message)


def fault_of(error: Exception) -> Fault | None:
    """Return which rule was violated, if brokers treat this violation differently."""
    return error.fault if isinstance(error, FaultyFrame) else None


_MISSING = {"destination": Fault.NO_DESTINATION, "id": Fault.NO_ID, "transaction": Fault.NO_TRANSACTION}

ACK_MODES = ("auto", "client", "client-individual")

_1_0_COMMANDS = CLIENT_COMMANDS - {"STOMP", "NACK"}

_COMMON = {
    "SEND": ("destination",),
    "SUBSCRIBE": ("destination",),
    "BEGIN": ("transaction",),
    "COMMIT": ("transaction",),
    "ABORT": ("transaction",),
    "MESSAGE": ("destination", "message-id"),
    "RECEIPT": ("receipt-id",),
}
_1_0 = {**_COMMON, "ACK": ("message-id",)}
_1_1 = {
    **_COMMON,
    "SUBSCRIBE": ("destination", "id"),
    "UNSUBSCRIBE": ("id",),
    "ACK": ("message-id", "subscription"),
    "NACK": ("message-id", "subscription"),
    "MESSAGE": ("destination", "message-id", "subscription"),
}
_1_2 = {**_1_1, "ACK": ("id",), "NACK": ("id",)}

REQUIRED: dict[Version, dict[str, tuple[str, ...]]] = {
    Version.DRAFT: {**_1_0, "CONNECT": ("username", "passcode"), "CONNECTED": ("session",)},
    Version.V1_0: _1_0,
    Version.V1_1: _1_1,
    Version.V1_2: _1_2,
}
"""The required headers of each command, by version.

The headers of CONNECT depend on the negotiation, which checks them. 1.0 requires `session` in CONNECTED, but a missing
one is tolerated: nothing uses it, and the version is not known before this frame.
"""


def commands_of(version: Version, *, client: bool) -> frozenset[str]:
    """Return the commands of the client or of the server in `version`."""
    if not client:
        return SERVER_COMMANDS
    return CLIENT_COMMANDS if version.has_heartbeats else _1_0_COMMANDS


def violation(command: str, header: Lookup, version: Version) -> FaultyFrame | None:
    """Return the violation in the headers of a frame, or `None` if they are valid.

    Args:
        command: one of `commands_of`.
        header: looks up a header of the frame.
        version: the version of the session.
    """
    for name in REQUIRED[version].get(command, ()):
        if header(name) is None:
            message = f"a {command} frame needs a {name!r} header in STOMP {version} ({command})"
            return FaultyFrame(_MISSING.get(name, Fault.NO_OTHER_HEADER), message)
    if command == "SUBSCRIBE":
        return _ack_mode_violation(header("ack"))
    if command == "UNSUBSCRIBE" and header("id") is None and header("destination") is None:
        message = f"an UNSUBSCRIBE frame needs a 'destination' or 'id' header in STOMP {version} (UNSUBSCRIBE)"
        return FaultyFrame(Fault.NO_ID, message)
    return None


def _ack_mode_violation(mode: str | None) -> FaultyFrame | None:
    # 1.0 defines only two modes, but real brokers accept all three in every version.
    if mode is None or mode in ACK_MODES:
        return None
    message = f"unknown ack mode {shown(mode)}, not one of {', '.join(ACK_MODES)} (SUBSCRIBE ack Header)"
    return FaultyFrame(Fault.UNKNOWN_ACK_MODE, message)


def body_violation(frame: Frame, grammar: Grammar) -> FaultyFrame | None:
    """Return the violation in the body of a CONNECT or CONNECTED, or `None` after dropping the body.

    The parser cannot check it, as the version that decides whether to drop it is only known from the frame itself.
    """
    if not frame.body:
        return None
    if grammar.unexpected_body == "refuse":
        return FaultyFrame(Fault.INVALID_BODY, f"a {frame.command} frame must not have a body (Body)")
    frame.body = b""
    return None


def shown(value: str) -> str:
    """Return a value for an error message, truncated."""
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def checked_versions(versions: Iterable[Version]) -> tuple[Version, ...]:
    """Return the versions without duplicates, in increasing order.

    Raises:
        LocalProtocolError: `versions` is empty, or holds the 1.0-draft, which cannot be negotiated, and others.
    """
    ordered = tuple(sorted(set(versions)))
    if not ordered or (Version.DRAFT in ordered and len(ordered) > 1):
        raise LocalProtocolError("at least one version is needed; the 1.0-draft cannot be combined with others")
    return ordered


def accept_version(versions: Iterable[Version]) -> str:
    """Return the value of the `accept-version` header: the versions in increasing order, separated by commas."""
    return ",".join(version.value for version in sorted(versions))


def parse_accept_version(value: str | None) -> tuple[Version, ...]:
    """Return the known versions in an `accept-version` header, in increasing order.

    Any order and spaces around the items are accepted; unknown and empty items are ignored. `None`, a missing header,
    means that the client supports only 1.0.
    """
    if value is None:
        return (Version.V1_0,)
    names = {item.strip(" ") for item in value.split(",")}
    return tuple(version for version in NEGOTIABLE if version.value in names)


def highest_common(mine: Sequence[Version], theirs: Sequence[Version]) -> Version | None:
    """Return the newest version that both sides support, or `None`."""
    return max((version for version in mine if version in theirs), default=None)


_SUBPROTOCOLS = {f"v{version.value.replace('.', '')}.stomp": version for version in NEGOTIABLE}
"""The WebSocket subprotocols of STOMP: `v10.stomp`, `v11.stomp` and `v12.stomp`."""


def subprotocols(versions: Sequence[Version]) -> tuple[str, ...]:
    """Return the subprotocols of these versions, the newest first."""
    return tuple(name for name, version in sorted(_SUBPROTOCOLS.items(), reverse=True) if version in versions)


def version_of(transport: object) -> Version | None:
    """Return the version that a transport has agreed on by a subprotocol; `None` if it has agreed on none."""
    return _SUBPROTOCOLS.get(getattr(transport, "subprotocol", None) or "")
