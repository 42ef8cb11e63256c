"""Offsets of a query: positions in a spool, and which of the messages before and after them are lost.

Before an offset of a checkpoint is used, it is compared with the spool, which may have been replaced by an older copy:
what was received into that one has the numbers of messages that Spark has processed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompy.errors import SpoolDamagedError, SpoolMismatchError
from stompy.spark.spool.index import Piece, Segment
from stompy.spark.spool.spool import Spool, check_identity
from stompy.spark.spool.view import SpoolView

_LOG = logging.getLogger("stompy.spark")

_VERSION = 3
"""The version of the format of offsets."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a spool.

    Attributes:
        spool: the spool's identity.
        next: the sequence number of the next message.
        digest: of the segment with the message before that; `None` if it was removed, or there is none.
        lost: number of lost messages before this position.
    """

    spool: str
    next: int
    digest: str | None = None
    lost: int = 0

    def json(self) -> dict[str, Any]:
        """Return the offset as a JSON object, which Spark stores."""
        stored: dict[str, Any] = {"v": _VERSION, "spool": self.spool, "next": self.next}
        if self.digest is not None:
            stored["digest"] = self.digest
        if self.lost:
            stored["lost"] = self.lost
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], *, path: str) -> Offset:
        """Return the offset in a JSON object.

        Args:
            stored: from the checkpoint.
            path: of the spool, for the error.

        Raises:
            SpoolMismatchError: it is an offset of another source, or of another version.
        """
        if stored.get("v") != _VERSION or not isinstance(stored.get("next"), int) or "spool" not in stored:
            raise SpoolMismatchError(
                f"the checkpoint contains an offset of an unknown format ({sorted(stored)}): it belongs to "
                "another source or another version. Give the query its own checkpointLocation",
                path=path,
            )
        return cls(str(stored["spool"]), stored["next"], stored.get("digest"), int(stored.get("lost", 0)))


class Loss:
    """Which messages of a spool are lost, and whether that is an error (option `failOnDataLoss`).

    Args:
        spool: of the query.
        view: of the spool.
        fail: whether to raise for lost messages; otherwise each segment is read once, and damaged ones are skipped.
    """

    def __init__(self, spool: Spool, view: SpoolView, *, fail: bool) -> None:
        self._spool = spool
        self._view = view
        self._fail = fail
        self._skipped: dict[Segment, bool] = {}

    def pieces(self, start: int, end: int) -> list[Piece]:
        """Return the pieces that cover some messages, without lost ones.

        Raises:
            SpoolDataLossError: some are lost, and that is an error.
        """
        pieces = self._view.index.pieces(start, end, fail=self._fail)
        return [piece for piece in pieces if not self.is_skipped(piece.segment)]

    def count(self, start: int, end: int) -> int:
        """Return how many messages are lost; raises as `pieces`."""
        return end - start - sum(piece.rows for piece in self.pieces(start, end))

    def is_skipped(self, segment: Segment) -> bool:
        """Return whether a segment is damaged, and no error."""
        if not self._fail and segment not in self._skipped:
            self._skipped[segment] = False
            try:
                self._spool.read(segment)
            except SpoolDamagedError as error:
                _LOG.warning("the messages %d to %d are skipped: %s", segment.first, segment.end - 1, error)
                self._skipped[segment] = True
        return self._skipped.get(segment, False)

    def was_planned(self, position: int) -> bool:
        """Return whether the spool's own mark tells that the messages before a position were there, and may be lost."""
        return not self._fail and position <= self._view.planned

    def forget_below(self, position: int) -> None:
        """Forget what was found out about processed segments."""
        self._skipped = {segment: skipped for segment, skipped in self._skipped.items() if segment.end > position}


class Offsets:
    """Makes and checks the offsets of one spool.

    Attributes:
        spool: of the query.
        view: of the spool.
        loss: of its messages.
    """

    def __init__(self, spool: Spool, view: SpoolView, loss: Loss) -> None:
        self.spool = spool
        self.view = view
        self.loss = loss

    def at(self, position: int, *, lost: int = 0) -> Offset:
        """Return the offset of a position, before which so many messages are lost."""
        segment = self.view.index.holding(position - 1)
        return Offset(self.spool.identity, position, None if segment is None else segment.digest, lost)

    def check(self, stored: Mapping[str, Any]) -> Offset:
        """Return an offset of the checkpoint, if the spool is the one that it was made with.

        Raises:
            SpoolMismatchError: it is another one, or an older copy, which may have been filled since.
        """
        path = self.spool.files.url
        offset = Offset.from_json(stored, path=path)
        check_identity(self.spool, offset.spool)
        segment = self.view.index.holding(offset.next - 1)
        if segment is None:
            # Processed and removed; or lost, and then the spool's own mark tells that it was there.
            known = offset.next <= self.view.index.low or self.loss.was_planned(offset.next)
        else:
            known = segment.digest == offset.digest or self.loss.is_skipped(segment)
        if not known:
            raise SpoolMismatchError(
                f"the checkpoint says that the messages before {offset.next} were given to Spark, and the spool, which "
                f"ends at {self.view.next}, does not have the last of them: it is an older copy, or lags, or segments "
                "are missing. Use the original spoolDir. If it is lost, start with a new checkpoint: it begins with "
                "the oldest message in this spool, and some of its messages may have been processed before",
                path=path,
            )
        return offset
