"""A broker in a thread that answers CONNECT as a test likes, and a product that needs neither docker nor Java."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from stompy.testing.brokers import BrokerSettings, Certificates
from stompy.testing.products import Product, Recipe
from tests.support.process_brokers import Launch

CONNECTED = b"CONNECTED\nserver:Toy/1.2.3 (for tests)\nversion:1.2\n\n\0\n"


class Toy:
    """Answers the CONNECTs of its clients, one after the other, with `answers` in turn; the last one forever."""

    def __init__(self, *answers: bytes) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.heard: list[bytes] = []
        self._answers = list(answers) or [CONNECTED]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                with sock, contextlib.suppress(OSError):
                    sock.settimeout(10)
                    self.heard.append(sock.recv(65_536))
                    answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                    sock.sendall(answer)
                    if answer:
                        sock.recv(65_536)  # DISCONNECT, or the end of the stream

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join(10)


# Listens on the port that it is given, answers CONNECT, and leaves a trace of a DISCONNECT.
PROGRAM = f"""
import signal, socket, sys
def end(*_):
    print("in good order", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("port", listener.getsockname()[1], flush=True)
while True:
    sock, _ = listener.accept()
    try:
        sock.recv(65536)
        sock.sendall({CONNECTED!r})
        sock.recv(65536)
    except OSError:
        pass
    sock.close()
"""


def toy_recipe(settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
    ports = {"stomp": 61613, **({"stomp+ssl": 61614} if settings.tls else {})}
    return Recipe(ports=ports, files={"/etc/toy.conf": b"x"}, environment={"TOY": "1"}, hostname="localhost")


TOY = Product("toy", ("toy/official:1", "toy/former:1"), toy_recipe, "generic")


class InstalledToy:
    """The same as a process.

    Args:
        program: what it runs.
        absent: why it cannot be run.
    """

    def __init__(self, program: str = PROGRAM, absent: str | None = None) -> None:
        self.program = program
        self.absent = absent

    def missing(self) -> str | None:
        return self.absent

    def launch(
        self, settings: BrokerSettings, certificates: Certificates | None, folder: Path, ports: Mapping[str, int]
    ) -> Launch:
        port = ports.get("stomp", 0)
        return Launch(
            ports=dict(ports) or {"stomp": 0},
            files={"toy.py": self.program.encode()},
            environment=settings.environment,
            command=(sys.executable, str(folder / "toy.py"), str(port)),
        )

    def found_ports(self, log: str) -> dict[str, int]:
        said = [line.split()[1] for line in log.splitlines() if line.startswith("port ")]
        return {"stomp": int(said[-1])} if said else {}
