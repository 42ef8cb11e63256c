"""Receivers as processes of their own: one core of the driver is not all there is.

| thread | owns | may block on |
|---|---|---|
| `stompy-spool-<lane>-watch`, in the parent | what the child has told | reading from the child |
| main, in the child | the receivers | reading from the parent, whose end is the child's |

The parent sends the options and leaves the pipe open; when it closes, the child stops. So a child never outlives its
parent, however that dies. The child writes a line of JSON now and then: how it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import IO, Any

from stompy.deadline import Deadline
from stompy.errors import ConnectionLost, ConnectTimeout, SpoolError, StompError
from stompy.link.thread import HouseThread
from stompy.spark.receiver.bell import Bell
from stompy.spark.receiver.crew import Lane, ThreadCrew
from stompy.spark.source_options import SpoolOptions
from stompy.spark.spool.spool import Spool, make_spool, open_files
from stompy.spark.spool.view import LaneView

_TELL = 0.2
"""Seconds between two lines of a child."""
_STOPPING = 5.0
"""Seconds that a child gets for its end."""


class _Child(HouseThread):
    """One receiver's process, and what it has told. The thread ends with the process."""

    def __init__(self, options: SpoolOptions, lane: int, bell: Bell) -> None:
        super().__init__(f"stompy-spool-{lane}-watch")
        self._lane = lane
        self._bell = bell
        self.told: dict[str, Any] = {"quiet": 0.0, "subscribed": 0.0, "error": None}
        self._stopping = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stompy.spark.receiver.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then it has ended, which `run` finds out
            pickle.dump((options, lane), self._process.stdin)
            self._process.stdin.flush()

    def run(self) -> None:
        """Take what the child tells, to its end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told = json.loads(line)
            self._bell.ring()
        code = self._process.wait()
        if self.told["error"] is None and not self._stopping:
            self.told = {**self.told, "quiet": 0.0, "error": ["ConnectionLost", f"its process ended with code {code}"]}
        self._bell.ring()

    def check(self) -> None:
        """Raise what keeps messages from coming."""
        error = self.told["error"]
        if error is None:
            return
        kind, words = error
        text = f"receiver {self._lane}: {kind}: {words}"
        if kind.startswith("Spool"):
            raise SpoolError(words, path=f"lane {self._lane}")
        raise ConnectTimeout(text) if kind == "ConnectTimeout" else ConnectionLost(text)

    def hang_up(self) -> None:
        """Tell the child to stop."""
        self._stopping = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self, deadline: Deadline) -> None:
        """Wait for its end, or bring it about."""
        if not self.join_until(deadline):
            self._process.kill()
            self.join_until(Deadline(_STOPPING))
        if self._process.stdout is not None:
            self._process.stdout.close()


class ProcessCrew:
    """Receivers as processes of their own.

    Args:
        options: how many, and what they do.
        spool: to fill.
    """

    def __init__(self, options: SpoolOptions, spool: Spool) -> None:
        self._stopped = False
        known = {*spool.lanes(), *range(options.receivers)}
        self._lanes = [LaneView(spool.files, spool.origin(lane)) for lane in sorted(known)]
        self._bell = Bell()
        self._children: list[_Child] = []
        try:
            for lane in range(options.receivers):
                self._children.append(_Child(options, lane, self._bell))
                self._children[-1].start()
        except BaseException:
            self.stop()
            raise

    @property
    def lanes(self) -> Sequence[Lane]:
        """The lanes of the spool, in order."""
        return self._lanes

    def check(self) -> None:
        """Raise what keeps messages from coming."""
        for child in self._children:
            child.check()

    def quiet_for(self) -> float:
        """Return for how many seconds none of the receivers, all of them subscribed, has got a message."""
        return min(float(child.told["quiet"]) for child in self._children)

    def subscribed_for(self) -> float:
        """Return for how many seconds all of them have had a subscription."""
        return min(float(child.told["subscribed"]) for child in self._children)

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less; raises as `check`. A child that says something is looked at."""

        def look() -> float:
            self.check()
            return left()

        self._bell.watch(look)

    def stop(self) -> None:
        """End the processes; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        for child in self._children:
            child.hang_up()
        deadline = Deadline(_STOPPING)
        for child in self._children:
            child.end(deadline)
        for lane in self._lanes:
            lane.close()


def main(stdin: IO[bytes], stdout: IO[str]) -> int:
    """Be the child: receive until the parent hangs up; return the exit code."""
    options, lane = pickle.load(stdin)  # noqa: S301 - of the parent
    closing = threading.Event()
    try:
        spool = make_spool(open_files(options.spool_dir), options.destination)
        crew = ThreadCrew(replace(options, receivers=1), spool, first=lane, closing=closing)
    except StompError as error:
        _tell(stdout, error=error)
        return 1
    try:
        while not _hung_up(stdin):
            try:
                crew.check()
            except StompError as error:
                _tell(stdout, error=error)
                return 1
            _tell(stdout, quiet=crew.quiet_for(), subscribed=crew.subscribed_for())
    finally:
        crew.stop()
    return 0


def _tell(stdout: IO[str], *, quiet: float = 0.0, subscribed: float = 0.0, error: StompError | None = None) -> None:
    told = None if error is None else [type(error).__name__, str(error)]
    # A parent that is gone is found out by its other pipe.
    with contextlib.suppress(BrokenPipeError):
        stdout.write(json.dumps({"quiet": quiet, "subscribed": subscribed, "error": told}) + "\n")
        stdout.flush()


def _hung_up(stdin: IO[bytes]) -> bool:
    """Wait a moment, and return whether the parent has closed its end: nothing else ever comes."""
    readable, _, _ = select.select([stdin], [], [], _TELL)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout))
