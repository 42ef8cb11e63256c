from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import stompy
from stompy.broker import Broker
from stompy.dialects.dialect import DEDUPE_HEADER
from stompy.errors import ConfigurationError, PipelineError
from stompy.spark.replaying import Selection, _Rows, replay
from stompy.spark.schema import arrow_schema

QUEUE = "/queue/again"
START = datetime(2026, 1, 31, 23, 0, tzinfo=timezone.utc)
QUERY = "7d6e-41"


class Archive:
    """An archive as the pipeline writes it; message n was received n minutes after START, from /queue/n."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def batch(
        self,
        number: int,
        *files: Sequence[int],
        query: str = QUERY,
        date: str = "2026-01-31",
        table: str = "messages",
        bodies: dict[int, bytes] | None = None,
        headers: dict[int, dict[str, str]] | None = None,
        timestamps: bool = True,
    ) -> Path:
        """Write a micro-batch: the places of the messages of each file."""
        folder = self.path / f"kind={table}" / f"date={date}" / f"part={query}-{number:09d}"
        folder.mkdir(parents=True)
        for task, places in enumerate(files):
            rows = [
                {
                    "lane": 0, "sequence": place, "message_id": f"ID:{place}", "destination": f"/queue/{place}",
                    "headers": [("kind", str(place % 3)), ("message-id", "x"), *(headers or {}).get(place, {}).items()],
                    "body": (bodies or {}).get(place, b"message %d" % place), "content_type": None,
                    "redelivered": place % 5 == 0, "possible_duplicate": False, "subscription": "0", "broker": "b",
                    "broker_timestamp": START + timedelta(minutes=place) if timestamps else None,
                    "received_at": START + timedelta(minutes=place),
                }
                for place in places
            ]  # fmt: skip
            schema = arrow_schema()
            if table == "bad":
                rows = [{**row, "reason": "the body is not UTF-8"} for row in rows]
                schema = schema.append(pa.field("reason", pa.string()))
            # The task's number stands in front, the rest is drawn.
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / f"part-{task:05d}-x.parquet")
        return folder


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def run(archive: Archive, broker: Broker, *, name: str = "replaying", **options: Any) -> int:
    sink = options.pop("sink", {"destination": QUEUE})
    return replay(
        path=str(archive.path),
        sink={"url": broker.url, **sink},
        checkpoint=str(archive.path.parent / name),
        **options,
    )


def stored(broker: Broker, queue: str = QUEUE) -> list[stompy.Message]:
    count = broker.depth(queue)
    with stompy.connect(broker.url) as connection:
        subscription = connection.subscribe(queue)
        return [subscription.receive(timeout=20) for _ in range(count)]


def places(broker: Broker) -> list[int]:
    return [int(message.body.split()[1]) for message in stored(broker)]


# The order.


def test_messages_come_by_date_micro_batch_and_receipt_whatever_the_age_of_the_files(
    archive: Archive, broker: Broker
) -> None:
    archive.batch(999_999_999, [8, 9], date="2026-02-01")
    archive.batch(1_000_000_000, [10, 11], date="2026-02-01")  # a name that is sorted before the other
    archive.batch(2, [6, 7])
    archive.batch(1, [3, 5], [0, 4], [1, 2])  # as tasks may have cut it
    for age, file in enumerate(sorted(archive.path.rglob("*.parquet"))):
        os.utime(file, (1e9 - age, 1e9 - age))  # the first is the youngest
    assert run(archive, broker) == 12
    assert places(broker) == list(range(12))


def test_of_several_queries_that_which_received_first_comes_first(archive: Archive, broker: Broker) -> None:
    archive.batch(0, [4, 5], query="a-lost")
    archive.batch(1, [6], query="a-lost")
    archive.batch(0, [0, 1], query="z-old")
    archive.batch(1, [2, 3], query="z-old")
    run(archive, broker)
    assert places(broker) == list(range(7))


def test_a_file_out_of_order_is_named_and_not_sent_in_disorder(archive: Archive, broker: Broker) -> None:
    archive.batch(0, [0, 2, 1])
    with pytest.raises(PipelineError, match=r"part-00000-x.parquet is not in the order of receipt"):
        run(archive, broker)


# Which messages.


def test_only_what_is_meant_is_sent(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(40))
    archive.batch(0, range(60, 100), date="2026-02-01", timestamps=False)
    which = Selection(
        since=START + timedelta(minutes=9),
        until=START + timedelta(minutes=70),
        headers={"kind": "0"},
        where=pc.field("destination") != "/queue/12",
    )
    run(archive, broker, selection=which)
    assert places(broker) == [9, *range(15, 40, 3), 60, 63, 66, 69]


def test_files_of_other_dates_are_not_even_opened(archive: Archive, broker: Broker) -> None:
    for day in (30, 31):
        folder = archive.batch(day, [day], date=f"2026-01-{day}")
    (folder / "part-00000-x.parquet").write_bytes(b"damaged")
    midnight = datetime(2026, 1, 31, tzinfo=timezone.utc)
    # In its own zone it is the day before.
    west = midnight.astimezone(timezone(timedelta(hours=-5)))
    run(archive, broker, selection=Selection(until=west - timedelta(microseconds=1)))
    assert run(archive, broker, selection=Selection(since=west + timedelta(days=1))) == 0
    with pytest.raises(PipelineError, match=r"part=7d6e-41-000000031/part-00000-x.parquet cannot be read"):
        run(archive, broker, selection=Selection(since=midnight))


@pytest.mark.parametrize("a_day", [30, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_of_the_files_of_ten_days_those_that_cannot_match_are_not_opened(
    archive: Archive, broker: Broker, monkeypatch: pytest.MonkeyPatch, a_day: int
) -> None:
    damaged = archive.path.parent / "damaged"
    damaged.write_bytes(b"who opens it fails")
    for day in range(1, 11):
        minutes = (START.replace(day=1, month=2, hour=0) - START).total_seconds() / 60 + (day - 1) * 1440
        first = archive.batch(0, [int(minutes)], date=f"2026-02-{day:02}")
        (file,) = first.iterdir()
        for number in range(1, a_day):
            folder = first.parent / f"part={QUERY}-{number:09d}"
            folder.mkdir()
            os.link(file if day == 10 else damaged, folder / file.name)
    scans: list[int] = []
    scanner = _Rows._scanner

    def counted(rows: _Rows, files: list[ds.ParquetFileFragment]) -> ds.Scanner:
        scans.append(len(files))
        return scanner(rows, files)

    monkeypatch.setattr(_Rows, "_scanner", counted)
    midnight = datetime(2026, 2, 10, tzinfo=timezone.utc)
    assert run(archive, broker, selection=Selection(since=midnight)) == a_day
    assert run(archive, broker, name="none", selection=Selection(since=midnight + timedelta(hours=30))) == 0
    assert scans == [a_day], "one for all files, which is what keeps each of them cheap"


def test_rows_that_the_footer_excludes_are_not_read(archive: Archive, broker: Broker) -> None:
    file = archive.batch(0, range(40)) / "part-00000-x.parquet"
    data = bytearray(file.read_bytes())
    data[4:-4000] = bytes(len(data) - 4004)
    file.write_bytes(data)
    assert run(archive, broker, selection=Selection(since=START + timedelta(minutes=40))) == 0
    with pytest.raises(PipelineError, match="cannot be read"):
        run(archive, broker, selection=Selection(since=START + timedelta(minutes=39)))


def test_of_many_files_the_damaged_one_is_named_and_restored_it_is_gone_on_with(
    archive: Archive, broker: Broker
) -> None:
    files = [archive.batch(number, [2 * number, 2 * number + 1]) / "part-00000-x.parquet" for number in range(5)]
    whole = files[3].read_bytes()
    files[3].write_bytes(whole[:4] + bytes(196) + whole[200:])
    with pytest.raises(PipelineError, match=r"part=7d6e-41-000000003/part-00000-x.parquet cannot be read"):
        run(archive, broker, sink={"destination": QUEUE, "transactionSize": "1"})
    assert broker.depth(QUEUE) <= 6  # how much before it, depends on how far files are read ahead
    files[3].write_bytes(whole)
    run(archive, broker)
    assert places(broker) == list(range(10))


def test_a_moment_without_its_time_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        Selection(since=datetime(2026, 1, 1))


def test_messages_that_could_not_be_read_can_be_sent_too(archive: Archive, broker: Broker) -> None:
    archive.batch(0, [0, 2])
    archive.batch(0, [1, 3], table="bad")
    run(archive, broker, bad=True)
    assert places(broker) == [1, 3]
    with pytest.raises(ConfigurationError, match="belongs to another replay, of bad"):
        run(archive, broker)


# What is sent.


def test_ids_tell_copies_and_headers_of_the_old_delivery_are_left_out(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(4))
    for name in ("one", "two"):
        run(archive, broker, name=name)
    messages = stored(broker)
    assert [message.headers["kind"] for message in messages] == ["0", "1", "2", "0"] * 2
    assert len({message.headers[DEDUPE_HEADER] for message in messages}) == 8
    for name in ("three", "four"):
        run(archive, broker, name=name, sink={"destination": QUEUE, "jobId": "nightly"})
    assert len({message.headers[DEDUPE_HEADER] for message in stored(broker)}) == 4
    run(archive, broker, name="five", sink={"destination": QUEUE, "dedup": "none"})
    assert not any(DEDUPE_HEADER in message.headers for message in stored(broker))


def test_without_a_destination_each_message_goes_to_where_it_came_from(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(9))
    assert run(archive, broker, sink={}) == 9
    assert [message.body for message in stored(broker, "/queue/7")] == [b"message 7"]


def test_a_url_is_as_good_as_a_path(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(9))
    sink = {"url": broker.url, "destination": QUEUE}
    assert replay(path=f"{archive.path.as_uri()}/", sink=sink, checkpoint=str(archive.path.parent / "c")) == 9


def test_the_caller_is_called_after_each_transaction(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(10))
    counts: list[int] = []
    run(archive, broker, sink={"destination": QUEUE, "transactionSize": "4"}, on_sent=counts.append)
    assert counts == [4, 8, 10]


# Going on.


def test_a_finished_replay_goes_on_with_what_is_new_also_of_an_earlier_date(archive: Archive, broker: Broker) -> None:
    archive.batch(0, [0, 1])
    archive.batch(1, [4, 5], date="2026-02-01")
    assert run(archive, broker) == 4
    assert run(archive, broker) == 0
    archive.batch(1, [2])  # it was behind midnight that this micro-batch was written
    archive.batch(2, [6], date="2026-02-01")
    assert run(archive, broker) == 2
    assert places(broker) == [0, 1, 4, 5, 2, 6]


def test_after_a_failure_it_goes_on_where_the_broker_had_confirmed(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(10), range(10, 20))
    sink = {"destination": QUEUE, "transactionSize": "3"}

    def full(sent: int) -> None:
        if sent == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(archive, broker, sink=sink, on_sent=full)
    assert run(archive, broker, sink=sink) == 8
    assert places(broker) == list(range(20))


def test_what_was_in_doubt_comes_again_with_the_same_ids(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(10))
    before: list[bytes] = []
    checkpoint = archive.path.parent / "replaying" / "replay.json"
    sink = {"destination": QUEUE, "transactionSize": "4"}
    run(archive, broker, sink=sink, on_sent=lambda sent: before.append(checkpoint.read_bytes()))
    checkpoint.write_bytes(before[1])  # as a kill between the third COMMIT and the note of it leaves it
    assert run(archive, broker, sink=sink) == 2
    copies = Counter(message.headers[DEDUPE_HEADER] for message in stored(broker))
    assert Counter(copies.values()) == {1: 8, 2: 2}


def test_two_replays_cannot_share_a_checkpoint(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(2))

    def another(_: int) -> None:
        with pytest.raises(ConfigurationError, match="another replay is using the checkpoint"):
            run(archive, broker)

    assert run(archive, broker, on_sent=another) == 2


@pytest.mark.parametrize(
    "damaged", [b"", b"[]", b'{"id": "x"}', b"\xff", b'{"id": "x", "table": "messages", "places": 1}']
)
def test_a_damaged_checkpoint_is_an_error(archive: Archive, broker: Broker, damaged: bytes) -> None:
    archive.batch(0, range(2))
    run(archive, broker)
    (archive.path.parent / "replaying" / "replay.json").write_bytes(damaged)
    with pytest.raises(PipelineError, match=r"replaying/replay.json is damaged"):
        run(archive, broker)


def test_a_checkpoint_keeps_its_id(archive: Archive, broker: Broker) -> None:
    archive.batch(0, range(2))
    run(archive, broker)
    with pytest.raises(ConfigurationError, match="belongs to another replay"):
        run(archive, broker, sink={"destination": QUEUE, "jobId": "nightly"})
