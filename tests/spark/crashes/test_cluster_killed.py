"""A cluster of Spark on this machine: four spools of two brokers, one query, and kills of everything, drawn by a seed.

A standalone master has two workers. Two spools are filled from a queue of ActiveMQ, two from one of RabbitMQ, each by
a process of its own, and one query writes both sources to Parquet. Producers go on sending numbers, each once, and note
which of them the broker confirmed. For as long as `--minutes` says, one part after the other is killed, or a spool is
moved to another folder and host. Processes that have ended are started again, as a supervisor would do it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from stompy.connection.connecting import connect
from stompy.errors import SpoolMismatchError, StompError
from tests.spark.crashes.driver import written
from tests.spark.crashes.test_driver_killed import (
    TOP,
    begin_anew_where_nothing_was_planned,
    driver,
    family,
    kill,
    named,
    wait_for,
)
from tests.spark.crashes.test_receivers_killed import SpoolProcesses, kill_broker, spool_processes
from tests.spark.receiver.helpers import eventually
from tests.spark.source.test_copies import copied
from tests.spark.source.test_spools import query
from tests.spark.streaming_run import ENOUGH, Target, targets
from tests.support.marked import marked
from tests.support.options import chosen
from tests.support.ports import reserved_port
from tests.support.seed import SEED_SETTING, chance

SPOOLS = 2
"""Of each broker, with a process each."""
BETWEEN = (2.0, 20.0)
"""Seconds from one fault to the next, at least and at most."""
QUIET = "15"
"""Seconds without a message after which a queue counts as empty."""
DRAINED = 600.0
"""Seconds until all that was sent has to be in the spools, and then in the output."""
JAVA_OF = {"worker": "org.apache.spark.deploy.worker.Worker", "master": "org.apache.spark.deploy.master.Master"}
BELOW_A_WORKER = {"executor": "CoarseGrainedExecutorBackend", "Python": "pyspark.daemon"}
FAULTS = ("driver", "worker", *BELOW_A_WORKER, "receiver", "receiver before an ACK", "broker", "spool moved")

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.long, pytest.mark.timeout(60 * chosen.minutes + 1800)]


class Producer(threading.Thread):
    """Sends numbers, each once, and waits until the broker has confirmed each.

    Attributes:
        confirmed: the numbers that the broker confirmed.
        unknown: those that it may have or not, and the kind of error that the sender got.
    """

    def __init__(self, target: Target, queue: str, numbers: Iterator[int]) -> None:
        super().__init__(name=f"producer-{target.name}")
        self.confirmed: set[int] = set()
        self.unknown: dict[int, str] = {}
        self._target, self._queue, self._numbers = target, queue, numbers
        self._chances = chance("pauses", target.name)
        self._ending = threading.Event()

    def run(self) -> None:
        with connect(self._target.url, reconnect=True) as connection:
            for number in self._numbers:
                pause = self._chances.uniform(0, 0.5) if self._chances.random() < 0.05 else 0.0
                try:
                    connection.send(self._queue, str(number), persistent=True, confirm=True)
                    self.confirmed.add(number)
                except StompError as error:
                    self.unknown[number] = type(error).__name__
                    pause = 1.0
                if self._ending.wait(pause):
                    return

    def end(self) -> None:
        self._ending.set()
        self.join()


class Cluster:
    """A master, two workers and a driver; those that have ended are started again.

    Attributes:
        drivers: how many were started.
    """

    def __init__(self, folder: Path, port: int, sources: list[dict[str, str]]) -> None:
        self.folder = folder
        self.url = f"spark://127.0.0.1:{port}"
        self.drivers = 0
        self._sources = sources
        self._driven = ExitStack()
        self._master = self._start("master", "--port", str(port))
        self.workers = [self._start_worker() for _ in range(2)]
        self.start_driver("killed")

    def _start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).with_name("spark-class")), JAVA_OF[role]]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
        environment = {
            **os.environ, "PYTHONPATH": str(TOP), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": str(self.folder / "work"),
        }  # fmt: skip
        with (self.folder / f"{role}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return self._start("worker", "--cores", "1", "--memory", "1g", self.url)

    def start_driver(self, end: str) -> None:
        """Start a driver after the end of the one before."""
        self._driven.close()
        begin_anew_where_nothing_was_planned(self.folder)
        settings = "--executor-memory 512m --executor-cores 1 pyspark-shell"
        self.driver = self._driven.enter_context(
            driver(self.folder, *self._sources, end=end, master=self.url, PYSPARK_SUBMIT_ARGS=settings)
        )
        self.drivers += 1

    def keep_up(self) -> None:
        """Start what is not running."""
        assert self._master.poll() is None, (self.folder / "master.log").read_text()[-4000:]
        for place, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.workers[place] = self._start_worker()
        if self.driver.poll() is not None:
            self.start_driver("killed")

    def strike(self, part: str, chances: Random) -> bool:
        """Kill a part; return whether there was one."""
        worker = chances.choice(self.workers)
        if part == "driver":
            victims = named(self.driver.pid, "SparkSubmit")
        elif part == "worker":
            victims = [worker.pid]
        else:
            victims = named(worker.pid, BELOW_A_WORKER[part])
        for victim in victims[:1]:
            kill(victim)
        return bool(victims)

    def finish(self) -> None:
        """Have the query write all that the spools hold."""
        self.start_driver("drained")
        wait_for(self.driver, "done", self.folder)

    def close(self) -> None:
        self._driven.close()
        for process in (*self.workers, self._master):
            for one in (process.pid, *family(process.pid)):
                kill(one)
            process.wait()


@contextmanager
def cluster(folder: Path, sources: list[dict[str, str]]) -> Iterator[Cluster]:
    with reserved_port() as port, contextlib.closing(Cluster(folder, port, sources)) as made:
        yield made


class Faults:
    """What is killed or moved, in the order and at the times that a seed gives."""

    def __init__(self, targets: list[Target], spools: list[SpoolProcesses], spark: Cluster) -> None:
        self._targets, self._spools, self._spark = targets, spools, spark
        self._chances = chance("faults")
        self.done: Counter[str] = Counter()

    def keep_up(self) -> None:
        """Start what is not running."""
        self._spark.keep_up()
        for spool in self._spools:
            spool.keep_up()

    def go_on(self, seconds: float) -> None:
        """Cause one fault after the other for so long."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            moment = time.monotonic() + self._chances.uniform(*BETWEEN)
            while time.monotonic() < moment:
                self.keep_up()
                time.sleep(0.1)
            self._cause(self._chances.choice(FAULTS))

    def _cause(self, fault: str) -> None:
        target, spool = self._chances.choice(self._targets), self._chances.choice(self._spools)
        by = self._chances.choice([signal.SIGTERM, signal.SIGKILL])
        if fault == "broker":
            fault = target.name
            kill_broker(target)
        elif fault == "receiver":
            spool.kill_all()
        elif fault == "receiver before an ACK":
            (spool.path / "spool.kill-seg-").write_text("SIGKILL")  # see `site`
        elif fault == "spool moved":
            number = self.done.total()
            spool.move(spool.path.with_name(f"{spool.target.name}-moved-{number}"), f"host-{number}", by)
        elif not self._spark.strike(fault, self._chances):
            fault = f"no {fault} there"
        self.done[fault] += 1
        sys.stdout.write(f"{time.strftime('%X')} {fault}\n")
        sys.stdout.flush()


