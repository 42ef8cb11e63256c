"""Which commands and headers a frame may and must have, by version and side (STOMP 1.2, Frames and Headers)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stompy.errors import LocalProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import CLIENT_COMMANDS, NEGOTIABLE, SERVER_COMMANDS, Grammar, Version

Lookup = Callable[[str], str | None]
"""Returns the value of a header, or None where there is none."""

_SHOWN = 60

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
"""The headers that a frame must have.

Those of CONNECT depend on what is negotiated and are checked there. A 1.0 server owes `session` in CONNECTED, but
nothing uses it and no version is known when it comes, so its absence is borne with.
"""


def commands_of(version: Version, *, client: bool) -> frozenset[str]:
    """Return the commands that one side may use in `version`."""
    if not client:
        return SERVER_COMMANDS
    return CLIENT_COMMANDS if version.has_heartbeats else _1_0_COMMANDS


def violation(command: str, header: Lookup, version: Version) -> str | None:
    """Return what is wrong with the headers of a frame, in words, or `None`.

    Args:
        command: a command that `commands_of` allows.
        header: looks up the frame's headers.
        version: the version of the session.
    """
    for name in REQUIRED[version].get(command, ()):
        if header(name) is None:
            return f"a {command} frame needs a {name!r} header in STOMP {version} ({command})"
    if command == "SUBSCRIBE":
        return _ack_mode_violation(header("ack"))
    if command == "UNSUBSCRIBE" and header("id") is None and header("destination") is None:
        return f"an UNSUBSCRIBE frame needs a 'destination' or 'id' header in STOMP {version} (UNSUBSCRIBE)"
    return None


def _ack_mode_violation(mode: str | None) -> str | None:
    # 1.0 knows two modes, but the brokers of the field take all three in every version, so reading is tolerant.
    if mode is None or mode in ACK_MODES:
        return None
    return f"unknown ack mode {shown(mode)}, not one of {', '.join(ACK_MODES)} (SUBSCRIBE ack Header)"


def body_violation(frame: Frame, grammar: Grammar) -> str | None:
    """Return what is wrong with the body of a CONNECT or CONNECTED, or drop it where `grammar` does so.

    The parser leaves this open, since the version that decides it is only known from the frame itself.
    """
    if not frame.body:
        return None
    if grammar.unexpected_body == "refuse":
        return f"a {frame.command} frame must not have a body (Body)"
    frame.body = b""
    return None


def shown(value: str) -> str:
    """Return an offending value for an error message, cut."""
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def speakable(versions: Iterable[Version]) -> tuple[Version, ...]:
    """Return the versions that one side is to speak, each once and in increasing order.

    Raises:
        LocalProtocolError: none at all, or the 1.0-draft, which is never negotiated, together with others.
    """
    ordered = tuple(sorted(set(versions)))
    if not ordered or (Version.DRAFT in ordered and len(ordered) > 1):
        raise LocalProtocolError("speak at least one version; the 1.0-draft only by itself")
    return ordered


def accept_version(versions: Iterable[Version]) -> str:
    """Return the value of the `accept-version` header: increasing, separated by commas."""
    return ",".join(version.value for version in sorted(versions))


def offered_by(value: str | None) -> tuple[Version, ...]:
    """Return the versions that an `accept-version` header names and stompy knows, in increasing order.

    Any order and spaces around the items are accepted, unknown and empty items are passed over. No header at all means
    that the peer speaks 1.0 only; an empty one means nothing in common.
    """
    if value is None:
        return (Version.V1_0,)
    names = {item.strip(" ") for item in value.split(",")}
    return tuple(version for version in NEGOTIABLE if version.value in names)


def highest_common(mine: Sequence[Version], theirs: Sequence[Version]) -> Version | None:
    """Return the newest version that both sides have, or `None`."""
    return max((version for version in mine if version in theirs), default=None)
