from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stompy.errors import SpoolDamaged
from stompy.spark.spool import suspects
from stompy.spark.spool.files import LocalFiles
from stompy.spark.spool.segment import Origin, decode, encode
from stompy.spark.spool.suspects import Identifier, Suspects
from tests.spark.spool.making import record, records

LANE = "lane-0"


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path))


def test_they_outlive_the_process(files: LocalFiles) -> None:
    Suspects(files, LANE).save({"a": "1", "b": "2"})
    again = Suspects(files, LANE)
    assert ("a", "1") in again
    assert ("a", "2") not in again
    assert ("c", "1") not in again
    assert len(again) == 2


def test_those_that_came_again_are_forgotten_and_their_file_with_the_last(files: LocalFiles) -> None:
    known = Suspects(files, LANE)
    known.save({"a": "1", "b": "2"})
    known.settle(["a"])
    assert ("a", "1") not in known
    assert len(files.list(f"{LANE}/suspects")) == 1
    known.settle(["b"])
    assert files.list(f"{LANE}/suspects") == []


def test_they_end_after_a_day(files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    Suspects(files, LANE).save({"a": "1"})
    monkeypatch.setattr(suspects, "KEPT_FOR", -1.0)
    assert len(Suspects(files, LANE)) == 0
    assert files.list(f"{LANE}/suspects") == []


def test_a_damaged_file_of_them_is_named(files: LocalFiles) -> None:
    Suspects(files, LANE).save({"a": "1"})
    (entry,) = files.list(f"{LANE}/suspects")
    files.write(f"{LANE}/suspects/{entry.name}", b"{}")
    with pytest.raises(SpoolDamaged, match=entry.name):
        Suspects(files, LANE)


def test_the_same_id_with_another_content_is_another_message() -> None:
    identifier = Identifier()
    assert identifier.of(record(1)) == identifier.of(record(1))
    assert identifier.of(record(1)) != identifier.of(record(1, body=b"other"))


def test_artemis_writes_its_consumer_into_the_id_and_another_one_in_each_session() -> None:
    identifier = Identifier()
    first, again, other = (record(1, headers={"message-id": identity}) for identity in ("38,24", "46,24", "38,26"))
    assert identifier.of(first) == identifier.of(again)
    assert identifier.of(first) != identifier.of(other)


def test_the_same_number_at_another_moment_is_another_message() -> None:
    identifier = Identifier()
    early, late = (replace(record(1), broker_timestamp=moment) for moment in (1_000, 2_000))
    assert identifier.of(early) != identifier.of(late)


@pytest.mark.parametrize("header", [None, "dedup"])
def test_a_message_and_its_row_are_identified_alike(header: str | None) -> None:
    identifier = Identifier(header)
    rows = [
        *records(range(2)),
        replace(record(2, headers={"message-id": "7,2"}), broker_timestamp=1_700_000_000_123_000),
    ]
    rows.append(record(3, headers={"dedup": "x"}))
    segment, data = encode(rows, origin=Origin("s", 0), first=0, epoch=1)
    batch = decode(data, segment, origin=Origin("s", 0), path="")
    pairs = [identifier.of(row) for row in rows]
    assert identifier.of_batch(batch) == dict(pair for pair in pairs if pair is not None)
    assert (header is None) is (len([pair for pair in pairs if pair is not None]) == 4)
