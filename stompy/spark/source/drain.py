"""What a task of a batch read does: takes messages into a lane of the read's own spool, once, and reads them from
there.

A read has a spool of its own below `spoolDir`, and each of its tasks a lane. A task receives until the queue counts as
empty, leaves the file `done` and yields. Every later attempt, and every later action on the same DataFrame, finds
`done` and reads the same rows. One that finds a lane without it goes on where its predecessor died. Two at once wait
for each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from stompy.connection.connection import Connection
from stompy.connection.message import Message
from stompy.deadline import Deadline
from stompy.errors import NotConnected, ReceiveTimeout, SpoolBusy, SpoolError
from stompy.spark.receiver.crew import ThreadCrew
from stompy.spark.source.reading import read_pieces
from stompy.spark.source_options import BatchOptions, SpoolOptions
from stompy.spark.spool.claims import Patience
from stompy.spark.spool.files import Files
from stompy.spark.spool.lane import LaneWriter, make_lane
from stompy.spark.spool.names import lane_folder
from stompy.spark.spool.record import now_us, record_of
from stompy.spark.spool.spool import Spool, make_spool, open_files
from stompy.spark.spool.state import dump, path_of, read_document
from stompy.spark.spool.view import LaneView

_PATIENCE = Patience(wait=1.0)
"""With another attempt, before a look whether it is done."""
_OTHER_ATTEMPT = 3600.0
"""Seconds to wait for another attempt of the same task, which is at it."""


def read_folder(options: BatchOptions, load: str) -> str:
    """Return the folder of a read.

    Args:
        options: what was asked.
        load: an id of this `load()`, for a read that has no `readId`.
    """
    return f"{options.spool_dir.rstrip('/')}/read-{options.read_id or load}"


def make_read(options: BatchOptions, load: str) -> Spool:
    """Return the spool of a read, made if it is not there; raises as `make_spool`."""
    return make_spool(open_files(read_folder(options, load)), options.destination)


def drain(options: BatchOptions, spool: Spool, lane: int) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one task, taken from the broker if that was not done yet; on an executor.

    Everything is in the spool before the first row leaves: Spark may end a task in the middle of a row.

    Raises:
        StompError: the broker cannot be reached, or the spool cannot be used.
    """
    text = options.invalid_text if options.body_as == "text" else None
    end = _end_of(spool.files, lane)
    if end is None:
        end = _taken(options, spool, lane)
    view = LaneView(spool.files, spool.origin(lane))
    pieces = view.snapshot(lambda index: index.pieces(0, end))
    return read_pieces(spool.files.url, spool.identity, pieces, text=text)


def limit_of(options: BatchOptions, lane: int) -> int | None:
    """Return how many messages a task takes at most, so that all together take `maxMessages`."""
    if options.max_messages is None:
        return None
    whole, rest = divmod(options.max_messages, options.num_partitions)
    return whole + (lane < rest)


def _taken(options: BatchOptions, spool: Spool, lane: int) -> int:
    """Take messages into a lane, and return how many it then has."""
    deadline = Deadline(_OTHER_ATTEMPT)
    while True:
        try:
            end = _browse(options, spool, lane) if options.browse else _receive(options, spool, lane)
        except SpoolBusy:
            if deadline.expired:
                raise
        else:
            return _finish(spool.files, lane, end)
        found = _end_of(spool.files, lane)
        if found is not None:
            return found


def _receive(options: BatchOptions, spool: Spool, lane: int) -> int:
    limit = limit_of(options, lane)
    if limit == 0:
        return 0
    crew = ThreadCrew(_as_spool(options), spool, first=lane, limit=limit)
    try:
        crew.watch(lambda: 0.0 if crew.finished else options.idle_timeout - crew.quiet_for())
        crew.check()
    finally:
        crew.stop()
    return crew.writers[0].next


def _browse(options: BatchOptions, spool: Spool, lane: int) -> int:
    """Copy messages into the lane and leave them in the queue; raises `ConfigurationError` where a broker cannot."""
    writer = LaneWriter(spool.files, spool.origin(lane), patience=_PATIENCE)
    connection: Connection | None = None
    try:
        limit = limit_of(options, lane) if lane == 0 else 0
        if writer.next or limit == 0:
            return writer.next
        connection = options.broker.connect(name=f"spark-browse-{lane}")
        _copy(connection, options, writer, limit)
        return writer.next
    finally:
        if connection is not None:
            connection.disconnect()
        writer.close()


def _copy(connection: Connection, options: BatchOptions, writer: LaneWriter, limit: int | None) -> None:
    subscription = connection.subscribe(
        options.destination, browse=True, selector=options.selector, headers=options.subscribe_headers
    )
    waiting: list[Message] = []
    # The broker marks the end of the queue; the wait is for one that forgets to.
    with contextlib.suppress(ReceiveTimeout, NotConnected):
        while limit is None or len(waiting) < limit:
            waiting.append(subscription.receive(options.idle_timeout))
    now = now_us()
    records = [record_of(one, broker=connection.address, received_at=now) for one in waiting]
    for start in range(0, len(records), options.segment_max_messages):
        writer.seal(records[start : start + options.segment_max_messages])


def _end_of(files: Files, lane: int) -> int | None:
    """Return how many messages a finished lane has, `None` for one that is not finished."""
    document = read_document(files, f"{lane_folder(lane)}/done")
    return None if document is None else int(document["end"])


def _finish(files: Files, lane: int, end: int) -> int:
    name = f"{lane_folder(lane)}/done"
    make_lane(files, lane_folder(lane))
    if not files.create(name, dump({"end": end})):
        found = _end_of(files, lane)
        if found is None:
            raise SpoolError("the file that says that the read is done came and went", path=path_of(files, name))
        return found
    return end


def _as_spool(options: BatchOptions) -> SpoolOptions:
    """Return the options of a receiver for one task."""
    return SpoolOptions(
        broker=options.broker,
        destination=options.destination,
        spool_dir=options.spool_dir,
        subscribe_headers=options.subscribe_headers,
        selector=options.selector,
        durable=None,
        prefetch=options.prefetch,
        receivers=1,
        receiver_mode="thread",
        segment_max_messages=options.segment_max_messages,
        segment_max_bytes=options.segment_max_bytes,
        max_spool_messages=None,
        max_spool_bytes=None,
        broker_timeout=options.broker_timeout,
        dedup_header=options.dedup_header,
        message_ids=options.message_ids,
        fail_on_data_loss=True,
        lock_timeout=_PATIENCE.wait,
        take_over_after=_PATIENCE.frozen,
    )
