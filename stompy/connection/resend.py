"""How much may be under way that is sent again where a link dies."""

from __future__ import annotations

from dataclasses import dataclass

from stompy.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Resend:
    """The bounds of what is sent and not confirmed, where `connect(resend_unconfirmed=...)` sends it again.

    At either bound the next send with a receipt waits, up to the send timeout.

    Attributes:
        messages: so many at most.
        octets: of their bodies and headers, so many at most; a message that is larger by itself is refused.
    """

    messages: int = 10_000
    octets: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("messages", "octets"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {value!r}")


def resend_of(value: bool | Resend) -> Resend | None:
    """Return the bounds that `connect(resend_unconfirmed=...)` names: `True` for the usual ones, else none."""
    if isinstance(value, Resend):
        return value
    return Resend() if value else None
