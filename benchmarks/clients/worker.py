"""The loop that all measured Python clients share: a line in says how many messages, a line out what they cost.

    python -m benchmarks.clients.NAME ACTION PORT FEED

An action takes the port and the feed (a dictionary, JSON on the command line), connects, and returns what runs one
round. The first line out says that it is connected, or that the client has no such action. Of the feed, this loop looks
at `parts` (a figure is for each of so many of a message), `copies` (the figure is how often the body was in memory) and
`wall` (the figure is wall time).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Feed = dict[str, Any]
Round = Callable[[int], "float | None"]
"""Runs so many messages; may return the figure of the round, where that is not the time of the processor."""
Action = Callable[[int, Feed], Round]

BODY = b"x" * 256
TEXT = BODY.decode()
QUEUE = "/queue/bench"
OWN_QUEUE = f"{QUEUE}-{uuid.uuid4().hex}"
"""Of a broker that others use too."""
BATCH = 1000
"""Messages of a batch, of a transaction, or receipts in flight."""
TYPED = {"content_type": "text/plain", "headers": {"customer": "4711"}}
"""With a text, what users send most: a content type and a header."""
DOCUMENT = {"order": 4711, "items": [{"sku": f"A-{number:05}", "count": number} for number in range(7)]}
"""About 230 bytes of JSON."""
WAIT = 120.0
"""Seconds after which a measurement has failed."""
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def cpu() -> tuple[float, float]:
    """Return the seconds of the processor that this process has used: its own, and the system's for it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


def memory(name: str = "VmRSS") -> int:
    """Return the resident memory in bytes, `VmHWM` for its peak; where the system does not tell, the peak."""
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def order(feed: Feed, count: int) -> str:
    """Return the body of an order of messages."""
    return json.dumps({**feed, "count": count})


def growth(grow: Callable[[int], object], count: int) -> float:
    """Return by how many bytes the memory grows for each of so many."""
    before = memory()
    grow(count)
    return (memory() - before) / count


def importing(statement: str) -> Action:
    """Return an action that measures the time of import statements in µs, each in a new Python process."""
    program = f"import time; began = time.process_time(); {statement}; print(time.process_time() - began)"

    def action(port: int, feed: Feed) -> Round:
        def run(count: int) -> float:
            command = [sys.executable, "-c", program]
            # As installed packages are compiled, whatever the shell says.
            env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            return sum(1e6 * float(subprocess.check_output(command, env=env)) for _ in range(count)) / count

        return run

    return action


class Other:
    """A raw socket client in a process of its own.

    Args:
        action: what it does.
        port: of the broker.
        feed: what it has to know.
    """

    def __init__(self, action: str, port: int, feed: Feed) -> None:
        command = [sys.executable, "-m", "benchmarks.clients.raw_client", action, str(port), json.dumps(feed)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self.read()

    def begin(self, count: int) -> None:
        """Begin a round."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")

    def read(self) -> Any:
        """Return what it says at the end of the round."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client of the embedded broker ended")
        return json.loads(line)


def hops(port: int, feed: Feed) -> Round:
    """Return how long a message takes from one process to another through what listens on a port."""
    echo, hop = Other("echo", port, feed), Other("hop", port, feed)

    def run(count: int) -> float:
        echo.begin(count)
        hop.begin(count)
        figure: float = hop.read()["value"]
        echo.read()
        return figure

    return run


def _forked(actions: Mapping[str, Action], port: int) -> None:
    """Run each round in a forked child, and say which: whoever counts its instructions does so by process."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        name, feed, count = json.loads(line)
        child = os.fork()
        if not child:
            actions[name](port, feed)(count)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"pid": child, "code": os.waitstatus_to_exitcode(status)}), flush=True)


def main(actions: Mapping[str, Action]) -> None:
    """Run rounds until standard input ends."""
    name, port, feed = sys.argv[1:]
    if name == "--forked":
        _forked(actions, int(port))
        return
    if name not in actions:
        print(json.dumps({"ready": False}), flush=True)
        return
    settings = json.loads(feed)
    run = actions[name](int(port), settings)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        count = int(line)
        if _RESET.exists():
            _RESET.write_text("5")  # the peak of memory begins anew
        before = memory()
        began, used = time.perf_counter(), cpu()
        figure = run(count)
        wall = time.perf_counter() - began
        user, system = (
            1e6 * (now - then) / count / settings.get("parts", 1) for now, then in zip(cpu(), used, strict=True)
        )
        value = user + system if figure is None else figure
        peak = memory("VmHWM")
        if "wall" in settings:
            value = 1e6 * wall / count
        if "copies" in settings:
            value = (peak - before) / settings["body"]
        result = {"value": value, "user": user, "system": system, "rate": count / wall, "peak": peak}
        print(json.dumps(result), flush=True)
    sys.stdout.flush()
    os._exit(0)  # nobody waits for threads and farewells
