"""A broker as a process of this machine, for where there is no docker."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from stompy.deadline import Deadline
from stompy.testing.brokers.certificates import Certificates
from stompy.testing.brokers.running import NetworkBroker
from stompy.testing.brokers.settings import BrokerSettings, BrokerUnavailable

if TYPE_CHECKING:
    from stompy.testing.brokers.product import Product

_STOP_TIMEOUT = 20.0
_GROUP_TIMEOUT = 10.0
_POLL = 0.02

# Lives in a session of its own and waits on a pipe that only this process holds: when this process dies without a word
# (os._exit after a test's timeout, SIGKILL), the pipe closes and the broker goes with its folder.
_GUARD = 'read -r _; kill -s KILL -- "-$1" 2>/dev/null; rm -rf -- "$2"'


class ProcessBroker(NetworkBroker):
    """A broker that this machine runs, with its files in a temporary folder.

    Args:
        product: what to run.
        settings: what is asked of it.
    """

    flavour = "process"

    def __init__(self, product: Product, settings: BrokerSettings) -> None:
        super().__init__(product, settings)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        """See `RunningBroker`."""
        if self._process is not None and self._process.poll() is None:
            return
        if reason := self.product.missing():
            raise BrokerUnavailable(self.kind, (f"process: {reason}",))
        try:
            self._launch()
            self._await_ready(("127.0.0.1",))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """See `RunningBroker`."""
        self.shut_down()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._certificates is not None:
            self._certificates.close()
            self._certificates = None

    def shut_down(self) -> None:
        """See `RunningBroker`."""
        self.unpause()
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """See `RunningBroker`."""
        self._stopped = False
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """See `RunningBroker`."""
        self._signal(signal.SIGSTOP)
        self._stopped = True

    def unpause(self) -> None:
        """See `RunningBroker`."""
        if self._stopped:
            self._signal(signal.SIGCONT)
            self._stopped = False

    def log(self) -> str:
        """See `RunningBroker`."""
        if self._folder is None:
            return ""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def _launch(self) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"stompy-{self.kind}-"))
            (self._folder / "tmp").mkdir()
        if self.settings.tls and self._certificates is None:
            self._certificates = Certificates()
        recipe = self.product.as_process(self.settings, self._certificates, self._folder, self.ports)
        self.ports = {name: port for name, port in recipe.ports.items() if port}
        for name, content in recipe.files.items():
            (self._folder / name).write_bytes(content)
        environment = {**os.environ, **recipe.environment}
        with (self._folder / "log").open("wb") as log:
            self._process = self._spawn(list(recipe.command), environment, stdin=subprocess.DEVNULL, output=log)
            guard = ["/bin/sh", "-c", _GUARD, "guard", str(self._process.pid), str(self._folder)]
            self._guard = self._spawn(guard, environment, stdin=subprocess.PIPE, output=log)

    def _spawn(
        self, command: list[str], environment: dict[str, str], *, stdin: int, output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=self._folder,
            env=environment,
        )

    def _find_ports(self) -> dict[str, int]:
        return {**self.ports, **self.product.found_ports(self.log())}

    def _check_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            raise self._unavailable(f"it ended with status {code} while starting")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        guard, self._guard = self._guard, None
        if guard is not None:  # first, so that it never signals a process group that somebody else has got since
            guard.kill()
            guard.wait()
            if guard.stdin is not None:
                guard.stdin.close()
        if process is None:
            return
        for attempt in (number, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, attempt)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT)
                break
        self._await_group(process.pid)

    def _await_group(self, group: int) -> None:
        """Wait for what the broker itself has started, which would still hold its files and ports."""
        deadline = Deadline(_GROUP_TIMEOUT)
        with contextlib.suppress(ProcessLookupError):
            while not deadline.expired:
                os.killpg(group, 0)
                time.sleep(_POLL)
            os.killpg(group, signal.SIGKILL)
