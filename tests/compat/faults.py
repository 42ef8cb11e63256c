"""What goes wrong with stomp.py, each as a function that raises where it does.

    python -m tests.compat.faults LIBRARY PATIENCE ATTEMPTS CA CERTIFICATE NAMES

runs those named side by side with one library and prints, as JSON, what each came to: `""` or what went wrong. PATIENCE
is how many seconds to wait for what does not happen; of ATTEMPTS, the first that goes wrong counts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

stomp: Any = None
patience = 1.0
attempts = 1
authority = certificate = ""

interval = 0.3
"""Seconds between heartbeats."""

ROUNDS = 30
"""Of connecting and disconnecting."""


class Server:
    """A scripted broker that answers CONNECT."""

    def __init__(self, *, tls: bool = False, heartbeat: str = "0,0") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = ("localhost" if tls else "127.0.0.1", self._listener.getsockname()[1])
        self._heartbeat = heartbeat
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls else None
        if self._tls is not None:
            self._tls.load_cert_chain(certificate)

    def accept(self, *, silent: bool = False) -> socket.socket:
        """Return a connection after its handshake."""
        conn, _ = self._listener.accept()
        if self._tls is not None:
            conn = self._tls.wrap_socket(conn, server_side=True)
        if not silent:
            until(conn, b"\0")
            conn.sendall(f"CONNECTED\nversion:1.2\nheart-beat:{self._heartbeat}\n\n\0".encode())
        return conn


class Program(threading.Thread):
    """Code that may hang."""

    def __init__(self, code: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._code = code
        self.raised: BaseException | None = None

    def run(self) -> None:
        try:
            self._code()
        except BaseException as error:
            self.raised = error

    def ends(self, what: str) -> None:
        """Fail if it hangs."""
        self.join(patience)
        assert not self.is_alive(), f"{what} hangs"


class Listener:
    """Counts calls."""

    def __init__(self) -> None:
        self.message = threading.Event()
        self.disconnected = threading.Event()
        self.times_disconnected = 0

    def on_message(self, frame: Any) -> None:
        self.message.set()

    def on_disconnected(self) -> None:
        self.times_disconnected += 1
        self.disconnected.set()

    def on_heartbeat_timeout(self) -> None:
        pass


def until(conn: socket.socket, end: bytes) -> bytes:
    """Read up to some bytes, or the end."""
    read = b""
    while end not in read and (data := conn.recv(65536)):
        read += data
    return read


def message(body: bytes = b"x") -> bytes:
    return b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:1\n\n" + body + b"\0"


def connected(server: Server, listener: Any = None, name: str = "x", **options: Any) -> tuple[Any, socket.socket]:
    """Return a connection and the server's end of it."""
    client = stomp.Connection12([server.address], **options)
    if server.address[0] == "localhost":
        client.set_ssl([server.address], ca_certs=authority)
    client.set_listener(name, listener or Listener())
    connecting = Program(lambda: client.connect("guest", "guest", wait=True))
    connecting.start()
    conn = server.accept()
    connecting.join(20)
    assert client.is_connected()
    return client, conn


def a_message_after_two_heartbeats_is_lost() -> None:
    listener = Listener()
    _, conn = connected(Server(), listener)
    conn.sendall(b"\n\n" + message())
    assert listener.message.wait(patience), "the message was lost"


def the_end_of_a_tls_connection_is_not_noticed() -> None:
    listener = Listener()
    _, conn = connected(Server(tls=True), listener)
    conn.close()
    assert listener.disconnected.wait(patience), "nobody heard of the end"


def sends_in_a_callback_over_tls_hang() -> None:
    sent = threading.Event()

    class Answering(Listener):
        def on_message(self, frame: Any) -> None:
            for _ in range(500):
                client.send("/queue/b", "x" * 100)
            sent.set()

    client, conn = connected(Server(tls=True), Answering())
    conn.sendall(message())
    Program(lambda: until(conn, b"never")).start()
    assert sent.wait(patience), "the 500 sends did not return"


