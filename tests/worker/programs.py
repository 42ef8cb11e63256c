"""Workers that tests run as processes of their own: `stompy worker tests.worker.programs:NAME`."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
from pathlib import Path

import stompy
import stompy.worker

FOLDER = Path(os.environ.get("STOMPY_TEST_FOLDER", "."))


def note(text: str) -> None:
    """Append a line to the file that the test reads."""
    with (FOLDER / "noted").open("a") as file:
        file.write(text + "\n")


slow = stompy.Worker(concurrency=8, timeouts=stompy.Timeouts(close=30))
impatient = stompy.Worker(concurrency=1, timeouts=stompy.Timeouts(close=0.1))
single = stompy.Worker(concurrency=1, timeouts=stompy.Timeouts(close=0.1), max_messages=1)
brief = stompy.Worker(concurrency=1, max_seconds=0.1)


@slow.task("/queue/a", name="slow")
@impatient.task("/queue/a", name="slow")
@single.task("/queue/a", name="slow")
@brief.task("/queue/a", name="slow")
def until_released(message: stompy.Message) -> None:
    """Run until the test makes the file `release`."""
    note(f"begin {message.text}")
    while not (FOLDER / "release").exists():
        time.sleep(0.01)
    note(f"end {message.text}")


class Waiting(stompy.worker.Middleware):
    """Middleware that keeps a worker from completing its start until the test makes the file `go`."""

    def started(self) -> None:
        while not (FOLDER / "go").exists():
            time.sleep(0.01)


starting = stompy.Worker(concurrency=1, timeouts=stompy.Timeouts(close=30), middleware=[Waiting()])
starting.add(until_released, "/queue/a", name="slow")
children = stompy.Worker(concurrency=2, timeouts=stompy.Timeouts(close=20))


@children.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
def die(message: stompy.Message) -> None:
    """Die of some messages."""
    note(f"{os.getpid()} {message.text}")
    if message.text == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


broken = stompy.Worker(concurrency=1)


@broken.task("/queue/a", selector="not a selector (")
def never(message: stompy.Message) -> None:
    """Is never called."""


doomed = stompy.Worker(concurrency=1)
doomed.add(print, "/queue/a")
if "STOMPY_WORKER_CHILD" in os.environ and (FOLDER / "doom").exists():
    os._exit(9)


class Cycle:
    """Is freed by the garbage collector, which then lets other threads run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0.001)


def make_threads_and_garbage() -> None:
    """Start and end threads for as long as the process runs."""
    while True:
        thread = threading.Thread(target=Cycle)
        thread.start()
        thread.join()
        time.sleep(0.004)


class Garbage(stompy.worker.Middleware):
    """Middleware that has the garbage collector run all the time."""

    def started(self) -> None:
        for _ in range(4):
            threading.Thread(target=make_threads_and_garbage, daemon=True).start()
        gc.set_threshold(10)


littering = stompy.Worker(concurrency=20, timeouts=stompy.Timeouts(close=0.1), middleware=[Garbage()])


@littering.task("/queue/a", prefetch=20, time_limit=0.01, attempts=1)
def stick(message: stompy.Message) -> None:
    """Be stuck for as long as the process runs."""
    note(f"begin {message.text}")
    while True:
        time.sleep(1)


chaos = stompy.Worker(
    concurrency=8,
    timeouts=stompy.Timeouts(close=10),
    reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.05, longest=0.2)),
)


@chaos.task("/queue/a", decode="json", attempts=3, backoff=stompy.Backoff(first=0.01, longest=0.05))
def unordered(body: dict[str, object], context: stompy.TaskContext) -> None:
    """Fail always for poison, once for what is flaky."""
    if body["kind"] == "poison" or (body["kind"] == "flaky" and context.attempt == 1):
        raise ValueError(body["kind"])
    note(f"a {body['n']}")


@chaos.task(
    "/queue/k",
    decode="json",
    key=lambda message: message.headers["customer"],
    attempts=3,
    backoff=stompy.Backoff(first=0.01, longest=0.05),
)
def ordered(body: dict[str, object], context: stompy.TaskContext) -> None:
    """The same, in order for each customer."""
    if body["kind"] == "poison" or (body["kind"] == "flaky" and context.attempt == 1):
        raise ValueError(body["kind"])
    note(f"k {context.message.headers['customer']} {body['n']}")


def run_task(message: stompy.Message) -> None:
    """Do what the body says, beside noting when it begins and ends."""
    what, argument = [*message.text.split(), ""][:2]
    note(f"begin {os.getpid()} {message.text}")
    if what == "sleep":
        time.sleep(float(argument))
    elif what == "exit":
        os._exit(int(argument))
    elif what == "segfault":
        ctypes.string_at(0)
    elif what == "once" and not (FOLDER / "struck").exists():
        (FOLDER / "struck").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    elif what in ("beside", "poison"):
        # Kills the process when everything else runs that can, the first time.
        while not (FOLDER / "struck").exists() and len(lines()) < int(argument):
            time.sleep(0.01)
        if what == "poison":
            (FOLDER / "struck").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)
    elif what == "wait":
        while not (FOLDER / "release").exists():
            time.sleep(0.01)
        if argument:
            time.sleep(float(argument))
            os._exit(9)
    note(f"end {os.getpid()} {message.text}")


def lines() -> list[str]:
    """Return what was noted."""
    return (FOLDER / "noted").read_text().splitlines()


alone = stompy.Worker(concurrency=1, timeouts=stompy.Timeouts(close=20))
alone.add(run_task, "/queue/a", attempts=1)
supervised = stompy.Worker(concurrency=8, timeouts=stompy.Timeouts(close=20))
supervised.add(run_task, "/queue/a", attempts=1)
keyed = stompy.Worker(concurrency=8, timeouts=stompy.Timeouts(close=20))
keyed.add(run_task, "/queue/a", key=lambda message: "", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
limited = stompy.Worker(concurrency=2, timeouts=stompy.Timeouts(close=20), max_messages=3)
limited.add(run_task, "/queue/a")
