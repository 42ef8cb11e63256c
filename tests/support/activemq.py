"""A real ActiveMQ Classic as a child process, for tests.

`ActiveMQ` runs the broker found in the folder that `STOMPY_ACTIVEMQ_HOME` names (`.ci/activemq` obtains one) with a
configuration of its own in a temporary folder: STOMP on free ports of the loopback address, no web console, no JMX, the
broker's default policies for dead letters and redelivery. Standard library only, and nothing of stompy, so that a fault
of the client cannot hide here.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

HOME_VARIABLE = "STOMPY_ACTIVEMQ_HOME"
HOST = "127.0.0.1"

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 20.0
_POLL = 0.05
_LOG_LINES = 40

# Without tcpNoDelay, Nagle's algorithm holds back every second small frame for 40 ms.
_CONNECTOR = '<transportConnector name="{scheme}" uri="{scheme}://127.0.0.1:{port}?transport.tcpNoDelay=true"/>'

_BROKER_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="
         http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="stompy" useJmx="false" schedulerSupport="true"
          persistent="{persistent}" dataDirectory={data}>
    {store}
    {plugins}
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
      <storeUsage><storeUsage limit="1 gb"/></storeUsage>
      <tempUsage><tempUsage limit="1 gb"/></tempUsage>
    </systemUsage></systemUsage>
    <transportConnectors>{connectors}</transportConnectors>
  </broker>
</beans>
"""

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} - %m%n%throwable
"""

_JVM_OPTIONS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # starts faster, and a test broker never gets hot enough to miss the second compiler
    "-XX:-UsePerfData",  # leaves no file in the system's temporary folder
    # The STOMP transformations and advisory topics make XStream look into the JDK's own classes.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)

# Lives in a session of its own and waits on a pipe that only this process holds: when this process dies without a word
# (os._exit after a test's timeout, SIGKILL), the pipe closes and the broker goes with its folder.
_GUARD = 'read -r _; kill -s KILL -- "-$1" 2>/dev/null; rm -rf -- "$2"'

_LISTENING = re.compile(r"Listening for connections at: ([a-z+]+)://[^\s:]+:(\d+)")


class ActiveMQError(RuntimeError):
    """The broker could not be started, or did not answer; the text holds the end of its log."""


class _Frame(NamedTuple):
    command: str
    headers: dict[str, str]


class ActiveMQ:
    """A broker that lives as long as the `with` block.

    Args:
        users: login to passcode; `None` lets everybody in without a login, an empty mapping lets nobody in. No value
            may hold `#{`, which Spring would evaluate.
        persistent: keep messages in a KahaDB under the temporary folder, so that they outlive `restart` and `kill`;
            otherwise in memory.
        home: the broker's folder; by default what `STOMPY_ACTIVEMQ_HOME` names.

    Attributes:
        ports: STOMP port by connector, `stomp` and `stomp+nio`; they stay the same over `restart`.
        version: the broker's version, from the `server` header of its CONNECTED frame, such as `6.3.1`.
    """

    def __init__(
        self, *, users: Mapping[str, str] | None = None, persistent: bool = False, home: str | None = None
    ) -> None:
        self.users = None if users is None else dict(users)
        self.persistent = persistent
        self.home = Path(home or os.environ.get(HOME_VARIABLE, ""))
        self.ports: dict[str, int] = {"stomp": 0, "stomp+nio": 0}
        self.version = ""
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def available(cls) -> str | None:
        """Return why no broker can be started here, as a skip reason, or `None` if one can."""
        home = os.environ.get(HOME_VARIABLE)
        if not home:
            return f"{HOME_VARIABLE} is not set (.ci/activemq obtains an ActiveMQ and prints what to set it to)"
        return _missing(Path(home))

    @property
    def url(self) -> str:
        """The address of the blocking connector, `stomp://127.0.0.1:port`, without credentials."""
        return f"stomp://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port of the blocking connector; 0 before the first start."""
        return self.ports["stomp"]

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker, on its old ports and data if it ran before, and return once it has accepted a CONNECT.

        Takes at most 60 seconds. A broker that runs already is left alone.

        Raises:
            ActiveMQError: the broker is not there, died, or was not ready in time; nothing of it is left.
        """
        if self.running:
            return
        if reason := _missing(self.home):
            raise ActiveMQError(reason)
        try:
            self._launch()
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def terminate(self) -> None:
        """Shut the broker down (SIGTERM; SIGKILL after 20 seconds). Its data stay for the next `start`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL). Its data stay for the next `start`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Shut the broker down in good order, unless it is down already, and start it again on the same ports."""
        self.terminate()
        self.start()

    def stop(self) -> None:
        """Shut the broker down and remove its folder. May be called at any time, and twice."""
        self.terminate()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def log(self) -> str:
        """Return what the broker has written so far."""
        if self._folder is None:
            return ""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> ActiveMQ:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"pid={self._process.pid}" if self._process is not None and self.running else "down"
        return f"<ActiveMQ {self.version or '?'} {self.url} {state}>"

    def _launch(self) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="stompy-activemq-"))
            (self._folder / "tmp").mkdir()
            (self._folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        (self._folder / "activemq.xml").write_text(self._configuration(self._folder), encoding="utf-8")
        with (self._folder / "log").open("wb") as log:
            self._process = self._spawn(self._command(self._folder), stdin=subprocess.DEVNULL, output=log)
            group = str(self._process.pid)
            self._guard = self._spawn(
                ["/bin/sh", "-c", _GUARD, "guard", group, str(self._folder)], stdin=subprocess.PIPE, output=log
            )

    def _spawn(self, command: list[str], *, stdin: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, stdin=stdin, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=self._folder
        )

    def _command(self, folder: Path) -> list[str]:
        jars = ":".join(f"{self.home / 'lib' / part}/*" for part in ("", "optional", "extra"))
        return [
            _java(),
            *_JVM_OPTIONS,
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            f"-Dactivemq.home={self.home}",
            f"-Dactivemq.base={folder}",
            f"-Dactivemq.data={folder / 'data'}",
            "-classpath",
            f"{folder}:{jars}",
            "org.apache.activemq.console.command.ShellCommand",
            "start",
            # Not as_uri(): 6.3 takes file:/... for a local file and refuses file:///... as a remote one.
            f"xbean:file:{quote(str(folder / 'activemq.xml'))}",
        ]

    def _configuration(self, folder: Path) -> str:
        store = f"<persistenceAdapter><kahaDB directory={quoteattr(str(folder / 'kahadb'))}/></persistenceAdapter>"
        return _BROKER_XML.format(
            persistent=str(self.persistent).lower(),
            data=quoteattr(str(folder / "data")),
            store=store if self.persistent else "",
            plugins="" if self.users is None else _authentication(self.users),
            connectors="".join(_CONNECTOR.format(scheme=scheme, port=port) for scheme, port in self.ports.items()),
        )

    def _await_ready(self) -> None:
        """Wait until every connector has named its port and a CONNECT is answered."""
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            if not self.running:
                code = self._process.returncode if self._process is not None else None
                raise ActiveMQError(f"ActiveMQ ended with status {code} while starting{self._log_tail()}")
            ports = {scheme: int(port) for scheme, port in _LISTENING.findall(self.log())}
            if ports.keys() >= self.ports.keys() and (answer := self._connect(ports["stomp"])):
                self.ports = ports
                self.version = answer.headers.get("server", "").partition("/")[2]
                return
            time.sleep(_POLL)
        raise ActiveMQError(f"ActiveMQ answered no CONNECT within {_START_TIMEOUT:g} s{self._log_tail()}")

    def _connect(self, port: int) -> _Frame | None:
        """Try one CONNECT; `None` when nobody answers yet."""
        login = next(iter((self.users or {}).items()), None)
        answer = _handshake(port, login)
        # With no user at all, a refusal is the only answer there is, and shows as well that the broker is up.
        if answer is None or answer.command == "CONNECTED" or self.users == {}:
            return answer
        raise ActiveMQError(f"ActiveMQ refused the CONNECT: {answer.headers.get('message')}{self._log_tail()}")

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
                return

    def _log_tail(self) -> str:
        lines = [line for line in self.log().splitlines() if not line.startswith("\tat ")][-_LOG_LINES:]
        return "; its log ends:\n    " + "\n    ".join(lines) if lines else "; its log is empty"


def _missing(home: Path) -> str | None:
    """Return what stands in the way of running the broker in `home`, or `None`."""
    for part in ("activemq-broker", "activemq-console", "activemq-stomp", "activemq-spring"):
        if not any(any((home / "lib" / folder).glob(f"{part}*.jar")) for folder in (".", "optional")):
            return f"no ActiveMQ in '{home}': lib/ has no {part} jar ({HOME_VARIABLE} names the folder)"
    if shutil.which(_java()) is None:
        return f"no Java here: '{_java()}' is not a command"
    return None


def _java() -> str:
    java_home = os.environ.get("JAVA_HOME")
    return str(Path(java_home, "bin", "java")) if java_home else "java"


def _authentication(users: Mapping[str, str]) -> str:
    entries = "".join(
        f'<authenticationUser username={quoteattr(login)} password={quoteattr(passcode)} groups="users"/>'
        for login, passcode in users.items()
    )
    return (
        '<plugins><simpleAuthenticationPlugin anonymousAccessAllowed="false">'
        f"<users>{entries}</users></simpleAuthenticationPlugin></plugins>"
    )


def _handshake(port: int, login: tuple[str, str] | None) -> _Frame | None:
    """Exchange CONNECT for its answer over a fresh socket; `None` if the broker closes or says nothing in a second."""
    lines = ["CONNECT", "accept-version:1.2", "host:localhost"]
    if login is not None:
        lines += [f"login:{_escape(login[0])}", f"passcode:{_escape(login[1])}"]
    received = b""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as sock:
            sock.sendall("\n".join([*lines, "", "\0"]).encode())
            while b"\0" not in received:
                chunk = sock.recv(65536)
                if not chunk:
                    return None
                received += chunk
            with contextlib.suppress(OSError):  # after an ERROR the broker may be gone already
                sock.sendall(b"DISCONNECT\n\n\0")
    except OSError:
        return None
    command, *headers = received.partition(b"\n\n")[0].decode(errors="replace").split("\n")
    return _Frame(command, dict(line.partition(":")[::2] for line in headers))


def _escape(value: str) -> str:
    """Escape a login or passcode: other than STOMP says, ActiveMQ unescapes the headers of CONNECT too."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")
