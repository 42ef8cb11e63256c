"""Replay an archive to a destination: in order, resumable, with an optional rate limit. Needs pyarrow, but not Spark.

Messages are sent by date, within a date by micro-batch, and within a micro-batch in the order of receipt. Where several
queries have written to one archive, the one that received first on a date comes first there.

A query writes its micro-batches of a date in the order of their numbers. So one position for each date and query is
enough to resume, and messages that are archived later are found by the next run, whatever their date. The positions are
written to the checkpoint after each confirmed transaction; messages whose outcome is unknown are resent with the same
ids.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from stompy.errors import ConfigurationError, PipelineError
from stompy.spark.option_tables import SinkOptions
from stompy.spark.sink.publisher import Publisher
from stompy.spark.sink.rows import Columns, Outgoing
from stompy.spark.spool.files import Files
from stompy.world import uuid

MESSAGES, BAD = "messages", "bad"
"""The kinds of an archive: valid and invalid messages."""

_SENT = (("body", "binary"), ("headers", "map<string,string>"), ("content_type", "string"))
_DESTINATION = ("destination", "string")
_ROWS = 1000
"""Rows that are decoded at once."""
_PLACES = "replay.json"

Position = tuple[int, ...]
"""The number of a micro-batch, then the sequence number of a row."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages of an archive to send; by default all.

    Attributes:
        since: earliest time, by the broker's timestamp or, if there is none, by the time of receipt.
        until: time before which messages are sent.
        headers: required headers and their values.
        where: a condition on the columns of the archive, such as `pyarrow.compute.field("redelivered")`.
    """

    since: datetime | None = None
    until: datetime | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    where: pc.Expression | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise ConfigurationError(f"{name} must have a time zone: {moment.isoformat()}+00:00 for UTC")

    def condition(self) -> pc.Expression:
        """Return one condition for pyarrow, which uses it to skip whole dates and parts of files."""
        found = pc.scalar(True)
        if self.since is not None:
            moment, date = _moment(self.since)
            found &= (pc.field("date") >= date) & _timed(lambda column: column >= moment)
        if self.until is not None:
            moment, date = _moment(self.until)
            found &= (pc.field("date") <= date) & _timed(lambda column: column < moment)
        for name, value in self.headers.items():
            found &= pc.map_lookup(pc.field("headers"), pa.scalar(name), "first") == pa.scalar(value)
        return found if self.where is None else found & self.where


def _moment(moment: datetime) -> tuple[pa.Scalar[Any], pa.Scalar[Any]]:
    utc = moment.astimezone(timezone.utc)
    return pa.scalar(utc, pa.timestamp("us", tz="UTC")), pa.scalar(utc.date().isoformat())


def _timed(fits: Callable[[pc.Expression], pc.Expression]) -> pc.Expression:
    # Not coalesce(), which would keep pyarrow from using the statistics of a file.
    sent, received = pc.field("broker_timestamp"), pc.field("received_at")
    return fits(sent) | (sent.is_null() & fits(received))


def replay(
    *,
    path: str,
    sink: Mapping[str, str],
    checkpoint: str,
    selection: Selection | None = None,
    bad: bool = False,
    on_sent: Callable[[int], None] = lambda _: None,
) -> int:
    """Send an archive; return when the broker has confirmed all messages that it had at the start.

    Args:
        path: the folder of the archive, or a URL that pyarrow supports.
        sink: options of the sink `stomp`, such as `rateLimit`, and `jobId` as part of the dedupe ids. Without
            `destination`, each message is sent to its original destination.
        checkpoint: the folder for the progress; a replay with an existing checkpoint continues from there.
        selection: the messages to send; `None` sends all.
        bad: whether to send the invalid messages instead of the valid ones.
        on_sent: called after each transaction, in this thread, with the number of messages sent so far.

    Returns:
        The number of messages sent.

    Raises:
        ConfigurationError: an option is invalid, there is no archive, or another replay uses the checkpoint.
        PipelineError: a file of the archive or the checkpoint cannot be read.
        PublishError: the broker rejected messages, has stopped reading, or is unreachable.
        SpoolError: the checkpoint cannot be written.
    """
    table = BAD if bad else MESSAGES
    options = SinkOptions.of(sink)
    condition = (selection or Selection()).condition()
    archive = _archive(f"{path.rstrip('/')}/kind={table}")
    files = Files(checkpoint)
    files.make_folder("")
    lock = files.lock("lock")
    if lock is None:
        raise ConfigurationError(f"another replay is using the checkpoint {checkpoint}")
    try:
        progress = _Progress.read(files, table, options.job_id)
        rows = _Rows(archive, condition, progress, options)
        with closing(Publisher(options, name="replay")) as publisher:

            def confirmed() -> None:
                progress.write(files)
                on_sent(publisher.confirmed)

            publisher.publish(rows.messages(), confirmed)
            return publisher.confirmed
    finally:
        lock.release()


def _archive(folder: str) -> ds.Dataset:
    named = ds.partitioning(pa.schema([("date", pa.string()), ("part", pa.string())]), flavor="hive")
    try:
        found = ds.dataset(folder, format="parquet", partitioning=named)
    except (OSError, pa.ArrowInvalid) as error:
        raise ConfigurationError(f"there is no archive in {folder}: {error}") from error
    missing = {"sequence", "received_at", *(name for name, _ in (*_SENT, _DESTINATION))} - set(found.schema.names)
    if missing:
        raise ConfigurationError(f"there is no archive in {folder}: no column {', '.join(sorted(missing))}")
    return found


@dataclass(slots=True)
class _Progress:
    """The progress of a replay.

    Attributes:
        id: part of the dedupe ids.
        table: the kind, `messages` or `bad`.
        places: the position of the last message taken, by date and query.
    """

    id: str
    table: str
    places: dict[str, Position] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Files, table: str, named: str | None) -> _Progress:
        """Return the stored progress, or a new one with the id `named`, or a random id."""
        data = files.read(_PLACES)
        if data is None:
            progress = cls(named or uuid.uuid4().hex, table)
            progress.write(files)
            return progress
        try:
            found = json.loads(data)
            progress = cls(found["id"], found["table"], {name: tuple(at) for name, at in found["places"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(f"{files.url}/{_PLACES} is damaged: restore it, or use a new checkpoint") from error
        if progress.table != table or named not in (None, progress.id):
            raise ConfigurationError(
                f"the checkpoint {files.url} belongs to another replay, of {progress.table} with the id "
                f"{progress.id}: use a new one"
            )
        return progress

    def write(self, files: Files) -> None:
        files.write(_PLACES, json.dumps({"id": self.id, "table": self.table, "places": self.places}).encode())


@dataclass(frozen=True, slots=True)
class _Folder:
    """The files of one micro-batch and one date."""

    date: str
    query: str
    batch: int
    files: tuple[ds.ParquetFileFragment, ...]

    @property
    def name(self) -> str:
        """The key of its position."""
        return f"{self.date}/{self.query}"

    def first_receipt(self) -> datetime:
        found: datetime = min(file.head(1, columns=["received_at"])["received_at"][0].as_py() for file in self.files)
        return found


class _Rows:
    """The selected messages of an archive that are not sent yet, in order."""

    def __init__(
        self, archive: ds.Dataset, condition: pc.Expression, progress: _Progress, options: SinkOptions
    ) -> None:
        columns = _SENT if options.destination is not None else (*_SENT, _DESTINATION)
        self._names = [name for name, _ in columns]
        self._columns = Columns(columns, destination=options.destination)
        self._archive = archive
        self._condition = condition
        self._progress = progress
        self._ids = options.dedup != "none"

    def messages(self) -> Iterator[Outgoing]:
        """Yield each message, after recording its position."""
        places = self._progress.places
        for folder, place, message in self._rows():
            if place > places.get(folder.name, ()):
                places[folder.name] = place
                yield message

    def _rows(self) -> Iterator[_Row]:
        done = {name: place[0] for name, place in self._progress.places.items()}
        folders = (one for one in _in_order(self._archive, self._condition) if one.batch >= done.get(one.name, 0))
        # Consecutive single files are read by one scan, at half the cost of one scan for each.
        for alone, some in groupby(folders, key=lambda folder: len(folder.files) == 1):
            if alone:
                yield from self._read([(folder, folder.files[0]) for folder in some])
            else:
                for folder in some:
                    files = (self._read([(folder, file)]) for file in folder.files)
                    yield from heapq.merge(*files, key=lambda row: row[1])

    def _read(self, files: list[tuple[_Folder, ds.ParquetFileFragment]]) -> Iterator[_Row]:
        """Yield the rows of files, in the given order."""
        at = {file.path: number for number, (_, file) in enumerate(files)}
        last: tuple[int, Position] = (0, ())
        try:
            for tagged in self._scanner([file for _, file in files]).scan_batches():
                batch, number = tagged.record_batch, at[tagged.fragment.path]
                folder = files[number][0]
                numbers = batch.column("sequence").to_pylist()
                messages = self._columns.messages([batch.select(self._names)])
                for sequence, message in zip(numbers, messages, strict=True):
                    place = (folder.batch, sequence)
                    if (number, place) < last:
                        raise PipelineError(f"{tagged.fragment.path} is not in the order of receipt")
                    last = number, place
                    identity = f"{self._progress.id}/{folder.query}-{folder.batch:09d}/{sequence}"
                    yield folder, place, replace(message, dedup_id=identity if self._ids else None)
        except (OSError, pa.ArrowInvalid) as error:
            damaged = next((file.path for _, file in files[last[0] :] if self._is_damaged(file)), "the archive")
            raise PipelineError(f"{damaged} cannot be read: {str(error).splitlines()[0]}") from error

    def _scanner(self, files: list[ds.ParquetFileFragment]) -> ds.Scanner:
        archive = self._archive
        return ds.FileSystemDataset(files, archive.schema, archive.format, archive.filesystem).scanner(
            columns=["sequence", *self._names],
            filter=self._condition,
            batch_size=_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )

    def _is_damaged(self, file: ds.ParquetFileFragment) -> bool:
        try:
            for _ in self._scanner([file]).to_batches():
                pass
        except (OSError, pa.ArrowInvalid):
            return True
        return False


_Row = tuple[_Folder, Position, Outgoing]


def _in_order(archive: ds.Dataset, condition: pc.Expression) -> Iterator[_Folder]:
    """Yield the folders that may have selected messages, in order."""
    files: defaultdict[tuple[str, str, int], list[ds.ParquetFileFragment]] = defaultdict(list)
    for file in archive.get_fragments(filter=condition):
        keys = ds.get_partition_keys(file.partition_expression)
        query, _, batch = str(keys.get("part")).rpartition("-")
        if "date" not in keys or not batch.isdecimal():
            raise PipelineError(f"{file.path} is not a file of an archive")
        files[keys["date"], query, int(batch)].append(file)
    folders = [_Folder(*key, tuple(found)) for key, found in sorted(files.items(), key=lambda item: item[0])]
    for _, of_date in groupby(folders, key=lambda folder: folder.date):
        queries = [list(of_query) for _, of_query in groupby(of_date, key=lambda folder: folder.query)]
        if len(queries) > 1:
            queries.sort(key=lambda folders: (folders[0].first_receipt(), folders[0].query))
        yield from chain.from_iterable(queries)