def drain(spools: list[SpoolProcesses]) -> None:
    """Receive until the queues are empty."""
    for spool in spools:
        spool.kill_all()
        (spool.path / "spool.kill-seg-").unlink(missing_ok=True)
        spool.processes = [spool.start("--idle-timeout", QUIET)]
    for spool in spools:
        assert spool.processes[0].wait(DRAINED) == 0, (spool.path / "log").read_text()[-4000:]


def check(target: Target, producer: Producer, rows: list[tuple[int, bool]]) -> None:
    """Nothing that was confirmed is lost; nothing is twice with stable ids, and each second copy is flagged without."""
    found = Counter(number for number, _ in rows)
    flagged = sum(flag for _, flag in rows)
    lost = producer.confirmed - found.keys()
    twice = [number for number, copies in found.items() if copies > 1]
    certain = Counter(number for number, flag in rows if not flag)
    unflagged = [number for number, copies in certain.items() if copies > 1]
    unknown = dict(Counter(producer.unknown.values()))
    sys.stdout.write(
        f"{target.name}: {len(producer.confirmed)} confirmed, {unknown} unknown; {len(found)} written, "
        f"{len(lost)} lost, {len(twice)} twice, {flagged} flagged, {len(unflagged)} twice unflagged\n"
    )
    assert not lost, f"lost: {sorted(lost)[:10]}, {SEED_SETTING}"
    assert found.keys() <= producer.confirmed | producer.unknown.keys()
    assert not unflagged, f"a second copy is not flagged: {unflagged[:10]}, {SEED_SETTING}"
    assert not (target.stable and twice), f"twice: {twice[:10]}, {SEED_SETTING}"


