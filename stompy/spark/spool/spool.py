"""The folder of a spool: its identity and its segments.

Segments are Arrow IPC files; the schema's metadata has the spool's identity and the sequence numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby

import pyarrow as pa

from stompy.errors import SpoolDamagedError, SpoolError, SpoolMismatchError
from stompy.spark.schema import stored_schema
from stompy.spark.spool.files import IDENTITY, LOW, Files, checksum_of, damaged, dump, read_document, read_mark
from stompy.spark.spool.index import Segment, segment_of
from stompy.spark.spool.record import Record
from stompy.world import secrets, socket, uuid

FORMAT = "stompy spool"
VERSION = 2
_RANGES = 1 << 23
"""How many ranges of 2 ** 40 sequence numbers there are for the spools of a source."""
_SCHEMA = stored_schema()
_SEGMENT_VERSION = "3"
_ADVICE = (
    "Its messages were acknowledged to the broker. Restore the file from a backup, or skip them with the option "
    "failOnDataLoss=false"
)


def encode(records: Sequence[Record], *, spool: str, first: int, epoch: int) -> tuple[Segment, bytes]:
    """Return the segment of some rows, and the bytes of its file.

    Args:
        records: at least one.
        spool: its identity.
        first: the sequence number of the first row.
        epoch: of the writer's claim.
    """
    values = dict(zip(Record._fields, zip(*records, strict=True), strict=True))
    names, texts, _ = map(values.pop, ("names", "values", "identity"))
    columns = {name: _column(column, _SCHEMA.field(name).type) for name, column in values.items()}
    # Duplicates that this spool knows are dropped. Of the others, another spool may have stored any.
    columns["possible_duplicate"] = columns["redelivered"]
    columns["sequence"] = pa.array(range(first, first + len(records)), pa.int64())
    # Flat, as a list of pairs for each row costs more than all other columns.
    columns["headers"] = pa.MapArray.from_arrays(
        pa.array(list(accumulate(map(len, names), initial=0)), pa.int32()),
        pa.concat_arrays([_repeated(some, pa.string(), len(list(same))) for some, same in groupby(names)]),
        pa.array(list(chain.from_iterable(texts)), pa.string()),
    )
    schema = _SCHEMA.with_metadata({
        "stompy.version": _SEGMENT_VERSION, "stompy.spool": spool,
        "stompy.first": str(first), "stompy.count": str(len(records)), "stompy.epoch": str(epoch),
    })  # fmt: skip
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([columns[field.name] for field in _SCHEMA], schema=schema))
    data = sink.getvalue().to_pybytes()
    return Segment(first, len(records), epoch, checksum_of(data), len(data)), data


def _column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return the values of a column; where all are equal, as in most columns, only the first is converted."""
    alike = values.count(values[0]) == len(values)
    return _repeated(values[:1], kind, len(values)) if alike else pa.array(values, kind)


def _repeated(values: Sequence[object], kind: pa.DataType, times: int) -> pa.Array:
    """Return some values, several times in turn."""
    # From a buffer, as numbers of Python cost more to convert.
    indices = array("i", range(len(values))) * times
    return pa.array(values, kind).take(pa.Array.from_buffers(pa.int32(), len(indices), [None, pa.py_buffer(indices)]))


def decode(data: bytes | None, segment: Segment, *, spool: str, path: str) -> pa.RecordBatch:
    """Return the rows of a segment, with the stored schema and without metadata.

    Args:
        data: the whole file; `None` if it does not exist.
        segment: as in the file name.
        spool: the identity of the expected spool.
        path: of the file, for errors.

    Raises:
        SpoolDamagedError: the file is missing, truncated or corrupt.
        SpoolMismatchError: the file is valid, but belongs to another spool or has another name.
    """
    if data is None:
        raise SpoolDamagedError(f"the segment is missing. {_ADVICE}", path=path)
    if checksum_of(data) != segment.digest:
        raise SpoolDamagedError(f"the segment is damaged or truncated ({len(data)} bytes). {_ADVICE}", path=path)
    try:
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            _check_origin(reader.schema.metadata or {}, segment, spool, path)
            table = reader.read_all()
    except pa.ArrowInvalid as error:
        raise SpoolDamagedError(f"the segment is not an Arrow file: {error}. {_ADVICE}", path=path) from error
    if table.num_rows != segment.count or not table.schema.equals(_SCHEMA):
        raise SpoolDamagedError(f"the rows of the segment do not match its name. {_ADVICE}", path=path)
    (batch,) = table.combine_chunks().to_batches()
    return batch.replace_schema_metadata(None)


