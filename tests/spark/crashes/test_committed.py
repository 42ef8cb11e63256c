"""Killed where Spark has written down that a batch is done, and the source has not removed it yet, or half of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.receiver.helpers import eventually
from tests.spark.streaming_run import ENOUGH, StreamingRun, Target, owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(240)


def segments(work: StreamingRun) -> list[Path]:
    return sorted((work.path / "spool").glob("seg-*"))


@pytest.mark.hard_case("T5")
@pytest.mark.parametrize("moment", ["before commit", "in commit, between the watermark and the removal"])
def test_killed_after_sparks_own_commit(spark: SparkSession, activemq: Target, tmp_path: Path, moment: str) -> None:
    work = StreamingRun(spark, activemq, tmp_path)
    work.send(400)
    query = work.start(prefetch="50")
    eventually(lambda: sum(work.written_if_any().values()) == 400, within=ENOUGH)
    # Spark tells the source that a batch is done when it plans the next one: nothing of it is removed yet.
    assert segments(work)
    if moment == "before commit":
        os.kill(owner(work), signal.SIGKILL)
    else:
        work.order_kill("SIGKILL", at="low")
        work.send(100)
        work.wait_for_kill(at="low")
    eventually(lambda: not query.isActive, within=ENOUGH)
    assert query.exception() is not None
    work.send(100)
    work.finish()
    work.check()
    assert sum(work.written().values()) == work.sent
    work.send(10)
    work.finish()
    assert sum(work.written().values()) == work.sent
    assert len(segments(work)) <= 2, "what was processed is removed by the next run"