def check_copies(folder: Path, spools: list[SpoolProcesses]) -> None:
    """Each spool is refused where an older copy is in its place, though the others are as they should be."""
    newest = max((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda log: int(log.name))
    offsets = [json.loads(line) for line in newest.read_text().splitlines()[2:]]
    for place, spool in enumerate(spools):
        offset = offsets[place // SPOOLS]
        given = {"pattern": f"{spool.target.name}-*/spool", "destination": ",".join(spool.queues)}
        with query(folder, **given) as engine:
            assert engine.latest(offset) == offset
        Path(spool.folder).rename(folder / "aside")
        (folder / f"copy-{place}").rename(spool.folder)
        with query(folder, **given) as engine, pytest.raises(SpoolMismatchError) as refused:
            engine.latest(offset)
        assert spool.folder in str(refused.value)
        Path(spool.folder).rename(folder / f"copy-{place}")
        (folder / "aside").rename(spool.folder)


@pytest.fixture
def both() -> Iterator[list[Target]]:
    with contextmanager(targets)("activemq") as activemq, contextmanager(targets)("rabbitmq4") as rabbitmq:
        yield [activemq, rabbitmq]


@pytest.mark.skipif(os.geteuid() != 0, reason="another host name needs root")
def test_on_a_cluster_of_which_everything_is_killed_no_message_is_lost_or_twice(
    both: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = f"/queue/{uuid.uuid4().hex}"
    with ExitStack() as running:
        for name, value in running.enter_context(marked()).items():
            monkeypatch.setenv(name, value)
        spools, sources, producers = [], [], []
        for place, target in enumerate(both):
            others = f"{tmp_path}/{target.name}-*/spool"
            for number in range(SPOOLS):
                path = tmp_path / f"{target.name}-{number}"
                path.mkdir()
                filled = spool_processes(target, [queue], path, "spools", 1, f",{others}")
                spools.append(running.enter_context(filled))
            source = {"url": target.url, "destination": queue, "spoolDir": others, "receivers": "0"}
            sources.append({**source, "maxOffsetsPerTrigger": "5000"})
            producers.append(Producer(target, queue, itertools.count(place, len(both))))
        for spool in spools:
            eventually(spool.is_claimed, within=ENOUGH)
        spark = running.enter_context(cluster(tmp_path, sources))
        faults = Faults(both, spools, spark)
        for producer in producers:
            producer.start()
            running.callback(producer.end)
        half = chosen.minutes * 30
        faults.go_on(half)
        for place, spool in enumerate(spools):
            copied(Path(spool.folder), tmp_path / f"copy-{place}")
        faults.go_on(half)
        for producer in producers:
            producer.end()
        drain(spools)
        spark.finish()
        rows = written(tmp_path)
        sys.stdout.write(f"{chosen.minutes} minutes, {SEED_SETTING}: {dict(faults.done)}, {spark.drivers} drivers\n")
        for place, (target, producer) in enumerate(zip(both, producers, strict=True)):
            check(target, producer, [row for row in rows if row[0] % len(both) == place])
        check_copies(tmp_path, spools)
