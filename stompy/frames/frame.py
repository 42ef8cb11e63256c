"""One STOMP frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stompy.frames.headers import Headers

_SHOWN_BODY = 60


class Frame:
    """A command, its headers and its body.

    Callers must not change one. The protocol alone does, while it accepts the first frame of a session: only that frame
    tells the version, and so whether its values are trimmed and its body is dropped.

    Args:
        command: as on the wire, such as `"SEND"`.
        headers: `Headers`, a mapping, or pairs.
        body: octets, without the NUL that ends the frame.
    """

    __slots__ = ("body", "command", "headers")

    def __init__(
        self, command: str, headers: Headers | Mapping[str, str] | Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> None:
        self.command = command
        self.headers = headers if type(headers) is Headers else Headers(headers)
        self.body = body

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        return (self.command, self.headers, self.body) == (other.command, other.headers, other.body)

    def __hash__(self) -> int:
        return hash((self.command, self.headers, self.body))

    def __repr__(self) -> str:
        return f"<Frame {self.command} {self.headers!r} {show_body(self.body)}>"


def show_body(body: bytes) -> str:
    """Return a short text for logs and errors: the first octets and the length."""
    if len(body) <= _SHOWN_BODY:
        return repr(body)
    return f"{body[:_SHOWN_BODY]!r}… ({len(body)} octets)"
