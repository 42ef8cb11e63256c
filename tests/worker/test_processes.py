"""Child processes that die, hang or are told to stop, and what becomes of the messages that they ran."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.support.seed import SEED_SETTING, chance
from tests.worker import conftest
from tests.worker.conftest import Start, get, left, send

Noted = Callable[[], list[str]]
ROUNDS = 4
LONG = 90.0
"""Seconds after which a test has failed that starts many processes, one after the other."""

wait_until = partial(conftest.wait_until, within=LONG)
pytestmark = pytest.mark.timeout(2 * LONG)


def children_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the ids of the child processes of a worker."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def bodies(lines: list[str], word: str) -> list[str]:
    """Return the bodies of the messages whose tasks began, or ended."""
    return [line.split(maxsplit=2)[2] for line in lines if line.startswith(word)]


def has_ended(noted: Noted, count: int) -> bool:
    return len(bodies(noted(), "end")) >= count


def dead(broker: Broker) -> list[str]:
    return sorted(letter.text for letter in broker.browse("/queue/a.dead"))


def is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs until SIGCONT."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Keep processes from running."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        # One thread takes the signal; until it runs, the others go on.
        wait_until(lambda: all(is_stopped(pid) for pid in pids))
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def processed(port: int) -> int:
    """Return the counter of processed messages, or 0 if there is none yet."""
    found = re.search(r'outcome="processed"} (\d+)', get(port, "/metrics")[1])
    return 0 if found is None else int(found[1])


# Who is to blame for a crash.


def test_a_crash_counts_for_one_of_equal_messages(each_broker: Broker, start: Start, noted: Noted) -> None:
    send(each_broker.url, *["once"] * 10)
    process = start("alone", "--processes", "1", url=each_broker.url)
    wait_until(lambda: left(each_broker) == 0)
    process.terminate()
    assert process.wait(LONG) == 0
    assert dead(each_broker) == ["once"]
    assert len(bodies(noted(), "end")) == 9
    letter = each_broker.browse("/queue/a.dead")[0]
    assert letter.headers["stompy-error"] == "stompy.worker.task.ProcessCrashedError"


def test_what_ran_beside_a_poisonous_message_is_processed(each_broker: Broker, start: Start, noted: Noted) -> None:
    send(each_broker.url, "poison 8", *(f"beside 8 {number}" for number in range(7)))
    process = start("supervised", "--processes", "1", url=each_broker.url)
    wait_until(lambda: left(each_broker) == 0)
    process.terminate()
    assert process.wait(LONG) == 0
    assert dead(each_broker) == ["poison 8"]
    lines = noted()
    assert sorted(bodies(lines, "end")) == [f"beside 8 {number}" for number in range(7)]
    first = lines[0].split()[1]
    assert [line.split()[1] for line in lines[:8]] == [first] * 8  # all in one process; then each alone
    later = lines[8:]
    assert all(
        after.startswith("end") or before.startswith("end") or before.split()[1] != after.split()[1]
        for before, after in itertools.pairwise(later)
    )


def test_a_message_with_a_key_that_kills_processes_becomes_a_dead_letter(
    broker: Broker, start: Start, noted: Noted
) -> None:
    send(broker.url, "sleep 0", "segfault", "sleep 0")
    process = start("keyed", "--processes", "1", url=broker.url)
    wait_until(lambda: left(broker) == 0)
    process.terminate()
    assert process.wait(LONG) == 0
    assert dead(broker) == ["segfault"]
    assert broker.browse("/queue/a.dead")[0].headers["stompy-attempts"] == "2"
    assert bodies(noted(), "begin") == ["sleep 0", "segfault", "segfault", "sleep 0"]


def test_poison_among_good_messages_becomes_dead_letters(broker: Broker, start: Start, noted: Noted) -> None:
    rest = ["segfault"] * 12 + [f"sleep 0 {number}" for number in range(400)]
    chance("poison").shuffle(rest)
    print(SEED_SETTING)
    send(broker.url, *rest)
    process = start("supervised", "--processes", "2", "--concurrency", "2", url=broker.url)
    wait_until(lambda: left(broker) == 0 or process.poll() is not None)
    process.terminate()
    assert process.wait(LONG) == 0
    assert dead(broker) == ["segfault"] * 12
    assert set(bodies(noted(), "end")) == {f"sleep 0 {number}" for number in range(400)}


# Stops.


@pytest.mark.parametrize("how", ["each process", "the group"])
def test_a_signal_to_all_processes_stops_in_order(broker: Broker, start: Start, noted: Noted, how: str) -> None:
    print(SEED_SETTING)
    drawn = chance("signal to all", how)
    count = 0
    for _ in range(ROUNDS):
        number = drawn.choice([signal.SIGTERM, signal.SIGINT])
        process = start("supervised", "--processes", "2", "--concurrency", "4", url=broker.url, new_session=True)
        send(broker.url, *(f"sleep {drawn.choice([0, 0.01, 0.1, 0.5])} {count + each}" for each in range(100)))
        count += 100
        enough = len(bodies(noted(), "end")) + drawn.randrange(1, 60)
        wait_until(partial(has_ended, noted, enough))
        everyone = [process.pid, *children_of(process)]
        drawn.shuffle(everyone)
        for pid in everyone:
            with suppress(ProcessLookupError):  # one that has obeyed already
                if how == "each process":
                    os.kill(pid, number)
                else:
                    os.killpg(pid, number)
        assert process.wait(LONG) == 0
        lines = noted()
        assert sorted(bodies(lines, "begin")) == sorted(bodies(lines, "end"))
        assert left(broker) == count - len(lines) / 2
    assert not dead(broker)


@pytest.mark.parametrize("death", ["exit 1", "segfault", "exit 6"])
def test_a_death_before_a_signal_is_not_the_exit_code(
    broker: Broker, start: Start, noted: Noted, tmp_path: Path, death: str
) -> None:
    send(broker.url, "wait", death)
    process = start("supervised", "--processes", "1", url=broker.url)
    wait_until(lambda: f"{death}" in bodies(noted(), "begin"))
    process.terminate()
    (tmp_path / "release").touch()
    assert process.wait(LONG) == 0


def test_a_death_after_a_signal_leaves_tasks_unfinished(
    broker: Broker, start: Start, noted: Noted, tmp_path: Path
) -> None:
    send(broker.url, "wait 1")  # a second is enough to report that it stops
    process = start("supervised", "--processes", "1", url=broker.url)
    wait_until(lambda: bool(noted()))
    process.terminate()
    log = process.stderr
    assert log is not None
    wait_until(lambda: b"stopping: " in log.readline())
    (tmp_path / "release").touch()
    assert process.wait(LONG) == stompy.WorkerExit.UNFINISHED


def test_limits_end_a_process_and_not_the_worker(broker: Broker, start: Start, noted: Noted, free_port: int) -> None:
    process = start("limited", "--processes", "2", "--http", str(free_port), url=broker.url)
    send(broker.url, *(f"sleep 0 {number}" for number in range(20)))
    wait_until(lambda: left(broker) == 0)
    assert len({line.split()[1] for line in noted()}) >= 20 / 3
    wait_until(lambda: processed(free_port) == 20)
    process.terminate()
    assert process.wait(LONG) == 0


def test_children_whose_only_message_takes_too_long_are_replaced_however_often(
    broker: Broker, start: Start, noted: Noted, tmp_path: Path
) -> None:
    process = start("single", "--processes", "1", url=broker.url)
    send(broker.url, "1")
    wait_until(lambda: noted().count("begin 1") == 7 or process.poll() is not None)
    (tmp_path / "release").touch()
    wait_until(lambda: left(broker) == 0 or process.poll() is not None)
    process.terminate()
    assert process.wait(LONG) == 0


def test_children_that_reach_a_limit_without_a_broker_are_replaced_however_often(start: Start, free_port: int) -> None:
    process = start("brief", "--processes", "1", url=f"stomp://127.0.0.1:{free_port}")
    log = process.stderr
    assert log is not None
    for _ in range(7):
        assert any(b"is replaced" in line for line in log), "it has ended"
    process.terminate()
    assert process.wait(LONG) == 0


# What is seen from outside.


def test_counters_do_not_fall_when_a_process_is_replaced(broker: Broker, start: Start, free_port: int) -> None:
    process = start("supervised", "--processes", "1", "--http", str(free_port), url=broker.url)
    send(broker.url, *["sleep 0"] * 5)
    wait_until(lambda: processed(free_port) == 5)
    (before,) = children_of(process)
    os.kill(before, signal.SIGKILL)

    def replaced() -> bool:
        assert processed(free_port) >= 5
        return get(free_port, "/ready")[0] == 200 and children_of(process) != [before]

    wait_until(replaced)
    send(broker.url, "sleep 0")
    wait_until(lambda: processed(free_port) == 6)
    process.terminate()
    assert process.wait(LONG) == 0


def test_probes_fail_while_a_process_hangs(broker: Broker, start: Start, free_port: int) -> None:
    process = start("supervised", "--processes", "2", "--http", str(free_port), url=broker.url)
    wait_until(lambda: get(free_port, "/ready")[0] == get(free_port, "/live")[0] == 200)
    with paused(children_of(process)[0]):
        wait_until(lambda: get(free_port, "/ready")[0] == get(free_port, "/live")[0] == 503)
        health: dict[str, Any] = json.loads(get(free_port, "/live")[1])
        assert (health["processes"], health["hung"]) == (2, 1)
    wait_until(lambda: get(free_port, "/ready")[0] == get(free_port, "/live")[0] == 200)
    process.terminate()
    assert process.wait(LONG) == 0


def test_a_process_that_hangs_is_replaced(broker: Broker, start: Start, noted: Noted, tmp_path: Path) -> None:
    process = start("", url=broker.url, module="tests.worker.supervised")
    wait_until((tmp_path / "ready").exists)
    send(broker.url, "sleep 0")
    wait_until(lambda: left(broker) == 0)
    (before,) = children_of(process)
    with paused(before):
        send(broker.url, "sleep 0")
        wait_until(lambda: left(broker) == 0)
        assert noted()[-1] != f"end {before} sleep 0"
        assert children_of(process) != [before]
    process.terminate()
    assert process.wait(LONG) == 0


def test_a_worker_that_was_stopped_itself_does_not_blame_its_processes(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    process = start("", url=broker.url, module="tests.worker.supervised")
    wait_until((tmp_path / "ready").exists)
    before = children_of(process)
    with paused(process.pid, *before), pytest.raises(subprocess.TimeoutExpired):
        process.wait(4.0)  # longer than a process may be silent there
    send(broker.url, "sleep 0")
    wait_until(lambda: left(broker) == 0)
    assert children_of(process) == before
    process.terminate()
    assert process.wait(LONG) == 0


def test_a_signal_to_one_process_alone_does_not_stop_it(broker: Broker, start: Start, noted: Noted) -> None:
    process = start("supervised", "--processes", "1", url=broker.url)
    wait_until(lambda: len(broker.connections()) == 1)
    before = children_of(process)
    send(broker.url, "sleep 0")
    wait_until(lambda: left(broker) == 0)
    os.kill(before[0], signal.SIGTERM)
    send(broker.url, "sleep 0")
    wait_until(lambda: left(broker) == 0)
    assert children_of(process) == before
    process.terminate()
    assert process.wait(LONG) == 0
