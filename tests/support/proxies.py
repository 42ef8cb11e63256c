"""A little proxy of each kind, which really connects: HTTP CONNECT and SOCKS5, with or without a login."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from types import TracebackType

NAMES = {"broker.test": "127.0.0.1"}
"""What only the proxy can resolve."""

WITHIN = 20.0


class LittleProxy:
    """Listens on the loopback and connects its clients to where they ask to be.

    Args:
        kind: `http` or `socks5`.
        login: `login:passcode` that it wants; `None` lets everybody in.
        source: the address that it dials from.

    Attributes:
        asked: the host and port of each request, as it was written.
    """

    def __init__(self, kind: str, *, login: str | None = None, source: str = "127.0.0.9") -> None:
        self._kind = kind
        self._login = login
        self._source = source
        self.asked: list[tuple[str, int]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def place(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    @property
    def url(self) -> str:
        """Its address without credentials."""
        return f"{self._kind}://{self.place}"

    @property
    def url_with_login(self) -> str:
        """Its address with the credentials that it wants."""
        return f"{self._kind}://{self._login}@{self.place}" if self._login else self.url

    def cut(self) -> None:
        """End all connections of this moment."""
        with self._lock:
            connections = list(self._open)
        for sock in connections:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything and wait for the threads."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads[0].join(WITHIN)
        self.cut()
        for thread in self._threads:
            thread.join(WITHIN)

    def __enter__(self) -> LittleProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, function: object, *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments, name="little-proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with self._held(client):
            try:
                target = self._http(client) if self._kind == "http" else self._socks(client)
            except (OSError, EOFError):
                return
            if target is None:
                return
            with self._held(target):
                other = threading.Thread(target=_pump, args=(target, client), name="little-proxy", daemon=True)
                other.start()
                _pump(client, target)
                other.join(WITHIN)

    @contextlib.contextmanager
    def _held(self, sock: socket.socket):  # type: ignore[no-untyped-def]
        with self._lock:
            self._open.add(sock)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()

    def _dial(self, host: str, port: int) -> socket.socket:
        self.asked.append((host, port))
        return socket.create_connection((NAMES.get(host, host), port), WITHIN, source_address=(self._source, 0))

    def _http(self, client: socket.socket) -> socket.socket | None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += _some(client)
        lines = head.decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        method, target, _ = lines[0].split(" ")
        assert (method, fields["Host"]) == ("CONNECT", target)
        if self._login is not None:
            given = fields.get("Proxy-Authorization", "Basic ").removeprefix("Basic ")
            if base64.b64decode(given).decode() != self._login:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
                return None
        host, _, port = target.rpartition(":")
        try:
            reached = self._dial(host.strip("[]"), int(port))
        except OSError:
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nsigh")
            return None
        client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: little\r\n\r\n")
        return reached

    def _socks(self, client: socket.socket) -> socket.socket | None:
        _, count = _exactly(client, 2)
        methods = _exactly(client, count)
        wanted = 0 if self._login is None else 2
        if wanted not in methods:
            client.sendall(b"\x05\xff")
            return None
        client.sendall(bytes([5, wanted]))
        if self._login is not None:
            _, length = _exactly(client, 2)
            login = _exactly(client, length).decode()
            passcode = _exactly(client, _exactly(client, 1)[0]).decode()
            if f"{login}:{passcode}" != self._login:
                client.sendall(b"\x01\x01")
                return None
            client.sendall(b"\x01\x00")
        _, command, _, kind = _exactly(client, 4)
        assert command == 1
        if kind == 3:
            host = _exactly(client, _exactly(client, 1)[0]).decode()
        else:
            family, length = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, _exactly(client, length))
        port = int.from_bytes(_exactly(client, 2), "big")
        try:
            reached = self._dial(host, port)
        except socket.gaierror:
            client.sendall(b"\x05\x04\x00\x01" + bytes(6))
            return None
        except OSError:
            client.sendall(b"\x05\x05\x00\x01" + bytes(6))
            return None
        client.sendall(b"\x05\x00\x00\x03\x06little" + bytes(2))
        return reached


def _some(sock: socket.socket) -> bytes:
    received = sock.recv(65_536)
    if not received:
        raise EOFError
    return received


def _exactly(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = sock.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return received


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(65_536):
            sink.sendall(part)
    except OSError:
        pass
    # The end of one direction is passed on; an error ends both.
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
