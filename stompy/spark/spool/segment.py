"""Encode and decode segments: Arrow IPC files; the schema's metadata has the spool's identity and sequence numbers."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa

from stompy.errors import SpoolDamagedError, SpoolMismatchError
from stompy.spark.schema import stored_schema
from stompy.spark.spool.index import Segment
from stompy.spark.spool.record import Record

_SCHEMA = stored_schema()
_VERSION = b"3"
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
    columns = {"sequence": pa.array(range(first, first + len(records)), pa.int64())}
    for field in _SCHEMA:
        if field.name not in columns:
            columns[field.name] = pa.array([getattr(one, field.name) for one in records], field.type)
    batch = pa.RecordBatch.from_arrays([columns[field.name] for field in _SCHEMA], schema=_SCHEMA)
    return join([batch], spool=spool, first=first, epoch=epoch)


def join(
    batches: Sequence[pa.RecordBatch], *, spool: str, first: int, epoch: int, merged: Sequence[Segment] = ()
) -> tuple[Segment, bytes]:
    """Return the segment of some batches, as `decode` returns them, and the bytes of its file.

    Args:
        batches: in order.
        spool: its identity.
        first: the sequence number of the first row.
        epoch: of the writer's claim.
        merged: the segments that had these batches; offsets may have their digests.
    """
    (batch,) = pa.Table.from_batches(batches, _SCHEMA).combine_chunks().to_batches()
    schema = _SCHEMA.with_metadata({
        "stompy.version": _VERSION, "stompy.spool": spool,
        "stompy.first": str(first), "stompy.count": str(batch.num_rows), "stompy.epoch": str(epoch),
        "stompy.merged": " ".join(segment.digest for segment in merged),
    })  # fmt: skip
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    data = sink.getvalue().to_pybytes()
    return Segment(first, batch.num_rows, epoch, digest_of(data), len(data)), data


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
    if digest_of(data) != segment.digest:
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


def merged_digests(data: bytes) -> list[str]:
    """Return the digests of the segments that a segment was merged from.

    Args:
        data: the whole file, which `decode` accepts.
    """
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        return (reader.schema.metadata or {}).get(b"stompy.merged", b"").decode().split()


def digest_of(data: bytes) -> str:
    """Return the checksum for the file name."""
    return blake2b(data, digest_size=8).hexdigest()


def _check_origin(metadata: dict[bytes, bytes], segment: Segment, spool: str, path: str) -> None:
    fields = {name: metadata.get(f"stompy.{name}".encode(), b"").decode() for name in ("version", "spool", "first")}
    if fields["version"] != _VERSION.decode():
        raise SpoolMismatchError(
            f"the segment is of version {fields['version'] or '?'}, this program knows {_VERSION.decode()}", path=path
        )
    if fields["spool"] != spool:
        raise SpoolMismatchError(
            f"the segment belongs to spool {fields['spool']}, not to spool {spool}; move it out of the folder",
            path=path,
        )
    if fields["first"] != str(segment.first):
        raise SpoolMismatchError("the segment was renamed: its sequence numbers do not match its name", path=path)
