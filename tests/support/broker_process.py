"""The embedded broker in a separate process, so that its threads do not share the GIL with those of the test.

`python -m tests.support.broker_process` prints its address, then what it holds, as JSON, for each line that it reads.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from stompy.broker import Broker
from tests.support.printed import TOP

WITHIN: Final = 30.0
"""Seconds to wait for an answer of the process, and for its end."""


@dataclass(frozen=True)
class Held:
    """The messages in the broker's queues, including those that are delivered and not acknowledged."""

    ready: int
    unacked: int


class BrokerProcess:
    """The broker that runs in `process`; `url` is where it listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.url = self._line()

    def held(self) -> Held:
        """Ask the broker what it holds now."""
        print(file=self._process.stdin, flush=True)
        return Held(**json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], WITHIN)
        assert ready, f"the broker's process said nothing within {WITHIN:g} s"
        line = self._process.stdout.readline()
        assert line, "the broker's process has ended"
        return line.rstrip()


@contextmanager
def broker_process() -> Iterator[BrokerProcess]:
    """Run a broker until the block ends."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TOP) as process:
        try:
            yield BrokerProcess(process)
            process.communicate(timeout=WITHIN)
        finally:
            process.kill()


def main() -> None:
    with Broker() as broker:
        print(broker.url, flush=True)
        for _ in sys.stdin:
            queues = broker.stats().queues.values()
            held = Held(sum(queue.ready for queue in queues), sum(queue.unacked for queue in queues))
            print(json.dumps(asdict(held)), flush=True)


if __name__ == "__main__":
    main()
