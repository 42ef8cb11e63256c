"""How far a query is: a sequence number for each lane, and the spool that they count in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompy.errors import SpoolMismatch

VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in every lane.

    Attributes:
        spool: the identity of the spool.
        lanes: the number of the next message, by lane. A lane that is missing is at 0, as every new lane is.
    """

    spool: str
    lanes: Mapping[int, int]

    def of(self, lane: int) -> int:
        """Return the position in a lane."""
        return self.lanes.get(lane, 0)

    def json(self) -> dict[str, Any]:
        """Return what Spark stores."""
        return {"v": VERSION, "spool": self.spool, "seq": {str(lane): self.lanes[lane] for lane in sorted(self.lanes)}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], *, path: str) -> Offset:
        """Return what Spark had stored.

        Args:
            stored: from the checkpoint.
            path: of the spool, named by the error.

        Raises:
            SpoolMismatch: it is not an offset of this source, or of a later version.
        """
        if stored.get("v") != VERSION or not isinstance(stored.get("seq"), Mapping) or "spool" not in stored:
            raise SpoolMismatch(
                f"the checkpoint holds an offset that this program does not know ({sorted(stored)}): it belongs to "
                "another source or a later version. Give the query its own checkpointLocation",
                path=path,
            )
        return cls(str(stored["spool"]), {int(lane): int(at) for lane, at in stored["seq"].items()})
