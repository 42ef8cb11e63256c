"""The one CONNECT by which a broker is known to serve."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from stompy.testing.brokers import handshake

Serving = Callable[[bytes], tuple[int, list[bytes]]]


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Return a function that answers one CONNECT with the given bytes, and gives the port and what it heard."""
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []

    def serve(answer: bytes) -> tuple[int, list[bytes]]:
        listener = socket.create_server(("127.0.0.1", 0))
        heard: list[bytes] = []

        def answer_one() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(10)
                data = b""
                while b"\0" not in data:
                    data += sock.recv(4096)
                heard.append(data)
                sock.sendall(answer)
                if answer:
                    while sock.recv(4096):  # to the end of the stream
                        pass

        threads.append(threading.Thread(target=answer_one))
        listeners.append(listener)
        threads[-1].start()
        return listener.getsockname()[1], heard

    yield serve
    for thread in threads:
        thread.join(10)
    for listener in listeners:
        listener.close()


def test_the_answer_tells_who_serves(serving: Serving) -> None:
    port, heard = serving(b"CONNECTED\nserver:ActiveMQ/6.3.1\nserver:later\nversion:1.2\n\n\0\n")
    answer = handshake.ask("127.0.0.1", port, vhost="/")
    assert answer is not None
    assert (answer.command, answer.server) == ("CONNECTED", "ActiveMQ/6.3.1")
    assert heard == [b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"]


@pytest.mark.parametrize(("escape", "sent"), [(True, b"passcode:a\\cb\\\\c\n"), (False, b"passcode:a:b\\c\n")])
def test_a_passcode_is_escaped_for_brokers_that_unescape_it(serving: Serving, escape: bool, sent: bytes) -> None:
    port, heard = serving(b"CONNECTED\n\n\0")
    handshake.ask("127.0.0.1", port, login="ann", passcode="a:b\\c", escape=escape)
    assert sent in heard[0]


def test_a_refusal_is_an_answer(serving: Serving) -> None:
    port, _ = serving(b"ERROR\nmessage:who are you\n\n\0")
    answer = handshake.ask("127.0.0.1", port)
    assert answer is not None
    assert (answer.command, answer.headers["message"], answer.server) == ("ERROR", "who are you", "")


def test_a_connection_that_is_only_accepted_is_no_answer(serving: Serving) -> None:
    port, _ = serving(b"")
    assert handshake.ask("127.0.0.1", port) is None


@pytest.mark.parametrize(
    ("said", "speaks"), [(b"HTTP/1.1 404 Not Found\r\n", True), (b"ERROR\r\n", False), (b"", False)]
)
def test_whether_http_is_spoken(said: bytes, speaks: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer_one() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(4096)
            sock.sendall(said)

    thread = threading.Thread(target=answer_one)
    thread.start()
    assert handshake.answers_http("127.0.0.1", listener.getsockname()[1]) is speaks
    thread.join(10)
    listener.close()


def test_tls_is_spoken_where_it_is_asked_for(serving: Serving) -> None:
    port, heard = serving(b"")
    with contextlib.suppress(ssl.SSLError):
        assert handshake.ask("127.0.0.1", port, tls=ssl.create_default_context()) is None
    assert heard[0].startswith(b"\x16\x03")  # a ClientHello


def test_nobody_there_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert handshake.ask("127.0.0.1", port) is None


def test_silence_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_PATIENCE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert handshake.ask("127.0.0.1", mute.getsockname()[1]) is None
