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
        max_body: octets of the body.
    """

    max_headers: int = 1_000
    max_header_line: int = 64 * 1024
    max_body: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigurationError(f"{field.name} must be a whole number of 0 or more, not {value!r}")


DEFAULT_LIMITS = Limits()
