"""The folder of a spool: its identity and its segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from stompy.errors import SpoolError, SpoolMismatchError
from stompy.spark.spool.claims import FILLER, READER
from stompy.spark.spool.files import (
    COUNTS,
    LOW,
    PLANNED,
    SETTLED,
    Files,
    damaged,
    dump,
    path_of,
    read_document,
    read_mark,
)
from stompy.spark.spool.index import Segment, segment_of
from stompy.spark.spool.redelivery import SUSPECTS
from stompy.spark.spool.segment import decode, merged_digests
from stompy.world import secrets, uuid

IDENTITY = "spool.json"
"""The file that identifies the spool."""
FORMAT = "stompy spool"
VERSION = 2
_OURS = frozenset({
    COUNTS, FILLER.folder, FILLER.lock, SUSPECTS, PLANNED, READER.folder, READER.lock, SETTLED,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spool:
    """An existing spool.

    Attributes:
        files: the folder.
        identity: a random id, created with the spool; offsets in a checkpoint contain it.
        destination: the source of its messages; several are sorted and separated by commas.
    """

    files: Files
    identity: str
    destination: str

    def segments(self) -> list[Segment]:
        """Return every listed segment.

        A listing is not atomic. It may miss segments that are being merged and the one that they are merged into, but
        two consecutive listings together do not.
        """
        found = (segment_of(one.name, size=one.size, modified=one.modified) for one in self.files.list(""))
        return [segment for segment in found if segment is not None]

    def read(self, segment: Segment) -> pa.RecordBatch:
        """Return the rows of a segment, even if it was merged into another one meanwhile; raises as `decode`."""
        data = self.files.read(segment.name)
        if data is None:
            for other in self.segments():
                covers = other.first <= segment.first and segment.end <= other.end
                # One of an older process is not valid.
                if covers and other.count > segment.count and other.epoch >= segment.epoch:
                    return self.read(other).slice(segment.first - other.first, segment.count)
        return decode(data, segment, spool=self.identity, path=path_of(self.files, segment.name))

    def merged_from(self, segment: Segment, digest: str | None) -> bool:
        """Return whether a segment was merged from others, one of which had a digest; raises as `decode`."""
        data = self.files.read(segment.name)
        decode(data, segment, spool=self.identity, path=path_of(self.files, segment.name))
        return data is not None and digest in merged_digests(data)

    def low(self) -> int:
        """Return the mark below which everything was processed.

        Raises:
            SpoolDamagedError: the file of the mark is missing or corrupt.
        """
        low = read_mark(self.files, LOW)
        if low is None:
            raise damaged(path_of(self.files, LOW), "the file with the start of the spool is missing")
        return low


def open_files(url: str) -> Files:
    """Return the files of a directory.

    Args:
        url: a path or a `file://` URL.

    Raises:
        SpoolError: it is another URL.
    """
    path = url.removeprefix("file://")
    if "://" in path:
        raise SpoolError("it is not a directory: only a directory has the locks and atomic files of a spool", path=url)
    return Files(path)


def make_spool(files: Files, destination: str) -> Spool:
    """Return the spool in a folder; create one if the folder is empty or does not exist.

    Raises:
        SpoolMismatchError: it is filled from another destination.
        SpoolDamagedError: there are files of a spool, but `spool.json` is missing or corrupt.
        SpoolError: the folder contains other files.
    """
    found = find_spool(files)
    if found is None:
        files.make_folder("")
        document = {"format": FORMAT, "version": VERSION, "id": str(uuid.uuid4()), "destination": destination}
        # First, so that a spool without this mark is corrupt, not unfinished.
        files.create(LOW, dump({LOW: 0}))
        files.create(IDENTITY, dump({**document, "salt": secrets.token_hex(4)}))
        found = find_spool(files)
        assert found is not None, "it was just created"
    if found.destination != destination:
        raise SpoolMismatchError(
            f"it is filled from {found.destination!r}, not from {destination!r}. Each query needs a spool of its own: "
            "choose another spoolDir",
            path=files.url,
        )
    return found


def find_spool(files: Files) -> Spool | None:
    """Return the spool in a folder, or `None` if the folder is empty or does not exist.

    Raises:
        SpoolDamagedError: there are files of a spool, but `spool.json` is missing or corrupt.
        SpoolMismatchError: it has another version of the format.
        SpoolError: the folder contains other files.
    """
    path = path_of(files, IDENTITY)
    document = read_document(files, IDENTITY)
    if document is None:
        names = sorted(entry.name for entry in files.list("") if entry.name != LOW)
        # Another process may have made the spool between the two.
        document = read_document(files, IDENTITY) if names else None
        if document is None:
            _check_empty(files, names)
            return None
    if document.get("format") != FORMAT or not {"id", "destination", "version"} <= document.keys():
        raise damaged(path, "the file does not belong to a spool")
    if document["version"] != VERSION:
        raise SpoolMismatchError(
            f"it is of version {document['version']}, this program knows {VERSION}", path=files.url
        )
    return Spool(files, document["id"], document["destination"])


def get_spool(files: Files) -> Spool:
    """Return the spool in a folder; raises as `find_spool`, and `SpoolError` if there is none."""
    found = find_spool(files)
    if found is None:
        raise SpoolError(
            "there is no spool. If it was moved, say where it is now; if the folder is on another machine, it must be "
            "reachable under this name from every executor as well",
            path=files.url,
        )
    return found


def check_identity(spool: Spool, identity: str) -> None:
    """Check that offsets belong to this spool.

    Raises:
        SpoolMismatchError: they belong to another one.
    """
    if spool.identity != identity:
        raise SpoolMismatchError(
            f"the checkpoint was made with spool {identity}, this one is {spool.identity}. Use the original "
            "spoolDir; or, if that spool is lost, start with a new checkpoint: it then begins with the oldest "
            "message in this one",
            path=spool.files.url,
        )


def _check_empty(files: Files, names: Sequence[str]) -> None:
    if not names:
        return
    if any(name in _OURS or segment_of(name, size=0, modified=0.0) is not None for name in names):
        raise damaged(path_of(files, IDENTITY), "the file with the spool's identity is missing")
    raise SpoolError(
        f"the folder is neither empty nor a spool: it holds {', '.join(names[:3])}. Give the spool a folder of its own",
        path=files.url,
    )
