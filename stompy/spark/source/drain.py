"""The driver's side of a batch read: receives messages once, into a spool of its own below `spoolDir`.

When Spark plans the first action, the driver receives until the queue counts as empty, then writes the mark `done`;
tasks only read. Later actions on the same DataFrame find `done` and read the same rows. Without `done`, a read
continues where a previous process stopped. Of two concurrent reads, one waits for the other: the spool is claimed until
it has the mark, so that no message is received after the count.
"""

from __future__ import annotations

import itertools
import math
import sys
from contextlib import closing, suppress
from dataclasses import replace

from stompy.connection.connection import Connection
from stompy.connection.message import Message, header_table
from stompy.errors import ConfigurationError, ReceiveTimeoutError
from stompy.spark.option_tables import BatchOptions
from stompy.spark.receivers import ReceiverPool
from stompy.spark.source.admission import split
from stompy.spark.spool.claims import READER, Claim, ClaimTimeouts
from stompy.spark.spool.files import Files, read_mark, write_mark
from stompy.spark.spool.index import Piece
from stompy.spark.spool.record import now_us, records_of
from stompy.spark.spool.spool import Spool, make_spool
from stompy.spark.spool.view import SpoolView
from stompy.spark.spool.writer import SpoolWriter

DONE = "done"
"""The mark of a finished read: the number of its messages."""
MOST_BROWSED = (1 << 31) - 1
"""Bytes of browsed messages, which are one segment: Arrow's limit for a column."""
_OTHER_TIMEOUT = 3600.0
"""Seconds to wait for another process that executes the same read."""


def read_folder(options: BatchOptions, load: str) -> str:
    """Return the folder of a read.

    Args:
        options: of the read.
        load: the id of this `load()`, for a read without `readId`.
    """
    return f"{options.spool_dir[0].rstrip('/')}/read-{options.read_id or load}"


def drain(options: BatchOptions, load: str) -> tuple[Spool, list[list[Piece]]]:
    """Receive the messages, unless that was done before; return their spool, and the pieces for each task.

    All messages are in the spool before a task reads the first row, as Spark may end a task at any time.

    Raises:
        StompError: the broker cannot be reached, or the spool cannot be used.
    """
    spool = make_spool(Files(read_folder(options, load)), options.origin)
    end = read_mark(spool.files, DONE)
    if end is None:
        end = _taken(options, spool)
    pieces = list(SpoolView(spool).index.pieces(0, end, spool=spool.identity))
    return spool, split(pieces, max_parts=options.num_partitions)


def _taken(options: BatchOptions, spool: Spool) -> int:
    """Receive messages, unless another process has done that meanwhile; return the number of messages in the spool."""
    claim = Claim(spool.files, patience=ClaimTimeouts(wait=_OTHER_TIMEOUT, frozen=math.inf), role=READER)
    try:
        end = read_mark(spool.files, DONE)
        if end is None:
            end = _browse(options, spool) if options.browse else _receive(options, spool)
            write_mark(spool.files, DONE, end)
        return end
    finally:
        claim.release()


def _receive(options: BatchOptions, spool: Spool) -> int:
    most = options.max_messages or sys.maxsize
    asked = replace(
        options,
        prefetch=min(options.prefetch, most),
        # One, so that those that are taken are the first.
        receivers=options.receivers if options.max_messages is None else 1,
        max_spool_bytes=sys.maxsize,
    )
    pool = ReceiverPool(asked, spool, until=most)
    try:
        pool.watch(lambda: 0.0 if pool.writer.next >= most else options.idle_timeout - pool.quiet_for())
    finally:
        pool.stop()
    return pool.writer.next


def _browse(options: BatchOptions, spool: Spool) -> int:
    """Copy messages into the spool without consuming them; raises `ConfigurationError` if the broker cannot browse."""
    with closing(SpoolWriter(spool)) as writer:
        if not writer.next:
            with closing(options.connect(name="spark-browse")) as connection:
                _copy(connection, options, writer)
        return writer.next


def _copy(connection: Connection, options: BatchOptions, writer: SpoolWriter) -> None:
    """Store messages in one segment, so that a read that is killed begins again."""
    waiting: list[Message] = []
    for destination in options.destination:
        browsed = connection.browse(
            destination, selector=options.selector, headers=options.subscribe_headers, timeout=options.idle_timeout
        )
        left = None if options.max_messages is None else options.max_messages - len(waiting)
        # The broker marks the end of the queue; the timeout is for one that does not.
        with suppress(ReceiveTimeoutError):
            waiting.extend(itertools.islice(browsed, left))
    if sum(message.size for message in waiting) > MOST_BROWSED:
        raise ConfigurationError("option browse: there are more than 2 GiB of messages; set maxMessages or a selector")
    if waiting:
        table = header_table(waiting)
        rows = records_of(waiting, table, None, broker=connection.address, received_at=now_us())
        writer.begin(0)
        # Confirmed at once: nothing is acknowledged or redelivered.
        writer.confirm(writer.store(0, rows))
