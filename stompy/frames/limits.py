"""How much one frame may hold."""

from __future__ import annotations

from dataclasses import dataclass, fields

from stompy.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Limits:
    """Maxima for one frame of the peer; past one of them parsing fails with `FrameTooLarge`.

    Source: STOMP 1.2, Size Limits. The limits bound memory before a frame is whole.

    Attributes:
        max_headers: header lines in a frame.
        max_header_line: octets of one header line, without its line end.
        max_header_block: octets of all header lines of a frame, with their line ends.
        max_body: octets of the body.
        max_first_body: octets of the body of a peer's first frame, before which nobody knows who it is.
    """

    max_headers: int = 1_000
    max_header_line: int = 64 * 1024
    max_header_block: int = 1024 * 1024
    max_body: int = 128 * 1024 * 1024
    max_first_body: int = 64 * 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigurationError(f"{field.name} must be a whole number of 0 or more, not {value!r}")

    def body(self, *, first: bool) -> tuple[str, int]:
        """Return the name and the value of the limit for a body; `first` for that of a peer's first frame."""
        if first and self.max_first_body < self.max_body:
            return "max_first_body", self.max_first_body
        return "max_body", self.max_body


DEFAULT_LIMITS = Limits()