def messages_sent_over_tls_right_before_exit_are_lost() -> None:
    server = Server(tls=True)
    program = (
        f"import {stomp.__name__} as stomp\n"
        f"conn = stomp.Connection12([{server.address!r}])\n"
        f"conn.set_ssl([{server.address!r}], ca_certs={authority!r})\n"
        "conn.connect(wait=True)\n"
        "for _ in range(200): conn.send('/queue/a', 'x' * 100_000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        conn = server.accept()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)  # more is sent than the kernel takes, so who does not wait has exited by now
        received = 0
        with contextlib.suppress(OSError):
            while data := conn.recv(65536):
                received += data.count(b"\0")
    assert received >= 200, f"{received} of 200 messages arrived"


def a_slow_callback_ends_the_session() -> None:
    class Slow(Listener):
        def on_message(self, frame: Any) -> None:
            time.sleep(6 * interval)
            self.message.set()

    listener = Slow()
    milliseconds = int(1000 * interval)
    _, conn = connected(Server(heartbeat=f"{milliseconds},0"), listener, heartbeats=(0, milliseconds))
    conn.sendall(message())
    with contextlib.suppress(OSError):
        while not listener.message.wait(interval / 6):
            conn.sendall(b"\n")
    assert not listener.disconnected.is_set(), "the session ended although the broker sent heartbeats"


def a_message_that_takes_longer_than_a_heartbeat_ends_the_session() -> None:
    listener = Listener()
    milliseconds = int(1000 * interval)
    _, conn = connected(Server(heartbeat=f"{milliseconds},0"), listener, heartbeats=(0, milliseconds))
    with contextlib.suppress(OSError):
        conn.sendall(message()[:-1])
        for _ in range(36):
            time.sleep(interval / 6)
            conn.sendall(b"x")
        conn.sendall(b"\0")
    assert listener.message.wait(patience), "the session ended in the middle of a message"


def heartbeats_stop_after_a_reconnect() -> None:
    class Reconnecting(Listener):
        def on_disconnected(self) -> None:
            client.connect(wait=True)

    milliseconds = int(1000 * interval)
    server = Server(heartbeat=f"0,{milliseconds}")
    client, conn = connected(server, Reconnecting(), "a", heartbeats=(milliseconds, 0))
    conn.close()
    again = server.accept()
    again.settimeout(2 * patience)
    try:
        beat = again.recv(1)
    except TimeoutError:
        beat = b""
    assert beat == b"\n", "no heartbeat was sent on the second session"


def connecting_again_fails() -> None:
    server = Server()

    def serve() -> None:
        for _ in range(ROUNDS):
            conn = server.accept()
            until(conn, b"receipt:bye")
            conn.sendall(b"RECEIPT\nreceipt-id:bye\n\n\0")
            conn.close()

    Program(serve).start()
    client = stomp.Connection12([server.address])
    for _ in range(ROUNDS):
        client.connect(wait=True)
        client.disconnect(receipt="bye")


def any_certificate_is_accepted() -> None:
    server, accepted = Server(tls=True), list[socket.socket]()
    Program(lambda: accepted.append(server.accept())).start()
    client = stomp.Connection12([server.address], reconnect_attempts_max=1)
    client.set_ssl([server.address])
    try:
        client.connect(wait=True)
    except stomp.exception.ConnectFailedException:
        return
    raise AssertionError("the certificate was not verified")


def connecting_to_a_silent_broker_hangs() -> None:
    server = Server()
    connecting = Program(lambda: stomp.Connection12([server.address]).connect(wait=True))
    connecting.start()
    conn = server.accept(silent=True)
    connecting.ends("connect")
    conn.close()


def waiting_for_a_receipt_after_an_error_hangs() -> None:
    waiting = stomp.WaitingListener("7")
    client, conn = connected(Server(), waiting)
    client.send("/queue/a", "x", receipt="7")
    conn.sendall(b"ERROR\nmessage:refused\nreceipt-id:7\n\n\0")
    program = Program(waiting.wait_on_receipt)
    program.start()
    program.ends("wait_on_receipt")


def disconnecting_without_an_answer_hangs() -> None:
    client, _conn = connected(Server())
    program = Program(lambda: client.disconnect(receipt="bye"))
    program.start()
    program.ends("disconnect")


def leaving_a_with_block_before_connect_hangs() -> None:
    def code() -> None:
        with stomp.Connection12([("127.0.0.1", 1)]):
            raise KeyError("not connected yet")

    program = Program(code)
    program.start()
    program.ends("the end of the block")
    assert isinstance(program.raised, KeyError)


def the_reason_of_a_refusal_is_not_in_the_exception() -> None:
    server = Server()
    client = stomp.Connection12([server.address])
    connecting = Program(lambda: client.connect("guest", "wrong", wait=True))
    connecting.start()
    conn = server.accept(silent=True)
    until(conn, b"\0")
    conn.sendall(b"ERROR\nmessage:bad passcode\n\n\0")
    connecting.ends("connect")
    assert "bad passcode" in str(connecting.raised), f"only {connecting.raised!r}"


def the_passcode_is_in_the_log() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    for name in ("stomp.py", "stompy"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    server = Server()
    client = stomp.Connection12([server.address])
    client.connect("guest", "t0p-s3cret")
    until(server.accept(silent=True), b"\0")
    assert any("'STOMP'" in line or "STOMP" in line for line in lines)
    assert not any("t0p-s3cret" in line for line in lines), "the passcode is in the log"


def an_exception_in_a_callback_ends_the_session() -> None:
    class Raising(Listener):
        def on_message(self, frame: Any) -> None:
            if frame.body == "first":
                raise KeyError(frame.body)
            self.message.set()

    listener = Raising()
    _, conn = connected(Server(), listener)
    with contextlib.suppress(OSError):
        conn.sendall(message(b"first"))
        time.sleep(interval)  # so that it is not in the same read
        conn.sendall(message(b"second"))
    assert listener.message.wait(patience), "the second message was not delivered"


FAULTS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        a_message_after_two_heartbeats_is_lost,
        the_end_of_a_tls_connection_is_not_noticed,
        sends_in_a_callback_over_tls_hang,
        messages_sent_over_tls_right_before_exit_are_lost,
        a_slow_callback_ends_the_session,
        a_message_that_takes_longer_than_a_heartbeat_ends_the_session,
        heartbeats_stop_after_a_reconnect,
        connecting_again_fails,
        any_certificate_is_accepted,
        connecting_to_a_silent_broker_hangs,
        waiting_for_a_receipt_after_an_error_hangs,
        disconnecting_without_an_answer_hangs,
        leaving_a_with_block_before_connect_hangs,
        the_reason_of_a_refusal_is_not_in_the_exception,
        the_passcode_is_in_the_log,
        an_exception_in_a_callback_ends_the_session,
    )
}


