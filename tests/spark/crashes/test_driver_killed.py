"""Kill -9 of the driver's JVM, of executors and of Python workers at moments of chance; no secret in what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from tests.spark.crashes.driver import written
from tests.spark.receiver.helpers import eventually
from tests.spark.streaming_run import Target
from tests.support.seed import SEED_SETTING
from tests.support.seed import chance as chance_of

TOP = Path(__file__).parents[3]
HERE = Path(__file__).parent
MESSAGES = 4000
LONGEST_LIFE = 5.0
"""Seconds from the start of the query."""
PREFETCH = 300
"""What a broker sends ahead."""

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(900)]


def source(url: str, queue: str, folder: Path, *, receivers: int = 1) -> dict[str, str]:
    """Return the options of a source with receivers of its own."""
    return {
        "url": url, "destination": queue, "spoolDir": f"{folder}/spool",
        "receivers": str(receivers), "prefetch": str(PREFETCH), "brokerTimeout": "30",
    }  # fmt: skip


@contextmanager
def driver(
    folder: Path, *sources: dict[str, str], end: str | int, master: str = "local[2]", **more: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a driver; at the end of the block nothing of it is left."""
    (folder / "events").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(TOP),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        **more,
    }
    command = [sys.executable, str(HERE / "driver.py"), str(folder), master, str(end), *map(json.dumps, sources)]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True, cwd=folder
        )
    try:
        yield process
    finally:
        for one in (process.pid, *family(process.pid)):
            kill(one)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def family(parent: int) -> list[int]:
    """Return the processes below one, in the order of their age."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if entry.name.isdigit():
            children.setdefault(int(words[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [parent]
    while waiting:
        below = sorted(children.get(waiting.pop(0), []))
        found += below
        waiting += below
    return found


def named(parent: int, word: str) -> list[int]:
    """Return the processes below one that have a word in their command."""
    found = []
    for one in family(parent):
        try:
            if word in Path(f"/proc/{one}/cmdline").read_bytes().decode(errors="replace"):
                found.append(one)
        except OSError:
            continue
    return found


def kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_for(process: subprocess.Popen[str], word: str, folder: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise AssertionError((folder / "log").read_text()[-4000:])


def send(url: str, queue: str, numbers: range) -> None:
    with connect(url) as connection:
        with connection.batch():
            for number in numbers:
                connection.send(queue, str(number).encode(), headers={"persistent": "true"})
        connection.flush()


def check(folder: Path, target: Target, *, kills: int, sent: int = MESSAGES) -> None:
    found = written(folder)
    there = Counter(number for number, _ in found)
    assert set(there) == set(range(sent)), f"{SEED_SETTING}: {sent - len(there)} lost"
    twice = len(found) - sent
    if target.stable:
        assert twice == 0, f"{SEED_SETTING}"
    # Elsewhere what a crash leaves between segment and ACK comes again: no more than was sent ahead, and flagged.
    assert twice <= kills * PREFETCH, f"{SEED_SETTING}"
    certain = Counter(number for number, flagged in found if not flagged)
    assert max(certain.values()) == 1, f"{SEED_SETTING}: a second copy was not flagged"
    sys.stdout.write(f"{target.name}, {SEED_SETTING}: {kills} kills, {twice} flagged copies\n")


def begin_anew_where_nothing_was_planned(folder: Path) -> None:
    """Remove a checkpoint whose first file was cut off: Spark refuses it, and nothing was processed by it."""
    offsets = folder / "checkpoint" / "offsets"
    if offsets.is_dir() and not any(entry.name.isdigit() for entry in offsets.iterdir()):
        shutil.rmtree(folder / "checkpoint")


def kill_the_jvm(
    target: Target, folder: Path, *, times: int, each: int = MESSAGES, receivers: int = 1, **more: str
) -> str:
    """Kill the driver's JVM so many times while it takes `each` new messages, let it end at last.

    Returns:
        What it printed then.
    """
    chance = chance_of("kills", receivers)
    queue = f"/queue/{uuid.uuid4().hex}"
    given = source(target.url, queue, folder, receivers=receivers)
    for number in range(times):
        send(target.url, queue, range(number * each, (number + 1) * each))
        with driver(folder, given, end="killed", **more) as process:
            wait_for(process, "started", folder)
            time.sleep(chance.uniform(0, LONGEST_LIFE))  # the moment of chance; nothing is waited for
            jvms = named(process.pid, "SparkSubmit")
            assert jvms, "it has ended by itself"
            for jvm in jvms:
                kill(jvm)
            # The source's process outlives it for a moment; its successor comes at once.
        begin_anew_where_nothing_was_planned(folder)
    with driver(folder, given, end=times * each, **more) as process:
        assert process.stdout is not None
        return wait_for(process, "done", folder) + process.stdout.read()


@dataclass(frozen=True)
class Killed:
    """What a driver with a passcode left behind that was killed once: its folder, and what its successor printed."""

    folder: Path
    output: str


SECRET = f"sesame-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def killed(activemq: Target, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("killed")
    with Broker(users={"victim": "another"}) as refusing:
        return Killed(folder, kill_the_jvm(activemq, folder, times=1, STOMP_SECRET=SECRET, STOMP_REFUSING=refusing.url))


@pytest.mark.hard_case("T4")
def test_the_drivers_jvm_is_killed_at_a_moment_of_chance(killed: Killed, activemq: Target) -> None:
    check(killed.folder, activemq, kills=1)


@pytest.mark.hard_case("T23")
def test_a_passcode_is_nowhere_in_what_spark_leaves_behind(killed: Killed) -> None:
    # Also not in the words of a query that fails, with the local variables of every frame.
    assert "login" in killed.output.partition("\nrefused ")[2].lower()
    assert SECRET not in killed.output
    kinds = set()
    for path in killed.folder.rglob("*"):
        if path.is_file():
            kinds.add(path.relative_to(killed.folder).parts[0])
            assert SECRET.encode() not in path.read_bytes(), path
    assert {"events", "checkpoint", "spool", "out", "log"} <= kinds


@pytest.mark.hard_case("T4")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("target", "receivers"), [("embedded", 2), ("activemq", 1), ("activemq", 4)], indirect=["target"]
)
def test_the_drivers_jvm_is_killed_twenty_times(target: Target, receivers: int, tmp_path: Path) -> None:
    kill_the_jvm(target, tmp_path, times=20, each=2500, receivers=receivers)
    check(tmp_path, target, kills=20, sent=50_000)


@pytest.mark.hard_case("T6", "T7")
def test_executors_and_python_workers_are_killed_on_a_cluster(activemq: Target, tmp_path: Path) -> None:
    chance = chance_of("kills")
    queue = f"/queue/{uuid.uuid4().hex}"
    send(activemq.url, queue, range(MESSAGES))
    given = source(activemq.url, queue, tmp_path)
    settings: dict[str, Any] = {"end": MESSAGES, "master": "local-cluster[2,1,1024]"}
    with driver(tmp_path, given, **settings) as process:
        wait_for(process, "started", tmp_path)
        eventually(lambda: named(process.pid, "pyspark.daemon"), within=120)
        for word in ("pyspark.daemon", "CoarseGrainedExecutorBackend", "pyspark.daemon"):
            victims = named(process.pid, word)
            if victims:
                kill(chance.choice(victims))
            time.sleep(chance.uniform(0.2, 1.5))  # the moment of chance
        assert process.stdout is not None
        done = any(line.startswith("done") for line in process.stdout)
    # Spark starts no Python worker again that is killed while it starts, or that plans a batch in the driver.
    if not done:
        log = (tmp_path / "log").read_text()
        words = ("pyspark.daemon", "Python worker exited unexpectedly")
        assert any(word in log for word in words), [line for line in log.splitlines() if "Exception" in line]
        with driver(tmp_path, given, **settings) as process:
            wait_for(process, "done", tmp_path)
    check(tmp_path, activemq, kills=3)
