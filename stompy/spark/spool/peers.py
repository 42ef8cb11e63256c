"""The other spools of a source, and their messages: no spool stores a message that another one has.

Spools that are filled from one queue look at each other's folders; nothing else connects their processes. A message is
*doubtful* if the broker marks it as redelivered, or if its session is new: a broker that was restarted no longer
knows its earlier deliveries. For every group that a process stores, it

1. notes the doubtful ids below `redelivered/`, with the name that their segment will have;
2. writes the segment, unfinished (W1);
3. looks at the notes of each peer, and for doubtful messages also at its unfinished segment, its segments
   whose ACKs are not confirmed, and its suspects, and at its notes once more, in this order, in which ids move;
4. leaves out the messages of a peer and begins again, or gives the segment its name (W2).

An unfinished segment of a peer that has a message in question is removed: either its owner can no longer give it its
name, and begins again, or the name was there before, and the message is found. So of two processes that have a message,
at whatever steps, one sees the other's copy; a dead one stops nobody. The tests search every state of a model of this.

A note is kept for 24 hours, also when its segment is gone. A process that has an unstored message for longer than that
while its session is dead may store it a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from stompy.errors import SpoolDamagedError, SpoolMismatchError
from stompy.spark.spool.files import IDENTITY, SETTLED, TEMPORARY, Files, dump, read_document, read_mark
from stompy.spark.spool.index import Segment, segment_of
from stompy.spark.spool.record import Identifier, Identity
from stompy.spark.spool.redelivery import KEPT_FOR, SUSPECTS, ids_of, kept_ids, write_ids
from stompy.spark.spool.spool import Spool, decode, get_spool
from stompy.spark.spool.view import SpoolView
from stompy.world import time

NOTES = "redelivered"
"""The folder of the notes."""


class Peers:
    """The messages of the other spools of a source, for the writer of one. One thread at a time.

    Args:
        spool: of the writer.
        folders: returns the folders of all spools of the source; asked for each group, as spools may be added.
        identifier: of messages.
        fresh: how many messages of a new session are doubtful.
        patience: seconds to wait for a process that has claimed a peer and does not begin.
    """

    def __init__(
        self,
        spool: Spool,
        folders: Callable[[], Iterable[str]],
        identifier: Identifier,
        *,
        fresh: int,
        patience: float = 30.0,
    ) -> None:
        self._files = spool.files
        self._destination = spool.destination
        self._folders = folders
        self._identifier = identifier
        self._patience = patience
        self._peers: dict[str, _Peer] = {}
        self._notes: dict[str, tuple[float, str | None]] = {}
        self.fresh = fresh

    def begin(self, segments: Iterable[Segment]) -> None:
        """Remove the notes of segments that a predecessor has not finished; `segments` are the others."""
        names = {None, *(segment.name for segment in segments)}
        for file, document in kept_ids(self._files, NOTES):
            if document["segment"] in names:
                self._notes[file] = document["saved"], document["segment"]
            else:
                self._files.remove(file)

    def note(self, ids: Set[Identity], segment: str | None, file: str | None = None) -> str:
        """Note doubtful ids, durably; return the name of the note.

        Args:
            ids: of messages.
            segment: the name that their segment will have; `None` if they are stored already.
            file: a note that this one replaces.
        """
        now = time.time()
        for old, (saved, _) in list(self._notes.items()):
            if saved + KEPT_FOR < now:
                self._files.remove(old)
                del self._notes[old]
        file = write_ids(self._files, NOTES, ids, file, segment=segment)
        self._notes[file] = now, segment
        return file

    def forget_segment(self, name: str) -> None:
        """Keep the ids that were noted for a segment that is about to be removed."""
        for file, (saved, segment) in self._notes.items():
            if segment == name:
                document = read_document(self._files, file)
                assert document is not None, "only this process removes it"
                self._files.write(file, dump({**document, "segment": None}))
                self._notes[file] = saved, None

    def stored(self, doubtful: Set[Identity], others: Set[Identity]) -> set[Identity]:
        """Return which messages the peers have stored.

        Raises:
            SpoolBusyError: a process has claimed a peer, and does not begin.
            SpoolDamagedError, SpoolMismatchError: a peer is corrupt, or filled from another destination.
        """
        found: set[Identity] = set()
        for folder in self._folders():
            if folder != self._files.url:
                peer = self._peers.get(folder)
                if peer is None:
                    peer = self._peers[folder] = _Peer(folder, self._destination, self._identifier, self._patience)
                found |= peer.stored(doubtful - found, others - found)
        return found


class _Peer:
    """One other spool, and the ids that were read of it."""

    def __init__(self, folder: str, destination: str, identifier: Identifier, patience: float) -> None:
        self._files = Files(folder)
        self._destination = destination
        self._identifier = identifier
        self._patience = patience
        self._spool: Spool | None = None
        self._view: SpoolView | None = None
        self._known: dict[str, Set[Identity]] = {}
        """Ids by file: of segments, of suspects, and of notes whose segment is known to count."""

    def stored(self, doubtful: Set[Identity], others: Set[Identity]) -> set[Identity]:
        if self._files.state(IDENTITY) is None:
            # What is no spool yet will find in our folder what we store now. It may also have been moved or removed.
            self._spool = self._view = None
            self._known.clear()
            return set()
        self._spool = self._spool or get_spool(self._files)
        if self._spool.destination != self._destination:
            raise SpoolMismatchError(
                f"it is filled from {self._spool.destination!r}, another spool of this source from "
                f"{self._destination!r}: name spools of one destination in spoolDir",
                path=self._files.url,
            )
        found, hits = self._noted(doubtful | others)
        asked = (doubtful | hits) - found
        if asked:
            settled = read_mark(self._files, SETTLED) or 0
            self._remove_unfinished(asked)
            self._view = self._view or SpoolView(self._spool, fail_on_loss=False)
            self._view.await_refresh(self._patience)
            listed = {one.name: one for one in self._view.valid() if one.end > settled}
            found |= asked & self._ids("", listed.keys(), lambda name: self._read(listed[name], name))
            suspects = {f"{SUSPECTS}/{name}" for name in self._files.list(SUSPECTS)}
            found |= asked & self._ids(SUSPECTS, suspects, self._of_suspects)
            found |= self._noted(asked)[0]
        return found

    def _noted(self, asked: Set[Identity]) -> tuple[set[Identity], set[Identity]]:
        """Return the noted ids that are stored, and those that may be about to be."""
        found: set[Identity] = set()
        hits: set[Identity] = set()
        valid = {one.name for one in self._view.valid()} if self._view is not None else set()
        names = {f"{NOTES}/{name}" for name in self._files.list(NOTES)}
        self._forget(NOTES, names)
        for name in names:
            if name in self._known:
                found |= asked & self._known[name]
                continue
            document = read_document(self._files, name)
            if document is None:
                continue
            ids = ids_of(document)
            if document["segment"] is None or document["segment"] in valid:
                self._known[name] = ids
                found |= asked & ids
            else:
                hits |= asked & ids
        return found, hits - found

    def _remove_unfinished(self, asked: Set[Identity]) -> None:
        """Remove a complete segment without a name, so that it gets none, if a message in question is in it."""
        for name in self._files.unfinished():
            segment = segment_of(name.removeprefix(TEMPORARY).rpartition("-")[0])
            if segment is None:
                continue
            try:
                ids = self._read(segment, name)
            except SpoolDamagedError:
                continue  # it is not complete: its owner looks at the peers when it is
            if ids & asked:
                self._files.remove(name)

    def _ids(self, folder: str, names: Set[str], read: Callable[[str], set[Identity]]) -> set[Identity]:
        """Return the ids in some files; each is read once."""
        for name in names - self._known.keys():
            self._known[name] = read(name)
        self._forget(folder, names)
        return set().union(*(self._known[name] for name in names))

    def _forget(self, folder: str, names: Set[str]) -> None:
        for name in [one for one in self._known if one.rpartition("/")[0] == folder and one not in names]:
            del self._known[name]

    def _read(self, segment: Segment, name: str) -> set[Identity]:
        """Return the ids in a segment; none if the file was removed: the suspects have what may be redelivered."""
        assert self._spool is not None, "it was found"
        data = self._files.read(name)
        if data is None:
            return set()
        return self._identifier.of_batch(decode(data, segment, spool=self._spool.identity, path=self._files.path(name)))

    def _of_suspects(self, name: str) -> set[Identity]:
        return ids_of(read_document(self._files, name) or {"ids": ()})
