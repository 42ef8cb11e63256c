"""How a worker starts, stops and ends, as a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from tests.worker.conftest import WITHIN, Start, get, left, send, wait_until


def redelivered(url: str, count: int) -> dict[str, bool]:
    """Receive messages, and return whether each says that it is redelivered."""
    with stompy.connect(url) as conn:
        subscription = conn.subscribe("/queue/a", ack="client-individual")
        messages = [subscription.receive(timeout=WITHIN) for _ in range(count)]
        return {message.text: message.redelivered for message in messages}


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    """Return the next line that a worker logs; it is alive."""
    assert process.stderr is not None
    line: bytes = process.stderr.readline()
    assert line, f"the worker has ended with {process.wait(WITHIN)}"
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_slow_tasks_finish_and_starts_none(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path, number: signal.Signals
) -> None:
    process = start("slow", url=broker.url)
    send(broker.url, *map(str, range(12)))
    wait_until(lambda: len(noted()) == 8)
    process.send_signal(number)
    assert process.stderr is not None
    wait_until(lambda: b"received SIG" in (process.stderr.readline() if process.stderr else b""))
    (tmp_path / "release").touch()
    assert process.wait(WITHIN) == 0
    lines = noted()
    assert sorted(line.split()[1] for line in lines if line.startswith("begin")) == sorted(
        line.split()[1] for line in lines if line.startswith("end")
    )
    assert len(lines) == 16
    assert set(redelivered(broker.url, 4)) == {str(n) for n in range(12)} - {line.split()[1] for line in lines}
    assert broker.depth("/queue/a") == 4


def test_a_signal_that_another_thread_got_ends_it(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "release").touch()
    process = start("slow", url=broker.url, module="tests.support.signals_elsewhere")
    send(broker.url, "x")
    wait_until(lambda: noted() == ["begin x", "end x"])
    process.terminate()
    assert process.wait(WITHIN) == 0


def test_past_the_limit_the_code_says_so_and_the_message_comes_again(
    broker: Broker, start: Start, noted: Callable[[], list[str]]
) -> None:
    process = start("impatient", url=broker.url)
    send(broker.url, "x")
    wait_until(lambda: noted() == ["begin x"])
    process.terminate()
    assert process.wait(WITHIN) == stompy.WorkerExit.UNFINISHED
    assert redelivered(broker.url, 1) == {"x": True}


def test_stuck_tasks_are_replaced_while_garbage_is_collected(
    broker: Broker, start: Start, noted: Callable[[], list[str]]
) -> None:
    start("littering", url=broker.url)
    send(broker.url, *map(str, range(20)))
    wait_until(lambda: left(broker, "/queue/a.dead") == 20)


def test_a_signal_while_it_starts_lets_running_tasks_finish(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path
) -> None:
    process = start("starting", url=broker.url)
    send(broker.url, "x")
    wait_until(lambda: noted() == ["begin x"])
    process.terminate()
    assert process.stderr is not None
    wait_until(lambda: b"received SIG" in (process.stderr.readline() if process.stderr else b""))
    (tmp_path / "go").touch()
    (tmp_path / "release").touch()
    assert process.wait(WITHIN) == 0
    assert noted() == ["begin x", "end x"]
    assert left(broker) == 0


def test_a_second_signal_ends_at_once(broker: Broker, start: Start, noted: Callable[[], list[str]]) -> None:
    process = start("slow", url=broker.url)
    send(broker.url, "x")
    wait_until(lambda: noted() == ["begin x"])
    process.terminate()
    assert process.stderr is not None
    wait_until(lambda: b"received SIG" in (process.stderr.readline() if process.stderr else b""))
    process.send_signal(signal.SIGINT)  # the same one so soon would count as the first
    assert process.wait(WITHIN) == 128 + signal.SIGINT
    assert redelivered(broker.url, 1) == {"x": True}


def test_a_worker_starts_before_its_broker(
    start: Start, noted: Callable[[], list[str]], tmp_path: Path, free_port: int
) -> None:
    (tmp_path / "release").touch()
    process = start("slow", url=f"stomp://127.0.0.1:{free_port}")
    assert process.stderr is not None
    wait_until(lambda: b"connection refused; attempt" in (process.stderr.readline() if process.stderr else b""))
    with Broker(port=free_port) as broker:
        send(broker.url, "x")
        wait_until(lambda: noted() == ["begin x", "end x"])
        wait_until(lambda: left(broker) == 0)
        process.terminate()
        assert process.wait(WITHIN) == 0


def test_a_signal_ends_the_wait_for_the_broker(start: Start) -> None:
    process = start("slow", url="stomp://127.0.0.1:1")
    assert process.stderr is not None
    wait_until(lambda: b"connection refused; attempt" in (process.stderr.readline() if process.stderr else b""))
    process.terminate()
    assert process.wait(WITHIN) == 0


def test_a_worker_goes_on_after_the_broker_restarted(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "release").touch()
    process = start("slow", url=broker.url)
    send(broker.url, "1")
    wait_until(lambda: noted() == ["begin 1", "end 1"])
    broker.restart()
    send(broker.url, "2")
    wait_until(lambda: "end 2" in noted())
    process.terminate()
    assert process.wait(WITHIN) == 0


def test_a_refused_subscription_ends_the_worker(broker: Broker, start: Start) -> None:
    assert start("broken", url=broker.url).wait(WITHIN) == stompy.WorkerExit.BROKER


def test_a_wrong_login_ends_the_worker(start: Start) -> None:
    with Broker(users={"ann": "right"}, limits=BrokerLimits(login_delay=0.0)) as broker:
        url = broker.url.replace("stomp://", "stomp://ann:wrong@")
        assert start("slow", url=url).wait(WITHIN) == stompy.WorkerExit.BROKER


def test_a_lost_login_ends_the_parent_of_children_too(start: Start) -> None:
    with Broker(users={"ann": "right"}, limits=BrokerLimits(login_delay=0.0)) as broker:
        url = broker.url.replace("stomp://", "stomp://ann:wrong@")
        assert start("children", "--processes", "2", url=url).wait(WITHIN) == stompy.WorkerExit.BROKER


def test_a_message_that_kills_processes_becomes_a_dead_letter(
    each_broker: Broker, start: Start, noted: Callable[[], list[str]]
) -> None:
    process = start("children", "--processes", "2", url=each_broker.url)
    send(each_broker.url, "kill")
    wait_until(lambda: each_broker.depth("/queue/a.dead") >= 1)
    send(each_broker.url, "after")
    wait_until(lambda: any(line.endswith("after") for line in noted()))
    wait_until(lambda: left(each_broker) == 0)
    process.terminate()
    assert process.wait(WITHIN) == 0
    dead = each_broker.browse("/queue/a.dead")
    twice = each_broker.server.startswith("RabbitMQ")  # a copy is sent before what it was made of is acknowledged
    assert len(dead) == 1 or twice
    assert {(letter.text, letter.headers["stompy-error"]) for letter in dead} == {
        ("kill", "stompy.worker.task.ProcessCrashedError")
    }
    kills = [line for line in noted() if line.endswith("kill")]
    assert len(kills) == len({line.split()[0] for line in kills})
    assert len(kills) == 2 or (twice and len(kills) > 2)


def test_a_message_that_kills_a_worker_without_children_is_not_counted(
    broker: Broker, start: Start, noted: Callable[[], list[str]]
) -> None:
    send(broker.url, "kill")
    for _ in range(3):  # more than the task has attempts
        assert start("children", url=broker.url).wait(WITHIN) == -signal.SIGKILL
    wait_until(lambda: broker.depth("/queue/a") == 1)
    assert len(noted()) == 3
    assert broker.depth("/queue/a.dead") == 0


def test_children_stop_with_the_parent_in_order(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path
) -> None:
    process = start("slow", "--processes", "2", "--concurrency", "1", url=broker.url)
    send(broker.url, "1", "2", "3")  # one process takes two at most
    wait_until(lambda: len(noted()) == 2)
    process.terminate()
    assert process.stderr is not None
    for _ in range(2):
        wait_until(lambda: b"stopping: " in (process.stderr.readline() if process.stderr else b""))
    (tmp_path / "release").touch()
    assert process.wait(WITHIN) == 0
    assert len(noted()) == 4
    assert broker.depth("/queue/a") == 1


def test_children_stop_when_the_parent_is_killed(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "release").touch()
    process = start("slow", "--processes", "2", url=broker.url)
    wait_until(lambda: len(broker.connections()) == 2)
    process.kill()
    wait_until(lambda: not broker.connections())


def test_when_every_child_dies_the_code_says_so(broker: Broker, start: Start, tmp_path: Path) -> None:
    (tmp_path / "doom").touch()
    process = start("doomed", "--processes", "2", url=broker.url)
    assert process.stderr is not None
    assert sum(b"restarted in" in line for line in process.stderr) >= 10  # it ends when all have died five times
    assert process.wait(WITHIN) == stompy.WorkerExit.FAILED


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_probes_and_metrics_are_served(
    broker: Broker, start: Start, tmp_path: Path, free_port: int, processes: tuple[str, ...]
) -> None:
    (tmp_path / "release").touch()
    process = start("slow", "--http", str(free_port), *processes, url=broker.url)
    wait_until(lambda: get(free_port, "/ready")[0] == 200)
    send(broker.url, "x")
    line = 'stompy_worker_messages_total{worker="worker",task="slow",outcome="processed"} 1'
    wait_until(lambda: line in get(free_port, "/metrics")[1])
    assert get(free_port, "/live")[0] == 200
    health: dict[str, Any] = json.loads(get(free_port, "/ready")[1])
    assert health["state"] == "running"
    assert get(free_port, "/other")[0] == 404
    broker.close()
    wait_until(lambda: get(free_port, "/ready")[0] == 503)
    assert get(free_port, "/live")[0] == 200
    process.terminate()
    assert process.wait(WITHIN) == 0


def test_systemd_is_told(broker: Broker, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix:
        unix.bind(str(path))
        unix.settimeout(WITHIN)
        process = start("slow", url=broker.url, NOTIFY_SOCKET=str(path), WATCHDOG_USEC="1000000")
        notices: list[str] = []
        while "WATCHDOG=1" not in notices or "READY=1" not in notices:
            notices.append(unix.recv(100).decode())
        process.terminate()
        while notices[-1] != "STOPPING=1":
            notices.append(unix.recv(100).decode())
        assert process.wait(WITHIN) == 0


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
def test_a_signal_that_is_sent_twice_is_one(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path, processes: list[str]
) -> None:
    """GNU timeout signals the process, then its group, in which it is."""
    process = start("slow", *processes, url=broker.url)
    send(broker.url, "x")
    wait_until(lambda: noted() == ["begin x"])
    process.terminate()
    if not processes:
        wait_until(lambda: b"received SIG" in line_of(process))
    process.terminate()
    (tmp_path / "release").touch()
    assert process.wait(WITHIN) == 0
    assert noted() == ["begin x", "end x"]


def test_a_terminal_that_hangs_up_stops_it_in_order(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path
) -> None:
    ours = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which the worker inherits: `nohup` ignores it
    process = start("slow", url=broker.url)
    signal.signal(signal.SIGHUP, ours)
    send(broker.url, "x")
    wait_until(lambda: noted() == ["begin x"])
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: b"received SIGHUP" in line_of(process))
    (tmp_path / "release").touch()
    assert process.wait(WITHIN) == 0
    assert noted() == ["begin x", "end x"]


COMES_AND_GOES = """
import sys, threading
from stompy.worker.service import stacks_on_request

