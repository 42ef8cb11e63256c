"""The broker dies under a stream between what is durable and its ACK, and comes back with its disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.testing.proxy import FaultProxy
from tests.spark.receiver.helpers import eventually
from tests.spark.streaming_run import ENOUGH, StreamingRun, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(240)
PREFETCH = 100


@pytest.mark.hard_case("T14")
def test_a_broker_that_dies_before_it_gets_the_acks_sends_again_what_is_known(
    spark: SparkSession, activemq: Target, tmp_path: Path
) -> None:
    work = StreamingRun(spark, activemq, tmp_path)
    suspects = tmp_path / "spool" / "suspects"
    with FaultProxy(activemq.url) as proxy:
        query = work.start(url=proxy.url, prefetch=str(PREFETCH), receiptTimeout="2")
        eventually(lambda: proxy.running, within=ENOUGH)
        work.send_safely(50)
        eventually(lambda: sum(work.written_if_any().values()) == 50, within=ENOUGH)
        # From now on no ACK gets to the broker: what it sends, up to its prefetch, is durable and stays unacknowledged.
        proxy.stall("up")
        work.send_safely(500)
        eventually(lambda: held(tmp_path) > 50, within=ENOUGH)
        activemq.broker.kill()
        proxy.cut()
        eventually(lambda: any(suspects.glob("*.ids")), within=ENOUGH)
        proxy.heal()
        activemq.broker.start()
        eventually(lambda: held(tmp_path) >= work.sent, within=ENOUGH)
        work.send_safely(100)
        eventually(lambda: held(tmp_path) >= work.sent, within=ENOUGH)
        assert query.exception() is None, "the query outlives the broker's restart"
        eventually(lambda: not any(suspects.glob("*.ids")), within=ENOUGH)
        query.stop()
    work.finish()
    work.check()
    assert sum(work.written().values()) == work.sent


def held(path: Path) -> int:
    """Return how many messages the spool has ever held."""
    names = [one.name.split("-") for one in (path / "spool").glob("seg-*")]
    return max((int(name[1]) + int(name[2]) for name in names), default=0)
