"""The folder as a whole: whose spool it is, and what is in it."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass

import pyarrow as pa

from stompy.errors import SpoolError, SpoolMismatch
from stompy.spark.spool.claims import EPOCHS, LOCK
from stompy.spark.spool.files import Files, LocalFiles
from stompy.spark.spool.names import IDENTITY, Segment, segment_of
from stompy.spark.spool.segment import decode
from stompy.spark.spool.state import COUNTS, LOW, PLANNED, SETTLED, damaged, dump, path_of, read_document, read_mark
from stompy.spark.spool.suspects import FOLDER

FORMAT = "stompy spool"
VERSION = 2
_OURS = frozenset({COUNTS, EPOCHS, LOCK, FOLDER, SETTLED, PLANNED})


@dataclass(frozen=True, slots=True)
class Spool:
    """A spool that is there.

    Attributes:
        files: the folder.
        identity: made with it, at random; offsets in a checkpoint name it.
        destination: what it is filled from; several are sorted, with commas between them.
    """

    files: Files
    identity: str
    destination: str

    def segments(self) -> list[Segment]:
        """Return every segment that is listed.

        A listing takes time. It may miss segments that are merged meanwhile, and the one that they are merged into,
        but two listings, one after the other, do not.
        """
        found = (segment_of(one.name, size=one.size, modified=one.modified) for one in self.files.list(""))
        return [segment for segment in found if segment is not None]

    def read(self, segment: Segment) -> pa.RecordBatch:
        """Return the rows of a segment, also when it was merged into another meanwhile; raises as `decode`."""
        data = self.files.read(segment.name)
        if data is None:
            for other in self.segments():
                covers = other.first <= segment.first and segment.end <= other.end
                # An older process's is one that does not count.
                if covers and other.count > segment.count and other.epoch >= segment.epoch:
                    return self.read(other).slice(segment.first - other.first, segment.count)
        return decode(data, segment, spool=self.identity, path=path_of(self.files, segment.name))

    def low(self) -> int:
        """Return the mark below which everything was processed.

        Raises:
            SpoolDamaged: it is gone.
        """
        low = read_mark(self.files, LOW)
        if low is None:
            raise damaged(path_of(self.files, LOW), "the file with the start of the spool is missing")
        return low


def open_files(url: str) -> Files:
    """Return the seam to a path or URL: a directory, or what pyarrow or fsspec know."""
    if "://" not in url or url.startswith("file://"):
        return LocalFiles(url.removeprefix("file://"))
    from stompy.spark.spool.remote import RemoteFiles  # what it needs is not always there

    return RemoteFiles(url)


def make_spool(files: Files, destination: str) -> Spool:
    """Return the spool in a folder, made if the folder is empty or not there.

    Raises:
        SpoolMismatch: it is filled from another destination.
        SpoolDamaged: there are files of a spool, but not the one that says whose it is.
        SpoolError: the folder holds something else.
    """
    found = find_spool(files)
    if found is None:
        files.make_folder("")
        document = {"format": FORMAT, "version": VERSION, "id": str(uuid.uuid4()), "destination": destination}
        # First: a spool without this mark has lost it.
        files.create(LOW, dump({LOW: 0}))
        files.create(IDENTITY, dump({**document, "salt": secrets.token_hex(4)}))
        found = find_spool(files)
        assert found is not None, "it was just created"
    if found.destination != destination:
        raise SpoolMismatch(
            f"it is filled from {found.destination!r}, not from {destination!r}. Each query needs a spool of its own: "
            "choose another spoolDir",
            path=files.url,
        )
    return found


def find_spool(files: Files) -> Spool | None:
    """Return the spool in a folder, `None` where the folder is empty or not there.

    Raises:
        SpoolDamaged: there are files of a spool, but not the one that says whose it is, or that is not what was
            written.
        SpoolMismatch: it is of a later version.
        SpoolError: the folder holds something else.
    """
    path = path_of(files, IDENTITY)
    document = read_document(files, IDENTITY)
    if document is None:
        _check_empty(files)
        return None
    if document.get("format") != FORMAT or not {"id", "destination", "version"} <= document.keys():
        raise damaged(path, "the file does not belong to a spool")
    if document["version"] != VERSION:
        raise SpoolMismatch(f"it is of version {document['version']}, this program knows {VERSION}", path=files.url)
    return Spool(files, document["id"], document["destination"])


def get_spool(files: Files) -> Spool:
    """Return the spool in a folder; raises as `find_spool`, and `SpoolError` where there is none."""
    found = find_spool(files)
    if found is None:
        raise SpoolError(
            "there is no spool. If it was moved, say where it is now; if the folder is on another machine, it must be "
            "reachable under this name from every executor as well",
            path=files.url,
        )
    return found


def check_identity(spool: Spool, identity: str) -> None:
    """See that offsets belong to this spool.

    Raises:
        SpoolMismatch: they were made with another one.
    """
    if spool.identity != identity:
        raise SpoolMismatch(
            f"the checkpoint was made with spool {identity}, this one is {spool.identity}. Use the original "
            "spoolDir; or, if that spool is lost, start with a new checkpoint: it then begins with the oldest "
            "message in this one",
            path=spool.files.url,
        )


def _check_empty(files: Files) -> None:
    names = sorted(entry.name for entry in files.list("") if entry.name != LOW)
    if not names:
        return
    if any(name in _OURS or segment_of(name, size=0, modified=0.0) is not None for name in names):
        raise damaged(path_of(files, IDENTITY), "the file with the spool's identity is missing")
    raise SpoolError(
        f"the folder is neither empty nor a spool: it holds {', '.join(names[:3])}. Give the spool a folder of its own",
        path=files.url,
    )