def come_and_go():
    while not over:
        thread = threading.Thread(target=len, args=("",))
        thread.start()
        thread.join()

over = []
with stacks_on_request(None):
    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    print("begins", flush=True)
    over.append(sys.stdin.read())
    for thread in threads:
        thread.join()
"""


def test_a_process_lives_on_when_it_writes_stacks_while_threads_come_and_go(tmp_path: Path) -> None:
    program, pipe = [sys.executable, "-c", COMES_AND_GOES], subprocess.PIPE
    with (
        open(tmp_path / "stacks", "wb") as stacks,
        subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=stacks) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline()
        for _ in range(1000):
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.0005)
        process.stdin.close()
    assert process.returncode == 0
    assert b"come_and_go" in (tmp_path / "stacks").read_bytes()


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
def test_it_writes_the_stacks_of_all_threads_when_asked(
    broker: Broker, start: Start, noted: Callable[[], list[str]], tmp_path: Path, free_port: int, processes: list[str]
) -> None:
    process = start("slow", "--http", str(free_port), *processes, url=broker.url)
    send(broker.url, "x")
    wait_until(lambda: get(free_port, "/ready")[0] == 200 and noted() == ["begin x"])
    process.send_signal(signal.SIGUSR1)
    lines: list[bytes] = []
    while not lines or b"in until_released" not in lines[-1]:
        lines.append(line_of(process))
    assert any(b"File" in line and b"in run" in line for line in lines)
    assert all(line.startswith(b"  File") for line in lines if b'File "' in line), "one process writes after the other"
    (tmp_path / "release").touch()
    process.terminate()
    assert process.wait(WITHIN) == 0
