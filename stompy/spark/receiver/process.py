"""Receivers in a separate process, so that they do not share the driver's Python and its GIL.

| thread | owns | may block on |
|---|---|---|
| `stompy-spool-watch`, in the parent | the status that the child reports | reading from the child |
| main, in the child | the receivers | reading from the parent, whose end is the child's |

The parent sends the options through a pipe, as they may hold secrets, and leaves it open; when the pipe closes, the
child stops. So a child never outlives its parent, however that ends. The child regularly writes its status as a line of
JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import sys
from collections.abc import Callable
from typing import IO, Any

from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, ConnectTimeoutError, SpoolError, StompError
from stompy.forks import Owner, when_forked
from stompy.spark.receiver.health import Wakeup
from stompy.spark.receiver.pool import ReceiverPool
from stompy.spark.source_options import SpoolOptions
from stompy.spark.spool.spool import make_spool, open_files
from stompy.threads import DaemonThread
from stompy.world import os, select, subprocess

_STATUS_INTERVAL = 0.2
"""Seconds between two status lines of the child."""
_STOP_TIMEOUT = 5.0
"""Seconds to wait for the child to end."""


class ReceiverProcess(DaemonThread):
    """A child process that fills a spool, and the thread that reads its status; the thread ends with the process.

    Args:
        options: of the receivers.
    """

    def __init__(self, options: SpoolOptions) -> None:
        super().__init__("stompy-spool-watch")
        self._spool_dir = options.spool_dir
        self._wakeup = Wakeup()
        self._status: dict[str, Any] = {"quiet": 0.0, "subscribed": 0.0, "error": None}
        self._stopping = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stompy.spark.receiver.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `run` reports
            pickle.dump(options, self._process.stdin)
            self._process.stdin.flush()
        self._owner = Owner("process of receivers")
        when_forked(self)
        self.start()

    def after_fork(self) -> None:
        """Close the copies of the pipes in a forked child: the receivers end when no process has them open."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert isinstance(pipe, io.BufferedReader | io.BufferedWriter)
            pipe.raw.close()  # `pipe.close` waits for the thread that reads, which the child does not have

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def run(self) -> None:
        """Read the child's status until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._status = json.loads(line)
            self._wakeup.wake()
        code = self._process.wait()
        if self._status["error"] is None and not self._stopping:
            reason = f"its process ended with code {code}"
            self._status = {**self._status, "quiet": 0.0, "error": ["ConnectionLostError", reason]}
        self._wakeup.wake()

    def check(self) -> None:
        """Raise if no messages can arrive."""
        error = self._status["error"]
        if error is None:
            return
        kind, reason = error
        text = f"the receivers: {kind}: {reason}"
        if kind.startswith("Spool"):
            raise SpoolError(reason, path=self._spool_dir)
        raise ConnectTimeoutError(text) if kind == "ConnectTimeoutError" else ConnectionLostError(text)

    def quiet_for(self) -> float:
        """Return the seconds since any receiver got a message; 0 unless all of them are subscribed."""
        return float(self._status["quiet"])

    def subscribed_for(self) -> float:
        """Return the seconds since all of them were subscribed for the first time."""
        return float(self._status["subscribed"])

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less; raises as `check`. Checked at each status line of the child."""

        def look() -> float:
            self.check()
            return left()

        self._wakeup.watch(look)

    def stop(self) -> None:
        """End the process. Idempotent."""
        if self._owner.forked:
            return
        self._stopping = True
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if not self.join_until(Deadline(_STOP_TIMEOUT)):
            self._process.kill()
            self.join_until(Deadline(_STOP_TIMEOUT))
        self._process.stdout.close()


def main(stdin: IO[bytes], stdout: IO[str]) -> int:
    """Run in the child: receive until the parent closes its pipe; return the exit code."""
    options: SpoolOptions = pickle.load(stdin)  # noqa: S301 - from the parent
    try:
        pool = ReceiverPool(options, make_spool(open_files(options.spool_dir), options.origin))
    except StompError as error:
        _send_status(stdout, error=error)
        return 1
    try:
        while not _parent_closed(stdin):
            try:
                pool.check()
            except StompError as error:
                _send_status(stdout, error=error)
                return 1
            _send_status(stdout, quiet=pool.quiet_for(), subscribed=pool.subscribed_for())
    finally:
        pool.stop()
    return 0


def _send_status(
    stdout: IO[str], *, quiet: float = 0.0, subscribed: float = 0.0, error: StompError | None = None
) -> None:
    failure = None if error is None else [type(error).__name__, str(error)]
    # If the parent has ended, `_parent_closed` finds it out.
    with contextlib.suppress(BrokenPipeError):
        stdout.write(json.dumps({"quiet": quiet, "subscribed": subscribed, "error": failure}) + "\n")
        stdout.flush()


def _parent_closed(stdin: IO[bytes]) -> bool:
    """Wait for `_STATUS_INTERVAL`; return whether the parent has closed its pipe, to which it writes nothing more."""
    readable, _, _ = select.select([stdin], [], [], _STATUS_INTERVAL)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout))
