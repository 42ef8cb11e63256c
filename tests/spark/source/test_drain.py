from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.errors import ConfigurationError, SpoolMismatchError
from stompy.spark.option_tables import BatchOptions, batch_options
from stompy.spark.receivers import ReceiverPool
from stompy.spark.source import drain as drain_module
from stompy.spark.source.drain import DONE, drain, read_folder
from stompy.spark.source.reading import read_pieces
from stompy.spark.spool.claims import READER
from stompy.spark.spool.files import Files, read_mark
from tests.spark.receiver.helpers import QUEUE, eventually, fill, url_of
from tests.spark.spool.builders import records, seal, spool_files, spool_writer


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def options(broker: Broker | str, path: Path, **given: str) -> BatchOptions:
    return batch_options({
        "url": url_of(broker), "destination": QUEUE, "spooldir": str(path / "spool"), "idletimeout": "1", **given
    })  # fmt: skip


def taken(options: BatchOptions, *, load: str = "one", column: str = "body") -> list[int]:
    spool, parts = drain(options, load)
    batches = [one for part in parts for one in read_pieces({spool.identity: spool.files.url}, part, array=False)]
    return [int(value) for batch in batches for value in batch.column(column).to_pylist()]


@pytest.mark.hard_case("T19")
def test_it_takes_once_and_gives_the_same_rows_again(broker: Broker, tmp_path: Path) -> None:
    asked = options(broker, tmp_path)
    fill(broker.url, range(500))
    assert taken(asked) == list(range(500))
    assert broker.depth(QUEUE) == 0
    fill(broker.url, range(500, 510))
    assert taken(asked) == list(range(500))
    assert broker.depth(QUEUE) == 10
    assert taken(asked, load="two") == list(range(500, 510))


def test_a_read_with_a_name_outlives_its_load(broker: Broker, tmp_path: Path) -> None:
    asked = options(broker, tmp_path, readid="monday")
    fill(broker.url, range(10))
    assert taken(asked, load="one") == list(range(10))
    assert taken(asked, load="two") == list(range(10))
    assert read_folder(asked, "three").endswith("/read-monday")


@pytest.mark.parametrize("most", [1, 30, 200, 450])
def test_it_takes_no_more_than_its_limit(broker: Broker, tmp_path: Path, most: int) -> None:
    fill(broker.url, range(500))
    assert taken(options(broker, tmp_path, maxmessages=str(most))) == list(range(most))
    eventually(lambda: broker.depth(QUEUE) == 500 - most)


@pytest.mark.parametrize("most", [None, "300"])
def test_several_receivers_take_it_together_and_several_tasks_read_it(
    broker: Broker, tmp_path: Path, most: str | None
) -> None:
    fill(broker.url, range(500))
    limit = {} if most is None else {"maxmessages": most}
    asked = options(broker, tmp_path, receivers="3", numpartitions="4", prefetch="20", **limit)
    assert sorted(taken(asked)) == list(range(500 if most is None else 300))
    assert len(drain(asked, "one")[1]) == 4


@pytest.mark.hard_case("T19")
def test_a_read_goes_on_where_its_predecessor_died(broker: Broker, tmp_path: Path) -> None:
    asked = options(broker, tmp_path)
    dead = spool_writer(spool_files(Path(read_folder(asked, "one"))))
    seal(dead, records(range(3)))
    dead.close()
    fill(broker.url, range(5))
    assert taken(asked, column="sequence") == list(range(8))


def test_an_empty_queue_is_an_empty_table(broker: Broker, tmp_path: Path) -> None:
    assert drain(options(broker, tmp_path, numpartitions="3"), "one")[1] == []


@pytest.mark.hard_case("T19")
def test_of_two_attempts_at_once_one_takes_and_both_read_it(broker: Broker, tmp_path: Path) -> None:
    # By the number of messages, as a busy machine may not receive any within a short time.
    asked = options(broker, tmp_path, maxmessages="100", idletimeout="60")
    fill(broker.url, range(100))
    found: list[list[int]] = []
    attempts = [threading.Thread(target=lambda: found.append(taken(asked))) for _ in range(2)]
    for attempt in attempts:
        attempt.start()
    for attempt in attempts:
        attempt.join()
    assert found == [list(range(100))] * 2


def test_a_read_that_has_received_is_claimed_until_it_counts_as_done(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(broker, tmp_path)
    files = Files(read_folder(asked, "one"))
    stop, locked = ReceiverPool.stop, []

    def stopped(pool: ReceiverPool) -> None:
        stop(pool)
        locked.append((read_mark(files, DONE), files.lock(READER.lock)))

    monkeypatch.setattr(ReceiverPool, "stop", stopped)
    fill(broker.url, range(3))
    assert taken(asked) == list(range(3))
    assert locked == [(None, None)]
    assert read_mark(files, DONE) == 3


def test_a_read_of_another_destination_under_the_same_name_is_refused(broker: Broker, tmp_path: Path) -> None:
    taken(options(broker, tmp_path, readid="x"))
    with pytest.raises(SpoolMismatchError, match="filled from '/queue/a', not from '/queue/b'"):
        taken(options(broker, tmp_path, readid="x", destination="/queue/b"))


def test_browsing_needs_a_broker_that_can(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(3))
    with pytest.raises(ConfigurationError, match="deliver the messages and delete them"):
        taken(options(broker, tmp_path, browse="true", dialect="rabbitmq"))
    assert taken(options(broker, tmp_path / "other", browse="true")) == [0, 1, 2]
    assert broker.depth(QUEUE) == 3


def test_what_is_browsed_is_in_the_spool_at_once_or_not_at_all(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(1500))
    asked = options(broker, tmp_path, browse="true")
    assert taken(asked) == list(range(1500))
    assert len(list(Path(read_folder(asked, "one")).glob("seg-*"))) == 1


def test_more_than_one_segment_can_have_is_not_browsed(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "MOST_BROWSED", 1000)
    fill(broker.url, range(1500))
    with pytest.raises(ConfigurationError, match="set maxMessages"):
        taken(options(broker, tmp_path, browse="true"))
    assert taken(options(broker, tmp_path, browse="true", maxmessages="2")) == [0, 1]
