"""What a case is: bytes, and what the parser must make of them.

Each case names the rows of the requirements that it holds. `frames` are what must come out before the end or before the
error; `error` is a part of the error's text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits, Leniency
from tests.support.reference import PROFILES, Decoded

DRAFT, V1_0, V1_1, V1_2, HANDSHAKE = PROFILES
ALL = (DRAFT, V1_0, V1_1, V1_2)
FINAL = (V1_0, V1_1, V1_2)
MODERN = (V1_1, V1_2)


@dataclass(frozen=True)
class Case:
    """Bytes, by which rules they are read, and what comes out."""

    name: str
    rows: tuple[str, ...]
    profiles: tuple[str, ...]
    stream: bytes
    frames: tuple[Decoded, ...] = ()
    error: str | None = None
    leniency: Leniency = Leniency.NONE
    limits: FrameLimits = field(default=DEFAULT_LIMITS)


def frame(command: str, *headers: str, body: bytes = b"") -> Decoded:
    """Return a frame; each header is written `name:value`, split at the first colon."""
    pairs = tuple((name, value) for name, _, value in (header.partition(":") for header in headers))
    return command, pairs, body


def good(
    name: str,
    rows: str,
    profiles: tuple[str, ...],
    stream: bytes,
    *frames: Decoded,
    leniency: Leniency = Leniency.NONE,
    limits: FrameLimits = DEFAULT_LIMITS,
) -> Case:
    return Case(name, tuple(rows.split()), profiles, stream, frames, leniency=leniency, limits=limits)


def bad(
    name: str,
    rows: str,
    profiles: tuple[str, ...],
    stream: bytes,
    error: str,
    *frames: Decoded,
    limits: FrameLimits = DEFAULT_LIMITS,
) -> Case:
    return Case(name, tuple(rows.split()), profiles, stream, frames, error, limits=limits)


HI = frame("SEND", "destination:/q", body=b"hi")
