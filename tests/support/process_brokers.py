"""Brokers as local processes, for machines without Docker; implements `start_broker` for this project's tests.

ActiveMQ runs from the folder that `--activemq-home` names (`.ci/activemq` obtains one), with Java; RabbitMQ as
Debian's package `rabbitmq-server` installs it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol
from urllib.parse import quote

from stompy.deadline import Deadline
from stompy.testing.brokers import BrokerSettings, BrokerUnavailableError, Certificates
from stompy.testing.containers import NetworkBroker
from stompy.testing.products import PRODUCTS, Product, Recipe
from tests.support.options import chosen
from tests.support.ports import free_port

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

_LISTENING = re.compile(r"Listening for connections at: ([a-z+]+)://[^\s:]+:(\d+)")

RABBITMQ = Path("/usr/lib/rabbitmq")
"""Where Debian's package and RabbitMQ's own have it."""

# Erlang's port mapper would outlive a broker that starts it; here it ends with the process group.
_START = 'epmd -port "$ERL_EPMD_PORT" & exec "$0"'

_STOP_TIMEOUT = 20.0
_GROUP_TIMEOUT = 10.0
_POLL = 0.02

# Lives in a session of its own and waits on a pipe that only this process holds: when this process dies silently
# (os._exit after a test's timeout, SIGKILL), the pipe closes and the broker goes with its folder.
_GUARD = 'read -r _; kill -s KILL -- "-$1" 2>/dev/null; rm -rf -- "$2"'


@dataclass(frozen=True, slots=True)
class Launch:
    """How one process is started.

    Attributes:
        ports: port by connector; 0 where the broker looks for one itself.
        files: contents by path in the broker's folder.
        environment: variables.
        command: what runs.
    """

    ports: Mapping[str, int]
    files: Mapping[str, bytes] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    command: tuple[str, ...]


class Installed(Protocol):
    """A broker that may be installed on this machine."""

    def missing(self) -> str | None:
        """Return why it cannot be run, or `None` if it can."""

    def launch(
        self, settings: BrokerSettings, certificates: Certificates | None, folder: Path, ports: Mapping[str, int]
    ) -> Launch:
        """Return how to start it with its files in `folder`, on the `ports` it had before."""

    def found_ports(self, log: str) -> dict[str, int]:
        """Return the ports that it has written into its log; nothing if it was given them."""


class InstalledActiveMQ:
    """ActiveMQ Classic in a folder of jars.

    Args:
        version: how its version begins.
    """

    def __init__(self, version: str) -> None:
        self._version = version

    def missing(self) -> str | None:
        """Return why the broker of `--activemq-home` cannot be run."""
        if not chosen.activemq_home:
            return "--activemq-home is not given (.ci/activemq obtains an ActiveMQ and prints its folder)"
        home = Path(chosen.activemq_home)
        for part in ("activemq-broker", "activemq-console", "activemq-stomp", "activemq-spring"):
            if not any(any((home / "lib" / folder).glob(f"{part}*.jar")) for folder in (".", "optional")):
                return f"no ActiveMQ in '{home}': lib/ has no {part} jar (--activemq-home names the folder)"
        if shutil.which(_java()) is None:
            return f"no Java here: '{_java()}' is not a command"
        if not any((home / "lib").glob(f"activemq-broker-{self._version}*.jar")) and self._version not in home.name:
            return f"the ActiveMQ in '{home}' is not a {self._version}x"
        return None

    def launch(
        self, settings: BrokerSettings, certificates: Certificates | None, folder: Path, ports: Mapping[str, int]
    ) -> Launch:
        """Return how to run the broker of `--activemq-home`; it finds free ports and writes them into its log."""
        home = Path(chosen.activemq_home)
        recipe = PRODUCTS["activemq"].recipe(settings, certificates)
        ports = ports or dict.fromkeys(recipe.ports, 0)
        jars = ":".join(f"{home / 'lib' / part}/*" for part in ("", "optional", "extra"))
        return Launch(
            ports=ports,
            files={**_relocated(recipe, ports, folder), "log4j2.properties": _LOGGING.encode()},
            environment=settings.environment,
            command=(
                _java(),
                *_JVM_OPTIONS,
                f"-Djava.io.tmpdir={folder / 'tmp'}",
                f"-Dactivemq.home={home}",
                f"-Dactivemq.base={folder}",
                f"-Dactivemq.data={folder / 'data'}",
                "-classpath",
                f"{folder}:{jars}",
                "org.apache.activemq.console.command.ShellCommand",
                "start",
                # Not as_uri(): 6.3 takes file:/... for a local file and refuses file:///... as a remote one.
                f"xbean:file:{quote(str(folder / 'activemq.xml'))}",
            ),
        )

    def found_ports(self, log: str) -> dict[str, int]:
        """Return what the broker says it listens on."""
        return {scheme: int(port) for scheme, port in _LISTENING.findall(log)}


class InstalledRabbitMQ:
    """RabbitMQ with its STOMP plugins.

    Args:
        version: how its version begins.
    """

    def __init__(self, version: str) -> None:
        self._version = version

    def missing(self) -> str | None:
        """Return why no installed RabbitMQ can be run."""
        versions = [path.name.partition("-")[2] for path in RABBITMQ.glob("lib/rabbitmq_server-*")]
        if not versions or not (RABBITMQ / "bin" / "rabbitmq-server").exists():
            return f"no RabbitMQ in {RABBITMQ} (Debian's package rabbitmq-server)"
        if not any(version.startswith(self._version) for version in versions):
            return f"the RabbitMQ in {RABBITMQ} is {versions[0]}, not a {self._version}x"
        if shutil.which("epmd") is None:
            return "no Erlang here: 'epmd' is not a command"
        return None

    def launch(
        self, settings: BrokerSettings, certificates: Certificates | None, folder: Path, ports: Mapping[str, int]
    ) -> Launch:
        """Return how to run the installed broker, apart from one that runs as a service; on ports chosen here."""
        recipe = PRODUCTS["rabbitmq4"].recipe(settings, certificates)
        ports = ports or {name: free_port() for name in recipe.ports}
        return Launch(
            ports=ports,
            files=_relocated(recipe, ports, folder),
            environment={
                **recipe.environment,
                "HOME": str(folder),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "ERL_EPMD_PORT": str(free_port()),
                "RABBITMQ_NODENAME": f"stompy-{ports['stomp']}@localhost",
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
                "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
                "RABBITMQ_LOG_BASE": str(folder / "logs"),
                "RABBITMQ_LOGS": "-",
            },
            command=("/bin/sh", "-c", _START, str(RABBITMQ / "bin" / "rabbitmq-server")),
        )

    def found_ports(self, log: str) -> dict[str, int]:
        """Return nothing: it was given its ports."""
        return {}


def _relocated(recipe: Recipe, ports: Mapping[str, int], folder: Path) -> dict[str, bytes]:
    """Return the files of a container by name, for a broker on these ports with its files in a folder."""
    files = {}
    homes = {str(PurePosixPath(path).parent) for path in recipe.files}
    for path, content in recipe.files.items():
        if not path.endswith((".p12", ".pem")):
            content = content.replace(b"0.0.0.0", b"127.0.0.1")
            for name, port in ports.items():
                content = content.replace(str(recipe.ports[name]).encode(), str(port).encode())
            for home in (*homes, *(home.replace("/conf", "/data") for home in homes)):
                place = folder / "data" if home.endswith("/data") else folder
                content = content.replace(home.encode(), str(place).encode())
        files[PurePosixPath(path).name] = content
    return files


INSTALLED: dict[str, Installed] = {
    "activemq": InstalledActiveMQ("6."),
    "activemq5": InstalledActiveMQ("5."),
    "rabbitmq3": InstalledRabbitMQ("3."),
    "rabbitmq4": InstalledRabbitMQ("4."),
}


def missing_process(kind: str) -> str | None:
    """Return why a kind cannot run as a process of this machine, or `None` if it can."""
    return INSTALLED[kind].missing() if kind in INSTALLED else f"{kind} is not run as a process"


def process_broker(product: Product, settings: BrokerSettings) -> ProcessBroker:
    """Return a broker that is not started yet.

    Raises:
        BrokerUnavailableError: this machine has none of that kind.
    """
    if reason := missing_process(product.kind):
        raise BrokerUnavailableError(product.kind, (f"process: {reason}",))
    return ProcessBroker(product, settings, INSTALLED[product.kind])


class ProcessBroker(NetworkBroker):
    """A broker that this machine runs, with its files in a temporary folder.

    Args:
        product: what to run.
        settings: what is asked of it.
        installed: what this machine has of it.
    """

    flavour = "process"

    def __init__(self, product: Product, settings: BrokerSettings, installed: Installed) -> None:
        super().__init__(product, settings)
        self._installed = installed
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        """See `RunningBroker`."""
        if self._process is not None and self._process.poll() is None:
            return
        if reason := self._installed.missing():
            raise BrokerUnavailableError(self.kind, (f"process: {reason}",))
        try:
            self._launch()
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `RunningBroker`."""
        self.shut_down()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self.certificates is not None:
            self.certificates.close()
            self.certificates = None

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
        if self.settings.tls and self.certificates is None:
            self.certificates = Certificates()
        launch = self._installed.launch(self.settings, self.certificates, self._folder, self.ports)
        self.ports = {name: port for name, port in launch.ports.items() if port}
        for name, content in launch.files.items():
            (self._folder / name).write_bytes(content)
        environment = {**os.environ, **launch.environment}
        with (self._folder / "log").open("wb") as log:
            self._process = self._spawn(list(launch.command), environment, stdin=subprocess.DEVNULL, output=log)
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

    def _check_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            raise self._unavailable(f"it ended with status {code} while starting")
        self.ports |= self._installed.found_ports(self.log())

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


def _java() -> str:
    java_home = os.environ.get("JAVA_HOME")
    return str(Path(java_home, "bin", "java")) if java_home else "java"
