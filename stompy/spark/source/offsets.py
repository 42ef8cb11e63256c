"""How far a query is: a sequence number, and the spool that it counts in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompy.errors import SpoolMismatch

VERSION = 2


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a spool.

    Attributes:
        spool: its identity.
        next: the number of the next message.
        again: first and end of what is read once more, since the spool is an older copy than the checkpoint.
        lost: messages up to here that were given up.
    """

    spool: str
    next: int
    again: tuple[int, int] | None = None
    lost: int = 0

    def json(self) -> dict[str, Any]:
        """Return what Spark stores."""
        stored: dict[str, Any] = {"v": VERSION, "spool": self.spool, "next": self.next}
        if self.again is not None:
            stored["again"] = list(self.again)
        if self.lost:
            stored["lost"] = self.lost
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], *, path: str) -> Offset:
        """Return what Spark had stored.

        Args:
            stored: from the checkpoint.
            path: of the spool, named by the error.

        Raises:
            SpoolMismatch: it is not an offset of this source, or of another version.
        """
        if stored.get("v") != VERSION or not isinstance(stored.get("next"), int) or "spool" not in stored:
            raise SpoolMismatch(
                f"the checkpoint holds an offset that this program does not know ({sorted(stored)}): it belongs to "
                "another source or another version. Give the query its own checkpointLocation",
                path=path,
            )
        again = stored.get("again")
        found = None if again is None else (int(again[0]), int(again[1]))
        return cls(str(stored["spool"]), stored["next"], found, int(stored.get("lost", 0)))
