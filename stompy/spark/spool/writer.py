"""The writer of a spool: makes received messages durable before they are acknowledged.

| who | does |
|---|---|
| each receiver's thread | `begin`, `store`, `confirm`, `note_receipt`, `leave` |
| maintenance thread | `maintain` |
| any thread | `epoch`, `next`, `settled`, `room` and the like |

| rank | lock | guards | held over I/O |
|---|---|---|---|
| write | sealing | the order of segments, the ids on disk | the disk's |
| leaf | spool | the index, the ids in memory | no |

The steps for each group of messages: W1 write and sync an unfinished file; W2 give it its name; W3 sync the folder; W4
look for a newer claim; W5 ACK with a receipt; W6 the receipt raises the mark `settled`, in memory first, as a mark that
is too low only causes more suspects. `redelivery.py` says which duplicates are recognised meanwhile, and for how long.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stompy.errors import SpoolDamagedError, SpoolError, SpoolFencedError
from stompy.locks import Rank, make_lock
from stompy.spark.spool.claims import ActiveClaim, Claim, ClaimTimeouts, active_claim
from stompy.spark.spool.files import COUNTS, PLANNED, RETIRED, SETTLED, Counts, read_mark, write_counts, write_mark
from stompy.spark.spool.index import Segment, SegmentIndex, lost, sound, stale_claims
from stompy.spark.spool.peers import Peers
from stompy.spark.spool.record import Identifier, Identity, Record
from stompy.spark.spool.redelivery import Redelivery, StoredRange, Suspects
from stompy.spark.spool.spool import Spool, encode
from stompy.world import random, time

_LOG = logging.getLogger("stompy.spark")


@dataclass(slots=True, eq=False)
class _Group:
    """The messages of one call of `store`, and where they were stored."""

    receiver: int
    messages: Sequence[Record]
    fresh: bool = False
    stored: StoredRange | None = None

    def doubtful(self) -> set[Identity]:
        """Return the ids of messages that another spool may have stored."""
        return {one.identity for one in self.messages if one.identity and (self.fresh or one.redelivered)}


class _StoredElsewhere(Exception):
    """Another spool of the source has some of the messages."""


_MAX_PAUSE = 0.05
"""Maximum seconds until a segment that a peer has removed is written again."""
_MAX_REMOVED = 2000
"""Maximum number of files that one call of `maintain` removes, so that its other work is not delayed."""


class SpoolWriter:
    """Writes to a spool, for all receivers of this process.

    Args:
        spool: to fill.
        patience: how long to wait for a predecessor.
        dedup_header: the header that identifies stored messages; `None` uses their message ids.
        fail_on_loss: whether to raise if segments are missing; otherwise they are ignored.
        peers: the other spools of the source, if it has several.

    Raises:
        SpoolBusyError: another process fills the spool.
        SpoolDamagedError, SpoolMismatchError, SpoolDataLossError: files corrupt, of another spool, or missing.
    """

    def __init__(
        self,
        spool: Spool,
        *,
        patience: ClaimTimeouts | None = None,
        dedup_header: str | None = None,
        fail_on_loss: bool = True,
        peers: Peers | None = None,
    ) -> None:
        self._spool = spool
        self._peers = peers
        self._fresh: dict[int, int] = {}
        self._files = spool.files
        self._write_lock = make_lock(Rank.WRITE, "spool sealing")
        self._lock = make_lock(Rank.LEAF, "spool")
        self._broken: BaseException | None = None
        self._groups: list[_Group] = []
        self._counts: defaultdict[int, Counts] = defaultdict(Counts)
        self._counted = 0
        self.written = 0
        """Bytes of the segments that this writer has written."""
        self._claim = Claim(spool.files, patience=patience or ClaimTimeouts())
        try:
            orphans = self._look(fail_on_loss)
        except BaseException:
            self._claim.withdraw()
            raise
        try:
            self._begin(orphans, Identifier(dedup_header), fail_on_loss)
        except BaseException:
            self._claim.release()
            raise

    def _look(self, fail_on_loss: bool) -> list[Segment]:
        """Read the folder, and return the segments that are not valid."""
        if self._files.state(RETIRED) is not None:
            raise SpoolError("it is retired, and not filled any more: remove the file `retired`", path=self._files.url)
        predecessor = active_claim(self._files, before=self._claim.epoch) or ActiveClaim(0, 0)
        low = self._spool.low()
        listed = self._spool.segments()
        if any(segment.epoch >= self._claim.epoch for segment in listed):
            self._claim.check()  # else they are a successor's, which this process must not take for orphans
            raise stale_claims(self._files.url)
        kept, orphans = sound(listed, epoch=predecessor.epoch, start=predecessor.start)
        self._index = SegmentIndex(low=low, path=self._files.url, segments=kept)
        self._processed = deque(segment for segment in kept if segment.end <= low)
        self._settled = read_mark(self._files, SETTLED) or 0
        self._planned = read_mark(self._files, PLANNED) or 0
        self.next = max(self._index.next, self._settled, self._planned, predecessor.start)
        """The sequence number of the next message."""
        if fail_on_loss:
            self._check_whole()
        self._unsettled = [segment for segment in kept if segment.end > self._settled]
        return orphans

    def _begin(self, orphans: Iterable[Segment], identifier: Identifier, fail_on_loss: bool) -> None:
        self._claim.begin(self.next)
        # A predecessor may have ended before it synced the folder (W3); its segments count from now on, and duplicates
        # of their messages are acknowledged.
        self._files.sync("")
        for segment in orphans:
            self._files.remove(segment.name)
        self._files.sweep()
        if self._peers is not None:
            self._peers.begin(self._index.segments + tuple(self._processed))
        self._suspects = Suspects(self._files)
        # The broker may not have got the predecessor's ACKs for these.
        self._suspects.save(self._identities(self._unsettled, identifier, fail_on_loss))
        self._redelivery = Redelivery(self._suspects.ids())
        self._files.remove(COUNTS)  # of a predecessor
        self._write_settled()

    def _check_whole(self) -> None:
        if self.next > self._index.next:
            raise lost(self._files.url, self._index.next, self.next)
        for before, after in itertools.pairwise(self._index.segments):
            if before.end != after.first:
                raise lost(self._files.url, before.end, after.first)

    def _identities(self, segments: Iterable[Segment], identifier: Identifier, fail_on_loss: bool) -> set[Identity]:
        found: set[Identity] = set()
        for segment in segments:
            try:
                found |= identifier.of_batch(self._spool.read(segment))
            except SpoolDamagedError as error:
                if fail_on_loss:
                    raise
                _LOG.warning("messages %d to %d are skipped: %s", segment.first, segment.end - 1, error)
        return found

    # State.

    @property
    def settled(self) -> int:
        """The sequence number below which the broker has confirmed each ACK, or the message is a suspect."""
        with self._lock:
            settled = self._redelivery.settled
            return self.next if settled is None else settled

    def counts(self) -> list[Counts]:
        """Return the statistics of each receiver, by its number."""
        with self._lock:
            return [replace(self._counts[number]) for number in range(max(self._counts, default=-1) + 1)]

    @property
    def total(self) -> int:
        """The number of messages that were ever written to the spool."""
        return self.next - self._spool.first

    @property
    def turn(self) -> int:
        """The logical time that orders receipts; see `Redelivery`."""
        return self._redelivery.turn

    def room(self, max_bytes: int) -> int:
        """Return how many bytes it may grow up to a size; all of them while all messages were given to Spark.

        Spark reports a batch as processed only when it plans the next one. If that waited for new messages, and they
        for space in the spool, neither would ever continue.
        """
        with self._lock:
            return max_bytes - (self._index.size if self._planned < self.next else 0)

    # For receivers.

    def begin(self, receiver: int) -> None:
        """Record that a receiver is about to open a session."""
        with self._lock:
            self._redelivery.begin(receiver)
            self._fresh[receiver] = self._peers.fresh if self._peers is not None else 0

    def store(self, receiver: int, messages: Sequence[Record]) -> StoredRange:
        """Write the messages that are no duplicates (W1 to W3), and check the claim (W4); then acknowledge all of them.

        Args:
            receiver: the number of the receiver that got them.
            messages: in order.

        Raises:
            SpoolFullError: there is no space left.
            SpoolFencedError: a successor has taken over the spool; the messages must not be acknowledged.
        """
        with self._lock:
            fresh = self._fresh.get(receiver, 0)
            self._fresh[receiver] = fresh - len(messages)
            group = _Group(receiver, messages, fresh > 0)
            self._groups.append(group)
        with self._write_lock:
            # The first one to get the lock writes for all that wait for it meanwhile.
            if group.stored is None:
                self._commit()
        assert group.stored is not None, "a commit covers every waiting group"
        return group.stored

    def _commit(self) -> None:
        """Write all waiting groups, of all receivers, as one segment: one sync for all of them."""
        if self._broken is not None:
            raise self._broken.with_traceback(None)
        with self._lock:
            groups, self._groups = self._groups, []
            new = self._unknown(groups)
        try:
            segment, stored = self._write(groups, new)
            self._claim.check()
        except BaseException as error:
            self._broken = error  # the file may exist nevertheless, and its sequence numbers must not be reused
            raise
        with self._lock:
            if segment is not None:
                self._index.add(segment)
                self.written += segment.size
            for group, rows in zip(groups, new, strict=True):
                self._note(group, [row for row in rows if row.identity not in stored])

    def _note(self, group: _Group, new: Sequence[Record]) -> None:
        start, self.next = self.next, self.next + len(new)
        counts = self._counts[group.receiver]
        counts.messages += len(new)
        counts.dropped += len(group.messages) - len(new)
        counts.flagged += sum(record.redelivered for record in new)
        counts.last = time.time()
        ids = [row.identity for row in group.messages if row.identity is not None]
        group.stored = self._redelivery.wrote(group.receiver, ids, start, self.next)

    def _write(self, groups: Sequence[_Group], new: Iterable[Sequence[Record]]) -> tuple[Segment | None, set[Identity]]:
        """Write the segment of some groups, if any message is left; return it, and the ids that other spools have."""
        rows = list(itertools.chain.from_iterable(new))
        ids: set[Identity] = set()
        doubtful: set[Identity] = set()
        stored: set[Identity] = set()
        file: str | None = None

        def look() -> None:
            assert self._peers is not None, "it has peers"
            found = self._peers.stored(doubtful - stored, ids - doubtful - stored)
            if found:
                stored.update(found)
                raise _StoredElsewhere

        if self._peers is not None:
            ids = {row.identity for row in rows if row.identity is not None}
            doubtful = set().union(*(group.doubtful() for group in groups))
            if doubtful - ids:
                # Known here: a peer that has an old copy must find them when they are no longer among the suspects.
                self._peers.note(doubtful - ids, None)
        while records := [row for row in rows if row.identity not in stored]:
            segment, data = encode(records, spool=self._spool.identity, first=self.next, epoch=self._claim.epoch)
            try:
                if self._peers is not None and (doubtful & ids) - stored:
                    file = self._peers.note((doubtful & ids) - stored, segment.name, file)
                self._files.write(segment.name, data, look=look if self._peers is not None else None)
            except _StoredElsewhere:
                continue
            except SpoolError as error:
                self._claim.check()  # a successor removes what its predecessor has not finished
                if error.path != self._files.path(segment.name) or not isinstance(error.__cause__, FileNotFoundError):
                    raise
                time.sleep(random.uniform(0, _MAX_PAUSE))  # noqa: S311 - a peer that has a message too is about to store it
            else:
                return segment, stored
        return None, stored

    def _unknown(self, groups: Sequence[_Group]) -> list[list[Record]]:
        """Return the messages of each group that are no duplicates."""
        new: list[list[Record]] = []
        known, seen = self._redelivery.known, set[Identity | None]()
        for group in groups:
            new.append([])
            for row in group.messages:
                if row.identity is None or not (row.identity in known or row.identity in seen):
                    seen.add(row.identity)
                    new[-1].append(row)
        return new

    def confirm(self, delivery: StoredRange) -> None:
        """Record that the broker has confirmed the ACK of a delivery (W6)."""
        with self._lock:
            forgotten = self._redelivery.confirm(delivery)
        self._forget(forgotten)

    def note_receipt(self, receiver: int, turn: int) -> None:
        """Record a receipt for a frame that a session sent at `turn`."""
        with self._lock:
            forgotten = self._redelivery.note_receipt(receiver, turn)
        self._forget(forgotten)

    def needs_receipt(self, receiver: int) -> bool:
        """Return whether a receipt for a frame that this session sends now would make ids unnecessary."""
        with self._lock:
            return self._redelivery.needs_receipt(receiver)

    def leave(self, receiver: int) -> None:
        """Record that a session has ended: unconfirmed messages may be redelivered, to any receiver.

        Raises:
            SpoolFencedError: a successor has taken over the spool, and knows these messages from the segments.
        """
        self._claim.check()
        with self._lock:
            forgotten, suspects = self._redelivery.end(receiver)
        with self._write_lock:
            self._suspects.forget(forgotten)
            self._suspects.save(suspects)
        with self._lock:
            self._redelivery.leave(receiver)

    def _forget(self, identities: Sequence[Identity]) -> None:
        if identities and len(self._suspects):
            with self._write_lock:
                self._suspects.forget(identities)

    # Maintenance.

    def maintain(self) -> None:
        """Touch the claim, write and read the marks, and remove processed segments; called about every second.

        Raises:
            SpoolFencedError: a successor has taken over the spool.
        """
        self._claim.check()
        self._claim.heartbeat()
        low, planned = self._spool.low(), read_mark(self._files, PLANNED) or 0
        with self._lock:
            self._planned = planned
            self._processed.extend(self._index.remove_below(low))
        self._write_settled()
        self._write_counts()
        for _ in range(_MAX_REMOVED):
            # Only below the mark on disk, from which on a successor reads the ids.
            if not self._processed or self._processed[0].end > self._settled:
                break
            name = self._processed.popleft().name
            if self._peers is not None:
                with self._write_lock:
                    self._peers.forget_segment(name)
            self._files.remove(name)

    def _write_settled(self) -> None:
        settled = self.settled
        if settled != self._settled:
            write_mark(self._files, SETTLED, settled)
            self._settled = settled

    def _write_counts(self) -> None:
        counts = self.counts()
        seen = sum(one.messages + one.dropped for one in counts)
        if seen != self._counted:
            write_counts(self._files, counts)
            self._counted = seen

    def close(self) -> None:
        """Write the marks, remove processed segments, and release the claim."""
        if self._claim.owner.forked:
            return
        try:
            self.maintain()
        except SpoolFencedError:
            pass
        finally:
            self._claim.release()
