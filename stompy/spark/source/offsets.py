"""Offsets of a query: positions in a spool, and which of the messages before and after them are lost.

Before an offset of a checkpoint is used, it is compared with the spool, which may have been replaced by an older copy:
what was received into that one has the numbers of messages that Spark has processed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stompy.errors import ConfigurationError, SpoolDamagedError, SpoolMismatchError
from stompy.spark.options import EARLIEST, LATEST
from stompy.spark.spool.claims import Claim
from stompy.spark.spool.files import RETIRED
from stompy.spark.spool.index import Piece, Segment, SegmentIndex
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.view import SpoolView

_LOG = logging.getLogger("stompy.spark")

_VERSION = 4
"""The version of the format of offsets."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a spool.

    Attributes:
        next: the sequence number of the next message.
        epoch: of the newest claim whose owner had begun to fill the spool.
        digest: of the segment with the message before that; `None` if it was removed, or there is none.
        lost: number of lost messages before this position.
    """

    next: int
    epoch: int = 0
    digest: str | None = None
    lost: int = 0


Vector = dict[str, Offset]
"""The position in each spool, by the spool's identity: an offset of the source."""


def dump_vector(vector: Vector) -> dict[str, Any]:
    """Return an offset as a JSON object, which Spark stores; `next` and `lost` of the source are sums, for people."""
    total: dict[str, Any] = {"v": _VERSION, "next": sum(one.next for one in vector.values())}
    if lost := sum(one.lost for one in vector.values()):
        total["lost"] = lost
    return {
        **total,
        "spools": {key: {n: v for n, v in asdict(one).items() if v} for key, one in sorted(vector.items())},
    }


def load_vector(stored: Mapping[str, Any]) -> Vector:
    """Return the offset in a JSON object.

    Raises:
        SpoolMismatchError: it is an offset of another source, or of another version.
    """
    if stored.get("v") != _VERSION or not isinstance(stored.get("spools"), dict):
        raise SpoolMismatchError(
            f"the checkpoint contains an offset of an unknown format ({sorted(stored)}): it belongs to "
            "another source or another version. Give the query its own checkpointLocation",
            path="checkpoint",
        )
    return {key: Offset(**{"next": 0, **one}) for key, one in stored["spools"].items()}


class Loss:
    """Which messages of a spool are lost, and whether that is an error (option `failOnDataLoss`).

    Args:
        view: of the spool. Unless its `fail_on_loss` is set, each segment is read once, and damaged ones are skipped.
    """

    def __init__(self, view: SpoolView) -> None:
        self._view = view
        self._spool = view.spool
        self._skipped: dict[Segment, bool] = {}

    def pieces(self, start: int, end: int) -> list[Piece]:
        """Return the pieces that cover some messages, without lost ones.

        Raises:
            SpoolDataLossError: some are lost, and that is an error.
            SpoolError: the spool is gone, perhaps moved.
        """
        index = self._view.index
        fail = self._view.fail_on_loss
        if not fail:
            kept = (segment for segment in index.segments if segment.first < end and not self.is_skipped(segment))
            index = SegmentIndex(low=start, path="", segments=kept)
        return list(index.pieces(start, end, fail=fail, spool=self._spool.identity))

    def count(self, start: int, end: int) -> int:
        """Return how many messages are lost; raises as `pieces`."""
        return end - start - sum(piece.rows for piece in self.pieces(start, end))

    def is_skipped(self, segment: Segment) -> bool:
        """Return whether a segment is damaged, and no error; raises as `get_spool`."""
        if not self._view.fail_on_loss and segment not in self._skipped:
            try:
                self._spool.read(segment)
                self._skipped[segment] = False
            except SpoolDamagedError as error:
                get_spool(self._spool.files)  # raises if the folder was moved meanwhile, by which nothing is lost
                _LOG.warning("the messages %d to %d are skipped: %s", segment.first, segment.end - 1, error)
                self._skipped[segment] = True
        return self._skipped.get(segment, False)

    def forget_below(self, position: int) -> None:
        """Forget what was found out about processed segments."""
        self._skipped = {segment: skipped for segment, skipped in self._skipped.items() if segment.end > position}


class Offsets:
    """Makes and checks the offsets of one spool.

    Attributes:
        claim: of the query.
        view: of the spool.
        loss: of its messages.
    """

    def __init__(self, claim: Claim, view: SpoolView) -> None:
        self.claim = claim
        self.view = view
        self.loss = Loss(view)
        self.spool = view.spool

    @property
    def is_retired(self) -> bool:
        """Whether nothing fills the spool any more, so that it leaves the source when it is read."""
        return self.spool.files.state(RETIRED) is not None

    def at(self, position: int, *, lost: int = 0) -> Offset:
        """Return the offset of a position, before which so many messages are lost."""
        segment = self.view.index.holding(position - 1)
        return Offset(position, self.view.epoch, None if segment is None else segment.digest, lost)

    def starting(self, place: int, since: int | None) -> int:
        """Return the position at which a query without a checkpoint begins.

        Args:
            place: of the option startingOffsets.
            since: of startingTimestamp, which takes precedence.

        Raises:
            ConfigurationError: the spool has no such message.
        """
        low, end = self.view.index.low, self.view.next
        found = {EARLIEST: low, LATEST: end}.get(place, place) if since is None else self._received_since(since)
        if not low <= found <= end:
            raise ConfigurationError(
                f"option startingOffsets: {self.spool.files.url} has no message {place}. Its oldest one is {low}, as "
                f"earlier ones were processed and removed, and the next one that arrives will be {end}"
            )
        if found == low > self.spool.first:
            url = self.spool.files.url
            _LOG.warning("the query begins with message %d of %s, as earlier ones were processed and removed", low, url)
        return found

    def _received_since(self, milliseconds: int) -> int:
        """Return the position of the first message that was received at a time or later; the end if there is none."""
        low = self.view.index.low
        # All of them up to there, as a clock may have been set back.
        for segment in self.view.index.segments:
            if not self.loss.is_skipped(segment):
                received = self.spool.read(segment).column("received_at").cast("int64").to_pylist()
                for number, at in enumerate(received, segment.first):
                    if number >= low and at >= milliseconds * 1000:
                        return number
        return self.view.next

    def check(self, offset: Offset) -> Offset:
        """Return an offset of the checkpoint, if the spool is the one that it was made with.

        Raises:
            SpoolMismatchError: it is an older copy, which may have been filled since.
        """
        segment = self.view.index.holding(offset.next - 1)
        if segment is None:
            # Processed and removed; or lost, and then the spool's own mark tells that it was there.
            may_be_lost = not self.view.fail_on_loss and offset.next <= self.view.planned
            known = may_be_lost or offset.next <= self.view.index.low
        else:
            known = segment.digest == offset.digest or self.loss.is_skipped(segment)
        if not known or self.view.epoch < offset.epoch:
            raise SpoolMismatchError(
                f"the checkpoint says that the messages before {offset.next} were given to Spark, and the spool, which "
                f"ends at {self.view.next}, does not have the last of them: it is an older copy, or lags, or segments "
                "are missing. Use the original spoolDir. If it is lost, start with a new checkpoint: it begins with "
                "the oldest message in this spool, and some of its messages may have been processed before",
                path=self.spool.files.url,
            )
        return offset
