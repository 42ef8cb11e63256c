"""How many clients may be inside, and how many of them may not have said who they are.

| thread | does here | lock |
|---|---|---|
| acceptor | `enter` | door (leaf) |
| a session's reader | `greeted`, `leave` | door (leaf) |
"""

from __future__ import annotations

import enum
import threading

from stompy.errors import LimitExceeded

_SPARE = 16
"""Refused clients that are told so at one time; to the others the stream just ends."""


class Place(enum.Enum):
    """Where a client stands."""

    WAITING = "has not said CONNECT, or not in a way that was taken"
    INSIDE = "connected"
    REFUSED = "one too many, and being told so"
    GONE = "has left"


class Visit:
    """One client's place; guarded by the door's lock."""

    __slots__ = ("place", "refusal")

    def __init__(self, place: Place, refusal: LimitExceeded | None) -> None:
        self.place = place
        self.refusal = refusal
        """Why it may not come in, or `None`."""


class Door:
    """Counts clients, so that many silent ones cannot keep all others out for ever.

    Args:
        max_sessions: clients at one time.
        max_handshakes: those among them that are not connected yet.
    """

    def __init__(self, *, max_sessions: int, max_handshakes: int) -> None:
        self._max_sessions = max_sessions
        self._max_handshakes = max_handshakes
        self._lock = threading.Lock()
        self._count = dict.fromkeys(Place, 0)

    def enter(self) -> Visit | None:
        """Return a new client's place; `None` where it cannot even be told that there is none."""
        with self._lock:
            refusal = self._refusal()
            if refusal is not None and self._count[Place.REFUSED] >= _SPARE:
                return None
            visit = Visit(Place.REFUSED if refusal else Place.WAITING, refusal)
            self._count[visit.place] += 1
            return visit

    def greeted(self, visit: Visit) -> None:
        """Note that a client is connected now."""
        self._move(visit, Place.INSIDE)

    def leave(self, visit: Visit) -> None:
        """Note that a client is gone; nothing happens the second time."""
        self._move(visit, Place.GONE)

    def _move(self, visit: Visit, place: Place) -> None:
        with self._lock:
            if visit.place is not Place.GONE:
                self._count[visit.place] -= 1
                visit.place = place
                self._count[place] += 1

    def _refusal(self) -> LimitExceeded | None:
        waiting, inside = self._count[Place.WAITING], self._count[Place.INSIDE]
        if waiting + inside >= self._max_sessions:
            return LimitExceeded("too many sessions", limit_name="max_sessions", limit=self._max_sessions)
        if waiting >= self._max_handshakes:
            return LimitExceeded("too many handshakes", limit_name="max_handshakes", limit=self._max_handshakes)
        return None