ONLY = {
    any_certificate_is_accepted.__name__: "8.2.0",
    the_end_of_a_tls_connection_is_not_noticed.__name__: "9.0.0",
    sends_in_a_callback_over_tls_hang.__name__: "9.0.0",
    messages_sent_over_tls_right_before_exit_are_lost.__name__: "9.0.0",
}
"""What only one release has."""


def faults_of(release: str) -> list[str]:
    """Return the names of what goes wrong with a release."""
    return [name for name in FAULTS if ONLY.get(name, release) == release]


def attempted(fault: Callable[[], None]) -> None:
    """Try again what a busy machine may have kept from going wrong."""
    for _ in range(attempts):
        fault()


def run(names: list[str]) -> dict[str, str]:
    """Run functions on a thread of their own each, and return what each came to."""
    programs = {name: Program(functools.partial(attempted, FAULTS[name])) for name in names}
    for program in programs.values():
        program.start()
    for program in programs.values():
        program.join(50)
    return {
        name: "hangs" if program.is_alive() else "" if program.raised is None else repr(program.raised)
        for name, program in programs.items()
    }


if __name__ == "__main__":
    stomp, patience, attempts = import_module(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    authority, certificate = sys.argv[4:6]
    if sys.argv[1] == "stompy.compat":
        vars(import_module("stompy.compat.waiting"))["limit"] = 4.0
        interval = 0.7  # nothing is lost by two seconds in which a busy machine does nothing
    logging.disable(logging.NOTSET)
    print(json.dumps(run(sys.argv[6].split(","))), flush=True)
    os._exit(0)  # what hangs is left
