"""Make the page of common mistakes by making them: `python -m tests.documentation.mistakes`.

Each runs on an embedded broker of its own; servers of other protocols are imitated by their first bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.cli.main import main
from stompy.transport import tcp
from tests.support.certificates import Certificates

PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"

HEAD = """\
# Common mistakes

What people get wrong most often, and what stompy then says. Every transcript on this page is made by running the
mistake (`python -m tests.documentation.mistakes`); the tests fail where the page is stale. `conn` is a connection to
the embedded broker. For each class of errors see [Troubleshooting](troubleshooting.md).
"""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A heading, the lines that are run, and the server that they meet.

    Attributes:
        server: `"broker"`; `"tls"`, the same with TLS; `"login"`, with users; or the first bytes of another server.
    """

    title: str
    code: str
    server: str | bytes = "broker"


CONNECTING = (
    Mistake(title="Nothing listens on the port", code="stompy.connect('stomp://localhost:61614')"),
    Mistake(title="The host name does not exist", code="stompy.connect('stomp://broker.invalid:61613')"),
    Mistake(title="The port of AMQP", code="stompy.connect('stomp://localhost:5672')", server=b"AMQP\x00\x00\x09\x01"),
    Mistake(
        title="The port of the web console", code="stompy.connect('stomp://localhost:15672')",
        server=b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ),
    Mistake(
        title="The port of OpenWire", code="stompy.connect('stomp://localhost:61616')",
        server=b"\x00\x00\x00\xf0\x01ActiveMQ\x00\x00\x00\x0c",
    ),
    Mistake(title="TLS on a port without TLS", code="stompy.connect('stomp+ssl://localhost:61613')"),
    Mistake(title="No TLS on a port with TLS", code="stompy.connect('stomp://localhost:61614')", server="tls"),
    Mistake(title="A certificate of an unknown authority", code="stompy.connect('stomp+ssl://localhost:61614')",
            server="tls"),
    Mistake(title="A wrong passcode", code="stompy.connect('stomp://localhost:61613', login='me', passcode='wrong')",
            server="login"),
    Mistake(title="An address of another scheme", code="stompy.connect('tcp://localhost:61613')"),
    Mistake(title="Host and port as options", code="stompy.connect(host='localhost', port=61613)"),
    Mistake(title="Names of other libraries", code="stompy.connect('stomp://localhost:61613', password='secret')"),
    Mistake(title="Heartbeats in milliseconds",
            code="stompy.connect('stomp://localhost:61613', heartbeat=(10000, 10000))"),
    Mistake(title="`tls=True`", code="stompy.connect('stomp://localhost:61613', tls=True)"),
)  # fmt: skip

SENDING = (
    Mistake(title="No destination", code="conn.send('hello')"),
    Mistake(title="A misspelt option", code="conn.send('/queue/a', 'hello', prioritty=4)"),
    Mistake(title="A body that cannot be sent", code="conn.send('/queue/a', object())"),
    Mistake(title="`None` as the body", code="conn.send('/queue/a', None)"),
    Mistake(title="A header that is not text", code="conn.send('/queue/a', 'hello', headers={'price': 1.5})"),
    Mistake(title="A header that an argument sets",
            code="conn.send('/queue/a', 'hello', headers={'content-type': 'text/plain'})"),
    Mistake(
        title="A line end in a header, in STOMP 1.0",
        code="conn = stompy.connect('stomp://localhost:61613', versions='1.0')\n"
        "conn.send('/queue/a', 'hello', headers={'note': 'two\\nlines'})",
    ),
    Mistake(title="Sending after the end", code="conn.close()\nconn.send('/queue/a', 'hello')"),
    Mistake(title="`disconnect`", code="conn.disconnect()"),
)  # fmt: skip

RECEIVING = (
    Mistake(title="No subscription", code="conn.receive()"),
    Mistake(title="Nothing there", code="sub = conn.subscribe('/queue/a')\nsub.receive(timeout=0.1)"),
    Mistake(
        title="No acknowledgement, until the prefetch is used up",
        code="conn.send('/queue/a', 'one')\nconn.send('/queue/a', 'two')\n"
        "sub = conn.subscribe('/queue/a', ack='client-individual', prefetch=1)\n"
        "message = sub.receive()\nsub.receive(timeout=0.1)",
    ),
    Mistake(
        title="Acknowledging twice",
        code="conn.send('/queue/a', 'one')\nmessage = conn.subscribe('/queue/a', ack='client-individual').receive()\n"
        "message.ack()\nmessage.ack()",
    ),
    Mistake(
        title="Acknowledging in mode `auto`",
        code="conn.send('/queue/a', 'one')\nmessage = conn.subscribe('/queue/a', ack='auto').receive()\nmessage.ack()",
    ),
    Mistake(title="A mode that does not exist", code="conn.subscribe('/queue/a', ack='individual')"),
    Mistake(
        title="A handler that is `async def`",
        code="async def handle(message): ...\nconn.subscribe('/queue/a', handle)",
    ),
    Mistake(title="A handler that cannot be called", code="conn.subscribe('/queue/a', 'handle')"),
    Mistake(
        title="Receiving beside a handler",
        code="sub = conn.subscribe('/queue/a', lambda message: None)\nsub.receive()",
    ),
)

