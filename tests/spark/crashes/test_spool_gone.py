"""The spool, or part of it, is gone, cut or full under a query: it fails by name, and goes on when that is fixed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from tests.spark.dataframes import needs_available_now, run_once, stream, written
from tests.spark.receiver.helpers import QUEUE, eventually, fill, receiving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    needs_available_now,
    pytest.mark.timeout(150),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def segments(path: Path) -> list[Path]:
    return sorted((path / "spool").glob("seg-*"))


def spooled(broker: Broker, path: Path, count: int) -> None:
    """Fill a spool with segments of ten messages, and no query yet."""
    fill(broker.url, range(count))
    with receiving(broker, path, prefetch="10") as pool:
        eventually(lambda: pool.writer.settled == count)
    assert len(segments(path)) >= count // 10


@pytest.mark.hard_case("T12")
def test_a_checkpoint_without_its_spool_fails_and_a_spool_without_its_checkpoint_begins_at_its_oldest_message(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    fill(broker.url, range(100))
    # Two batches of 60 and 40: the first one is removed when the second one is planned, the second one never.
    run_once(stream(stomp, broker, tmp_path, maxOffsetsPerTrigger="60", idleTimeout="1.5"), tmp_path)
    assert written(stomp, tmp_path) == list(range(100))
    shutil.copytree(tmp_path / "spool", tmp_path / "kept")
    shutil.rmtree(tmp_path / "spool")
    with pytest.raises(Exception, match=r"the checkpoint was made with spool .*start with a new checkpoint"):
        run_once(stream(stomp, broker, tmp_path, idleTimeout="1.5"), tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copytree(tmp_path / "kept", again / "spool")
    run_once(stream(stomp, broker, again, idleTimeout="1.5"), again)
    assert written(stomp, again) == list(range(60, 100))


@pytest.mark.hard_case("T13")
def test_a_segment_that_was_deleted_or_truncated_fails_the_query_by_name(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    spooled(broker, tmp_path, 30)
    middle = segments(tmp_path)[1]
    whole = middle.read_bytes()
    middle.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Exception, match=r"the segment is damaged or truncated .*failOnDataLoss=false") as caught:
        run_once(stream(stomp, broker, tmp_path, receivers="0", idleTimeout="1.5"), tmp_path)
    assert "SpoolDamagedError" in str(caught.value)
    assert str(middle) in str(caught.value)
    middle.unlink()
    with pytest.raises(Exception, match=r"the segments with the messages 10 to 19 .*failOnDataLoss=false"):
        run_once(stream(stomp, broker, tmp_path, idleTimeout="1.5"), tmp_path)
    run_once(stream(stomp, broker, tmp_path, idleTimeout="1.5", failOnDataLoss="false"), tmp_path)
    assert written(stomp, tmp_path) == [*range(10), *range(20, 30)]


@pytest.mark.hard_case("T16")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_fails_the_query_and_it_goes_on_when_there_is_room(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    small = tmp_path / "spool"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        with connect(broker.url) as connection:
            for number in range(60):
                connection.send(QUEUE, b"%d" % number, headers={"n": number, "filling": "x" * 40_000}, confirm=True)
        given = {"dedupHeader": "n", "prefetch": "10", "spoolDir": str(small / "spool")}
        with pytest.raises(Exception, match="no space left on the disk"):
            run_once(stream(stomp, broker, tmp_path, **given), tmp_path)
        held = sum(int(one.name.split("-")[2]) for one in (small / "spool").glob("seg-*"))
        assert 0 < held < 60
        eventually(lambda: broker.depth(QUEUE) >= 60 - held)  # what is not in the spool is not acknowledged
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        run_once(stream(stomp, broker, tmp_path, idleTimeout="1", **given), tmp_path)
        assert written(stomp, tmp_path) == list(range(60))
        eventually(lambda: broker.depth(QUEUE) == 0)
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)  # a query that failed may still hold it
