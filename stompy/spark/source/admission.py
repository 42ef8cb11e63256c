"""How much a micro-batch takes; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one micro-batch; `None` for none.

    Attributes:
        most: messages.
        octets: about so many octets.
        least: messages that are waited for.
    """

    most: int | None = None
    octets: int | None = None
    least: int | None = None


def shares(available: Mapping[int, int], most: int) -> dict[int, int]:
    """Return how many messages each lane gives, `most` together.

    Those with little give all of it, the others the same, so that no lane waits for a busier one.

    Args:
        available: messages by lane.
        most: of all lanes together.
    """
    left = most
    found: dict[int, int] = {}
    lanes = sorted(available, key=lambda lane: (available[lane], lane))
    for position, lane in enumerate(lanes):
        waiting = len(lanes) - position
        fair = -(-left // waiting)
        found[lane] = min(available[lane], fair)
        left -= found[lane]
    return found