OTHERS = (
    Mistake(
        title="A task without parentheses", code="worker = stompy.Worker()\n@worker.task\ndef orders(message): ..."
    ),
    Mistake(
        title="A task without a parameter",
        code="worker = stompy.Worker()\n@worker.task('/queue/orders')\ndef orders(): ...",
    ),
    Mistake(title="A misspelt option of a worker", code="stompy.Worker(urll='stomp://localhost:61613')"),
    Mistake(title="A misspelt command", code="$ stompy snd /queue/a hello"),
    Mistake(title="A command without its destination", code="$ stompy send"),
)

PARTS = (("Connecting", CONNECTING), ("Sending", SENDING), ("Receiving", RECEIVING), ("Workers and commands", OTHERS))


def transcript(mistake: Mistake) -> str:
    """Return the lines as they were typed, and what was printed or raised."""
    with ExitStack() as opened:
        if mistake.code.startswith("$ stompy "):
            return f"{mistake.code}\n{_command(mistake.code.split()[2:])}"
        url = opened.enter_context(_server(mistake.server))
        port = url.rpartition(":")[2]
        shown = found[0] if (found := re.findall(r"localhost:(\d+)", mistake.code)) else "61613"
        free = mistake.title.startswith("Nothing listens")
        if free:
            port = _unused()
        names: dict[str, Any] = {"stompy": stompy}
        if mistake.server == "broker":
            names["conn"] = opened.enter_context(stompy.connect(url))
        raised = ""
        try:
            with mock.patch("stompy.transport.tcp.lookup", _lookup):
                exec(mistake.code.replace(f"localhost:{shown}", f"localhost:{port}"), names)  # noqa: S102
        except Exception as error:
            kind = type(error)
            name = kind.__name__ if kind.__module__ == "builtins" else f"stompy.{kind.__name__}"
            raised = f"{name}: {error}".replace(f":{port}", f":{shown}")
        if (last := names.get("conn")) is not None:
            opened.callback(last.close)
        assert raised, mistake.title
    for drawn, shown in ((r"'Testing CA #[^']+'", "'Testing CA'"), (r"'[0-9a-f]{6}-1-1'", "'a1b2c3-1-1'")):
        raised = re.sub(drawn, shown, raised)
    return f"{_typed(mistake.code)}\n{raised}"


def _typed(code: str) -> str:
    lines = code.split("\n")
    marks = ["... " if line.startswith(("def ", "    ")) else ">>> " for line in lines]
    return "\n".join(mark + line for mark, line in zip(marks, lines, strict=True))


def _command(words: list[str]) -> str:
    stream = io.StringIO()
    terminal = mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"})
    with terminal, contextlib.redirect_stderr(stream), contextlib.redirect_stdout(stream):
        main(words)
    return stream.getvalue().strip().split("\n")[-1]


_find = tcp.lookup


def _lookup(host: str, port: int, *, flags: int) -> Any:
    """Look up the own machine, as other names have other answers elsewhere."""
    if host.endswith(".invalid"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return _find("127.0.0.1" if host == "localhost" else host, port, flags=flags)


def _unused() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextlib.contextmanager
def _server(kind: str | bytes) -> Iterator[str]:
    if isinstance(kind, bytes):
        with _foreign(kind) as port:
            yield f"stomp://localhost:{port}"
        return
    with ExitStack() as opened:
        options: dict[str, Any] = {"limits": BrokerLimits(login_delay=0.0)}
        if kind == "tls":
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
            options["tls"] = Certificates(folder).broker_options()
        elif kind == "login":
            options["users"] = {"me": "secret"}
        yield opened.enter_context(Broker(**options)).url


@contextlib.contextmanager
def _foreign(greeting: bytes) -> Iterator[int]:
    """Listen as a server of another protocol, which answers the first bytes of a client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(greeting)

        thread = threading.Thread(target=serve, name="foreign", daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for part, mistakes in PARTS:
        lines.append(f"## {part}\n")
        for mistake in mistakes:
            lines.append(f"### {mistake.title}\n\n```text\n{transcript(mistake)}\n```\n")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
