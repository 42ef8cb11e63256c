"""The embedded broker in a process of its own, so that its threads do not share a lock with those of the test.

`python -m tests.support.broker_process` prints its address, then what it holds, as JSON, for each line that it reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompy.broker import Broker

if TYPE_CHECKING:
    from types import TracebackType

ROOT: Final = Path(__file__).parents[2]
END_WITHIN: Final = 30.0
"""Seconds that the process gets to end by itself."""


@dataclass(frozen=True)
class Held:
    """The messages in the broker's queues: those that wait, and those that somebody has and has not acknowledged."""

    ready: int
    unacked: int


class BrokerProcess:
    """Run the broker; `url` is where it listens."""

    def __enter__(self) -> BrokerProcess:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.url = self._line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._process:
            try:
                self._process.communicate(timeout=END_WITHIN)
            finally:
                self._process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def held(self) -> Held:
        """Ask the broker what it holds now."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return Held(**json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker's process has ended"
        return line.rstrip()


def main() -> None:
    with Broker() as broker:
        print(broker.url, flush=True)
        for _ in sys.stdin:
            queues = broker.stats().queues.values()
            held = Held(sum(queue.ready for queue in queues), sum(queue.unacked for queue in queues))
            print(json.dumps(asdict(held)), flush=True)


if __name__ == "__main__":
    main()
