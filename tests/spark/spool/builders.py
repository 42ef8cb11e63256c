"""Rows and spools for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.files import Files
from stompy.spark.spool.record import Identifier, Identity, Record
from stompy.spark.spool.redelivery import StoredRange
from stompy.spark.spool.spool import get_spool, make_spool
from stompy.spark.spool.view import SpoolView
from stompy.spark.spool.writer import SpoolWriter

IMPATIENT = ClaimTimeouts(wait=0.0, frozen=60.0)
RECEIVED_AT = 1_700_000_000_000_000


def record(number: int, *, body: bytes | None = None, headers: dict[str, str] | None = None) -> Record:
    fields = {"message-id": f"id-{number}", "destination": "/queue/a", **(headers or {})}
    return Record(
        message_id=fields["message-id"],
        destination="/queue/a",
        names=list(fields),
        values=tuple(fields.values()),
        body=f"body {number}".encode() if body is None else body,
        content_type=None,
        redelivered=False,
        broker_timestamp=None,
        received_at=RECEIVED_AT + number,
        subscription="1",
        broker="stomp://broker:61613",
    )


def records(numbers: Iterable[int]) -> list[Record]:
    return [record(number) for number in numbers]


def spool_files(path: Path) -> Files:
    files = Files(str(path))
    make_spool(files, "/queue/a")
    return files


def spool_writer(files: Files, *, fail_on_loss: bool = True, patience: ClaimTimeouts = IMPATIENT) -> SpoolWriter:
    """Return a writer with one session open."""
    writer = SpoolWriter(make_spool(files, "/queue/a"), patience=patience, fail_on_loss=fail_on_loss)
    writer.begin(0)
    return writer


def identity_of(identifier: Identifier, row: Record) -> Identity | None:
    """Return the identity of a message."""
    value = dict(zip(row.names, row.values, strict=True)).get(identifier.header)
    return identifier.identify(value, row.message_id, row.destination, row.body, row.broker_timestamp)


def seal(writer: SpoolWriter, rows: Sequence[Record], *, receiver: int = 0) -> StoredRange:
    """Make messages durable; they wait for their ACK then."""
    return writer.store(receiver, [row._replace(identity=identity_of(Identifier(), row)) for row in rows])


def settle(writer: SpoolWriter, rows: Sequence[Record]) -> None:
    """Make messages durable, and have their ACK confirmed."""
    writer.confirm(seal(writer, rows))


def known_ids(writer: SpoolWriter) -> int:
    """Return how many ids a writer remembers."""
    return len(writer._redelivery.known)


def ids_in(files: Files) -> list[str]:
    """Return the message ids of a spool in order, as its reader sees them."""
    spool = get_spool(files)
    found: list[str] = []
    for segment in SpoolView(spool).index.segments:
        found += spool.read(segment).column("message_id").to_pylist()
    return found


def segment_names(files: Files) -> list[str]:
    """Return the names of the segments that are there, in order."""
    return sorted(name for name in files.list("") if name.startswith("seg-"))
