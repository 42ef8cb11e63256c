"""All that the pipeline offers, on a Spark Connect server. One client in a process of its own does it once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import stompy
from stompy.broker import Broker
from stompy.spark.replaying import Selection, replay

COUNT = 250
BODIES = [b"message %d" % number for number in range(COUNT)]
TOP = Path(__file__).parents[3]

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def seen(broker: Broker, folder: Path) -> dict[str, Any]:
    """What the client saw; the destinations are filled, and what it has left there is the tests' to look at."""
    with stompy.connect(broker.url) as connection:
        with connection.batch():
            for queue, bodies in (("archived", [*BODIES, b"\xff"]), ("streamed", BODIES), ("table", BODIES)):
                for body in bodies:
                    connection.send(f"/queue/{queue}", body)
        connection.flush()
    environment = {
        **os.environ,
        "SPARK_TESTING": "1",  # has Spark choose a free port
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(TOP), os.environ.get("PYTHONPATH")))),
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    client = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("client.py")), broker.url, str(folder)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert client.returncode == 0, client.stderr[-3000:]
    found: dict[str, Any] = json.loads(client.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    return found


def stored(broker: Broker, queue: str) -> list[bytes]:
    count = broker.depth(f"/queue/{queue}")
    with stompy.connect(broker.url) as connection:
        subscription = connection.subscribe(f"/queue/{queue}")
        return [subscription.receive(timeout=20).body for _ in range(count)]


def test_an_archive_is_written_and_counted_and_its_replay_keeps_the_order(
    seen: dict[str, Any], broker: Broker, folder: Path
) -> None:
    assert seen["archived"] == {"messages": COUNT, "bad": 1}
    for bad in (False, True):
        replay(
            path=str(folder / "archive"),
            sink={"url": broker.url, "destination": f"/queue/again-{bad}"},
            checkpoint=str(folder / f"replaying-{bad}"),
            bad=bad,
        )
    assert stored(broker, "again-False") == BODIES
    assert stored(broker, "again-True") == [b"\xff"]
    which = Selection(where=pc.field("text") == "message 7")
    sink = {"url": broker.url, "destination": "/queue/one"}
    assert replay(path=str(folder / "archive"), sink=sink, checkpoint=str(folder / "one"), selection=which) == 1


def test_a_stream_goes_from_a_queue_to_a_queue(seen: dict[str, Any], broker: Broker) -> None:
    assert Counter(stored(broker, "copied")) == Counter(BODIES)


def test_a_table_is_read_and_written(seen: dict[str, Any], broker: Broker) -> None:
    assert Counter(stored(broker, "written")) == Counter(BODIES)


def test_a_failure_is_said_in_one_line(seen: dict[str, Any]) -> None:
    assert seen["load"].startswith("ConfigurationError: option destination is missing")
    assert seen["executor"].startswith("PublishError: no broker was reachable for 0 s")
