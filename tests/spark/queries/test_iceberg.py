"""The recipe for Iceberg, killed on its way. For Spark 4.1, with the jar that `.ci/iceberg` downloads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from stompy.broker import Broker
from tests.spark.receiver.helpers import eventually, fill
from tests.support.options import chosen
from tests.support.printed import blocks

COUNT, KILLS, WITHIN = 400, 2, 300.0
JAR = Path.home() / ".m2/repository/org/apache/iceberg/iceberg-spark-runtime-4.1_2.13"
WAIT = "query.awaitTermination()"
TO_THE_END = f"""
import json, time
table = spark.table("lake.shop.orders")
while query.isActive and table.count() < {COUNT}:
    time.sleep(0.5)
assert query.exception() is None, query.exception()
query.stop()
print(json.dumps(sorted(int(row.body) for row in table.collect())))
"""

pytestmark = [
    pytest.mark.skipif(
        "iceberg" not in chosen.require_spark.split(",")
        and not (pyspark.__version__.startswith("4.1.") and JAR.exists()),
        reason="for Spark 4.1, with the jar that .ci/iceberg downloads",
    ),
    pytest.mark.timeout(1200),
]


def test_a_query_that_is_killed_writes_each_message_once(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(COUNT), queue="/queue/orders")
    (page,) = (block.text for block in blocks("docs/spark/recipes.md", "python") if "iceberg" in block.text)
    for printed, own in {
        "stomp://localhost:61613": broker.url,
        "/data": str(tmp_path),
        '.option("spoolDir", ': '.option("maxOffsetsPerTrigger", 50).option("spoolDir", ',
    }.items():
        assert printed in page
        page = page.replace(printed, own)
    metadata = tmp_path / "lake/shop/orders/metadata"
    for _ in range(KILLS):
        process = started(page)
        had = len(list(metadata.glob("*.json")))
        try:
            eventually(
                lambda had=had: len(list(metadata.glob("*.json"))) >= had + 3,  # type: ignore[misc]
                within=WITHIN,
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    process = started(page.replace(WAIT, TO_THE_END))
    try:
        out, _ = process.communicate(timeout=WITHIN)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert json.loads(out) == list(range(COUNT))


def started(program: str) -> subprocess.Popen[str]:
    """Run a program as a process group of its own, with the JVM and the Pythons that it starts."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
