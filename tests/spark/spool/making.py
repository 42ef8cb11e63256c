"""Rows and lanes for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stompy.spark.spool.claims import Patience
from stompy.spark.spool.files import Files, LocalFiles
from stompy.spark.spool.lane import LaneWriter, read_segment
from stompy.spark.spool.record import Record
from stompy.spark.spool.segment import Origin
from stompy.spark.spool.spool import make_spool

IMPATIENT = Patience(wait=0.0, frozen=60.0)
RECEIVED_AT = 1_700_000_000_000_000


def record(number: int, *, body: bytes | None = None, headers: dict[str, str] | None = None) -> Record:
    fields = {"message-id": f"id-{number}", "destination": "/queue/a", **(headers or {})}
    return Record(
        message_id=fields["message-id"],
        destination="/queue/a",
        headers=tuple(fields.items()),
        body=f"body {number}".encode() if body is None else body,
        content_type=None,
        redelivered=False,
        possible_duplicate=False,
        broker_timestamp=None,
        received_at=RECEIVED_AT + number,
        subscription="1",
        broker="stomp://broker:61613",
    )


def records(numbers: Iterable[int]) -> list[Record]:
    return [record(number) for number in numbers]


def spool_files(path: Path) -> LocalFiles:
    files = LocalFiles(str(path))
    make_spool(files, "/queue/a")
    return files


def origin_of(files: Files, lane: int = 0) -> Origin:
    return make_spool(files, "/queue/a").origin(lane)


def lane_writer(
    files: Files, *, lane: int = 0, fail_on_loss: bool = True, patience: Patience = IMPATIENT
) -> LaneWriter:
    return LaneWriter(files, origin_of(files, lane), patience=patience, fail_on_loss=fail_on_loss)


def ids_in(files: Files, *, lane: int = 0) -> list[str]:
    """Return the message ids of a lane in the order of its index."""
    writer = lane_writer(files, lane=lane)
    try:
        found: list[str] = []
        for segment in writer.snapshot(lambda index: index.segments):
            found += read_segment(files, origin_of(files, lane), segment).column("message_id").to_pylist()
        return found
    finally:
        writer.close()
