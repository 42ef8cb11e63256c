"""Where a query begins that has no checkpoint: by place, and by time."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.errors import ConfigurationError, SpoolMismatchError
from stompy.spark.spool.files import Files
from stompy.spark.spool.spool import get_spool, make_spool
from stompy.spark.spool.writer import SpoolWriter
from tests.spark.source.test_spools import added, query, step
from tests.spark.spool.builders import IMPATIENT, record, seal
from tests.support.seed import chance

if TYPE_CHECKING:
    from stompy.spark.source.engine import StreamEngine

YEAR_2023 = 1_700_000_000_000
"""Milliseconds."""


def begun(engine: StreamEngine) -> list[int]:
    """Return what the first micro-batch of a query has."""
    return step(engine, engine.initial())[1]


def stored_at(path: Path, name: str, segments: list[list[int]]) -> None:
    """Store messages that were received at these milliseconds since `YEAR_2023`; the bodies are their numbers."""
    writer = SpoolWriter(make_spool(Files(str(path / name)), "/queue/a"), patience=IMPATIENT)
    writer.begin(0)
    number = writer.next
    for times in segments:
        rows = [
            record(place, body=str(place).encode())._replace(received_at=(YEAR_2023 + at) * 1000)
            for place, at in enumerate(times, number)
        ]
        number += len(rows)
        writer.confirm(seal(writer, rows))
    writer.close()


def test_a_query_begins_with_the_oldest_messages_or_after_the_last_ones(tmp_path: Path) -> None:
    added(tmp_path, "a", range(3))
    added(tmp_path, "b", range(3, 6))
    for given in ({}, {"startingoffsets": "earliest"}):
        with query(tmp_path, **given) as engine:
            assert begun(engine) == [0, 1, 2, 3, 4, 5]
    with query(tmp_path, startingoffsets="latest") as engine:
        start = engine.initial()
        added(tmp_path, "a", range(6, 8))
        added(tmp_path, "c", range(8, 9))
        assert step(engine, start)[1] == [6, 7, 8], "a spool that is added later is read from its oldest message"
        assert engine.initial() == start, "Spark asks again when it knows the end of the first micro-batch"


def test_it_begins_where_spark_before_4_2_does_not_say_that_it_began(tmp_path: Path) -> None:
    added(tmp_path, "a", range(3))
    with query(tmp_path, startingoffsets="latest") as engine:
        start = engine.initial()
        assert engine.latest(None) == start
        engine.plan(start, start)
    with query(tmp_path) as engine:
        assert engine.latest(None)["next"] == start["next"]


def test_it_begins_with_a_message_of_each_spool(tmp_path: Path) -> None:
    for number, name in enumerate("abcd"):
        added(tmp_path, name, range(10 * number, 10 * number + 5))
    first = {name: get_spool(Files(str(tmp_path / name))).first for name in "abcd"}
    places = {f"{tmp_path}/a": first["a"] + 3, f"file://{tmp_path}/b/": -1, f"{tmp_path}/c": -2}
    with query(tmp_path, startingoffsets=json.dumps(places)) as engine:
        assert begun(engine) == [3, 4, *range(20, 25), *range(30, 35)]


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_message_that_is_not_there_is_refused(tmp_path: Path, wrong: int) -> None:
    added(tmp_path, "a", range(6))
    with query(tmp_path, maxoffsetspertrigger="2") as engine:
        end, _ = step(engine, engine.initial())
        engine.commit(end)
    first = get_spool(Files(str(tmp_path / "a"))).first
    low, after = first + 2, first + 6
    place = low - 1 if wrong < 0 else after + 1
    words = rf"a has no message {place}. Its oldest one is {low}.* will be {after}$"
    with (
        query(tmp_path, startingoffsets=json.dumps({f"{tmp_path}/a": place})) as engine,
        pytest.raises(ConfigurationError, match=words),
    ):
        engine.initial()
    for place, rows in ((low, [2, 3, 4, 5]), (after, [])):
        with query(tmp_path, startingoffsets=json.dumps({f"{tmp_path}/a": place})) as engine:
            assert begun(engine) == rows


def test_a_folder_of_no_spool_is_refused(tmp_path: Path) -> None:
    added(tmp_path, "a", range(3))
    with (
        query(tmp_path, startingoffsets=json.dumps({f"{tmp_path}/b": 0})) as engine,
        pytest.raises(SpoolMismatchError, match="/b: startingOffsets names it, and it is no spool of spoolDir"),
    ):
        engine.initial()


@pytest.mark.parametrize("case", range(20))
def test_it_begins_with_the_first_message_of_a_time_whatever_the_clock_did(tmp_path: Path, case: int) -> None:
    random = chance("starting", case)
    at, segments = 0, []
    for _ in range(random.randrange(1, 8)):
        times = []
        for _ in range(random.randrange(1, 5)):
            at = max(0, at + random.choice((0, 1, 1, 5, -3)))
            times.append(at)
        segments.append(times)
    stored_at(tmp_path, "a", segments)
    times = [one for times in segments for one in times]
    since = random.randrange(max(times) + 2)
    first = next((place for place, one in enumerate(times) if one >= since), len(times))
    with query(tmp_path, startingtimestamp=str(YEAR_2023 + since), startingoffsets="latest") as engine:
        assert begun(engine) == list(range(first, len(times)))


def test_it_is_said_that_messages_of_that_time_may_be_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored_at(tmp_path, "a", [[0, 1, 2, 3], [4, 5]])
    with query(tmp_path, maxoffsetspertrigger="3") as engine:
        end, _ = step(engine, engine.initial())
        engine.commit(end)
    for since, rows, warned in ((2, [3, 4, 5], True), (4, [4, 5], False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING), query(tmp_path, startingtimestamp=str(YEAR_2023 + since)) as engine:
            assert begun(engine) == rows
        assert any("earlier ones were processed and removed" in text for text in caplog.messages) == warned


def test_damaged_segments_are_skipped_where_they_are_no_error(tmp_path: Path) -> None:
    stored_at(tmp_path, "a", [[0, 1], [2, 3], [4, 5]])
    damaged = sorted((tmp_path / "a").glob("seg-*"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with query(tmp_path, startingtimestamp=str(YEAR_2023 + 2), failondataloss="false") as engine:
        assert begun(engine) == [4, 5]
