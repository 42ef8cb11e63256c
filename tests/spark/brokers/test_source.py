"""The source on brokers that only a container has: killed between rename and ACK, every message is counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.receiver.filling import eventually
from tests.spark.work import ENOUGH, PREFETCH, Target, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(240)


def test_killed_between_rename_and_ack_twice_with_a_purge_between(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    work = Work(spark, target, tmp_path)
    work.send(1000)
    for _ in range(2):
        work.strike("SIGKILL")
        query = work.start()
        work.struck()
        eventually(lambda query=query: not query.isActive, within=ENOUGH)  # type: ignore[misc]
        work.finish()
        work.send(500)
    work.finish()
    work.check()
    twice = sum(work.written().values()) - work.sent
    assert twice == 0 if target.stable else 0 < twice <= 2 * PREFETCH