def _check_origin(metadata: dict[bytes, bytes], segment: Segment, spool: str, path: str) -> None:
    expected = {"version": _SEGMENT_VERSION, "spool": spool, "first": str(segment.first)}
    for name, value in expected.items():
        found = metadata.get(f"stompy.{name}".encode(), b"?").decode()
        if found != value:
            raise SpoolMismatchError(
                f"the {name} in the segment is {found}, not {value}: it belongs to another spool, or was renamed, or "
                "another version of stompy wrote it. Move it out of the folder",
                path=path,
            )


@dataclass(frozen=True, slots=True)
class Spool:
    """An existing spool.

    Attributes:
        files: the folder.
        identity: a random id, created with the spool; offsets in a checkpoint contain it.
        destination: the source of its messages; several are sorted and separated by commas.
        first: the sequence number of its first message.
    """

    files: Files
    identity: str
    destination: str
    first: int = 0

    def segments(self) -> list[Segment]:
        """Return every listed segment."""
        return [segment for segment in map(self.segment, self.files.list("")) if segment is not None]

    def segment(self, name: str) -> Segment | None:
        """Return the segment in a file; `None` if the file is another one, or was removed since it was listed."""
        segment = segment_of(name)
        state = None if segment is None else self.files.state(name)
        return None if segment is None or state is None else replace(segment, size=state[0], modified=state[1])

    def read(self, segment: Segment) -> pa.RecordBatch:
        """Return the rows of a segment; raises as `decode`."""
        data = self.files.read(segment.name)
        return decode(data, segment, spool=self.identity, path=self.files.path(segment.name))

    def low(self) -> int:
        """Return the mark below which everything was processed.

        Raises:
            SpoolDamagedError: the file of the mark is missing or corrupt.
        """
        low = read_mark(self.files, LOW)
        if low is None:
            raise damaged(self.files.path(LOW), "the file with the start of the spool is missing")
        return low


def make_spool(files: Files, destination: str, *, shared: bool = False) -> Spool:
    """Return the spool in a folder; create one if the folder is empty or does not exist.

    Args:
        files: the folder.
        destination: the source of its messages.
        shared: whether there are others of one source: its numbers begin anywhere, so that they are not theirs.

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
        first = secrets.randbelow(_RANGES - 1) + 1 << 40 if shared else 0
        files.create(LOW, dump({LOW: first}))
        # Another process may have been first with the mark.
        document["first"] = read_mark(files, LOW)
        files.create(IDENTITY, dump({**document, "salt": secrets.token_hex(4)}))
        found = get_spool(files)
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
    path = files.path(IDENTITY)
    document = read_document(files, IDENTITY)
    if document is None:
        names = sorted(files.list(""))
        # Without others, the mark is that of a spool whose making was interrupted.
        if names in ([], [LOW]):
            return None
        # Another process may have made the spool between the two.
        document = read_document(files, IDENTITY)
    if document is None and LOW in names:
        raise damaged(path, "the file with the spool's identity is missing")
    if document is None:
        raise SpoolError(
            f"the folder is neither empty nor a spool: it holds {', '.join(names[:3])}. Give the spool a folder of its "
            "own",
            path=files.url,
        )
    if document.get("format") != FORMAT or not {"id", "destination", "version"} <= document.keys():
        raise damaged(path, "the file does not belong to a spool")
    if document["version"] != VERSION:
        raise SpoolMismatchError(
            f"it is of version {document['version']}, this program knows {VERSION}", path=files.url
        )
    return Spool(files, document["id"], document["destination"], document.get("first", 0))


def get_spool(files: Files) -> Spool:
    """Return the spool in a folder; raises as `find_spool`, and `SpoolError` if there is none."""
    found = find_spool(files)
    if found is None:
        raise SpoolError(
            f"there is no spool, as {socket.gethostname()} sees it. If it was moved, say where it is now. Each "
            "executor must reach it under this name: use a shared folder",
            path=files.url,
        )
    return found
