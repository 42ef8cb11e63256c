"""Byte streams over TCP; how they behave is told in `sockets.py`."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from stompy.errors import ConfigurationError, ConnectError, ConnectTimeout
from stompy.transport.address import host_port
from stompy.transport.diagnosis import in_words, lookup_in_words
from stompy.transport.sockets import SocketListener, SocketTransport, wait_writable

if TYPE_CHECKING:
    from stompy.deadline import Deadline


class Endpoint(NamedTuple):
    """One answer of the name service."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        return host_port(str(self.sockaddr[0]), int(self.sockaddr[1]))


def resolve(host: str, port: int, *, deadline: Deadline) -> list[Endpoint]:
    """Return the addresses of `host`, in the system's order of preference, each once, at least one.

    Raises:
        ConfigurationError: `host` cannot be a host name.
        ConnectError: the name has no address.
        ConnectTimeout: the deadline passed first.
    """
    try:
        return query(host, port, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name, not a number: ask the name service, which may take its time
    answer = _in_time(host, port, deadline=deadline)
    address = host_port(host, port)
    if isinstance(answer, OSError):
        raise ConnectError(lookup_in_words(answer, host=host), address=address) from answer
    if not answer:
        raise ConnectError(f"host name without an address: {host}", address=address)
    return answer


def _in_time(host: str, port: int, *, deadline: Deadline) -> list[Endpoint] | OSError:
    answers: list[list[Endpoint] | BaseException] = []

    def look_up() -> None:
        try:
            answers.append(query(host, port, flags=0))
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=look_up, name="stompy-resolver", daemon=True)
    thread.start()
    remaining = deadline.remaining()
    thread.join(None if remaining is None else min(remaining, threading.TIMEOUT_MAX))
    if not answers:
        message = f"the lookup of the host name {host} took longer than the time allowed"
        raise ConnectTimeout(message, address=host_port(host, port))
    answer = answers[0]
    if isinstance(answer, (list, OSError)):
        return answer
    raise answer


def query(host: str, port: int, *, flags: int) -> list[Endpoint]:
    """Ask the system for the addresses of `host`, for as long as it likes, each once.

    Raises:
        ConfigurationError: `host` cannot be a host name.
        OSError: the system's answer, `socket.gaierror` among them.
    """
    # The C library reads up to a NUL: 127.0.0.1\0.example would be the loopback.
    if not host or " " in host or not host.isprintable():
        raise ConfigurationError(f"not a usable host name: {host!r}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except ValueError as error:
        raise ConfigurationError(f"not a usable host name: {host!r}") from error
    return list(dict.fromkeys(Endpoint(family, sockaddr) for family, _, _, _, sockaddr in found))


_CONNECT_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)
_MILLISECONDS = 1000
_LONGEST_WATCH = 32_767
"""Seconds of silence, and between probes, that Linux takes (tcp(7))."""


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """How TCP connections are dialed and watched over by the kernel; durations in seconds.

    What the platform does not have is left out.

    Attributes:
        source: the address of this machine to dial from; `None` leaves it to the routes.
        source_port: the port to dial from; 0 takes a free one.
        keepalive: let the kernel ask an idle peer whether it is still there.
        keepalive_idle: silence before the first question.
        keepalive_interval: between two questions.
        keepalive_probes: unanswered questions after which the connection is lost.
        user_timeout: how long sent bytes may stay unconfirmed by the peer's kernel, or unread behind a full window,
            before the connection is lost (`TCP_USER_TIMEOUT`); `None` leaves it to the system, for Linux 15 minutes
            without an answer and for ever behind a full window.

    Raises:
        ConfigurationError: a value makes no sense.
    """

    source: str | None = None
    source_port: int = 0
    keepalive: bool = True
    keepalive_idle: int = 60
    keepalive_interval: int = 15
    keepalive_probes: int = 4
    user_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.source is not None:
            try:
                ipaddress.ip_address(self.source.partition("%")[0])
            except ValueError:
                raise ConfigurationError(f"source must be an IP address of this machine, not {self.source!r}") from None
        _check_whole("source_port", self.source_port, least=0, most=65535)
        if self.source_port and self.source is None:
            raise ConfigurationError("a source_port needs a source")
        _check_whole("keepalive_idle", self.keepalive_idle, least=1, most=_LONGEST_WATCH)
        _check_whole("keepalive_interval", self.keepalive_interval, least=1, most=_LONGEST_WATCH)
        _check_whole("keepalive_probes", self.keepalive_probes, least=1, most=127)
        if self.user_timeout is not None and not 0.001 <= self.user_timeout <= 1_000_000:
            raise ConfigurationError(f"user_timeout must be some seconds or None, not {self.user_timeout!r}")

    def _socket_options(self) -> list[tuple[int, int, int]]:
        """Return what to set on a socket, as level, option and value."""
        settings = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        if self.keepalive:
            settings.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
            # macOS calls the first one TCP_KEEPALIVE.
            idle = "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE"
            settings += _known(idle, self.keepalive_idle)
            settings += _known("TCP_KEEPINTVL", self.keepalive_interval)
            settings += _known("TCP_KEEPCNT", self.keepalive_probes)
        if self.user_timeout is not None:
            settings += _known("TCP_USER_TIMEOUT", round(self.user_timeout * _MILLISECONDS))
        return settings


def _known(name: str, value: int) -> list[tuple[int, int, int]]:
    option = getattr(socket, name, None)
    return [] if option is None else [(socket.IPPROTO_TCP, option, value)]


def _check_whole(name: str, value: object, *, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {value!r}")


DEFAULT_OPTIONS = TcpOptions()


class TcpTransport(SocketTransport):
    """A connected TCP socket; see `stompy.transport.base.Transport` for what each method promises.

    Args:
        sock: connected; owned by the transport from here on.
        peer: the other end, for messages.
        options: of the socket.
    """

    def __init__(self, sock: socket.socket, *, peer: str, options: TcpOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(sock, peer=peer)
        # Some systems refuse options on a socket that the peer has already reset; recv reports that reset.
        with contextlib.suppress(OSError):
            for level, option, value in options._socket_options():
                sock.setsockopt(level, option, value)


class TcpDialer:
    """Connects to a host and port.

    Args:
        host: a name or an IP address. Of a name with several addresses each is tried in turn, and each gets an equal
            part of the time that is left, so that one that swallows everything does not starve the others.
        port: 1 to 65535.
        options: where to dial from, and how the connection is watched over.
    """

    def __init__(self, host: str, port: int, *, options: TcpOptions = DEFAULT_OPTIONS) -> None:
        if not 1 <= port <= 65535:
            raise ConfigurationError(f"a port to connect to is a number from 1 to 65535, not {port}")
        self._host = host
        self._port = port
        self._options = options

    @property
    def address(self) -> str:
        """Host and port, e.g. `broker.example:61613`."""
        return host_port(self._host, self._port)

    @property
    def host(self) -> str:
        """The host as it was given."""
        return self._host

    def dial(self, deadline: Deadline) -> TcpTransport:
        """Return a new connection.

        Raises:
            ConfigurationError: the host cannot be a host name.
            ConnectError: nobody answers there; the message names each address tried and why it failed.
            ConnectTimeout: the deadline passed first.
        """
        endpoints = resolve(self._host, self._port, deadline=deadline)
        failures: list[OSError] = []
        for tried, endpoint in enumerate(endpoints):
            try:
                return _connect(endpoint, self._options, _share(deadline, parts=len(endpoints) - tried))
            except OSError as error:
                failures.append(error)
        message = _explain(endpoints, failures)
        # The last address had all the time that was left, so that its running out of time means that time is up.
        kind = ConnectTimeout if isinstance(failures[-1], _NoAnswer) else ConnectError
        raise kind(message, address=self.address) from failures[-1]

    def __repr__(self) -> str:
        return f"<TcpDialer {self.address}>"


class _NoAnswer(TimeoutError):
    """An address did not answer in its share of the time."""


def _share(deadline: Deadline, *, parts: int) -> Deadline:
    remaining = deadline.remaining()
    return deadline if remaining is None else deadline.sooner(remaining / parts)


def _explain(endpoints: list[Endpoint], failures: list[OSError]) -> str:
    if len(endpoints) == 1:
        return in_words(failures[0])
    return "; ".join(f"{endpoint} {in_words(error)}" for endpoint, error in zip(endpoints, failures, strict=True))


def _connect(endpoint: Endpoint, options: TcpOptions, deadline: Deadline) -> TcpTransport:
    sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if options.source is not None:
            _bind_source(sock, endpoint, options.source, options.source_port)
        code = sock.connect_ex(endpoint.sockaddr)
        if code in _CONNECT_UNDER_WAY:
            if not wait_writable(sock.fileno(), deadline=deadline):
                raise _NoAnswer("no answer in time")
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code and sock.getsockname() == sock.getpeername():
            # TCP's simultaneous open: dialing a free local port that the kernel also picked as our own.
            code = errno.ECONNREFUSED
        if code:
            raise OSError(code, os.strerror(code))
        return TcpTransport(sock, peer=str(endpoint), options=options)
    except BaseException:
        sock.close()
        raise


def _bind_source(sock: socket.socket, endpoint: Endpoint, source: str, port: int) -> None:
    if (endpoint.family == socket.AF_INET6) != (":" in source):
        raise OSError(f"is not of the family of the source address {source}")
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((source, port))
    except OSError as error:
        raise OSError(f"cannot be dialed from {host_port(source, port)}: {in_words(error)}") from error


class TcpListener(SocketListener[TcpTransport]):
    """Listens on a host and port.

    Args:
        host: a name or an IP address of this machine; the first of its addresses that can be had is taken.
        port: 0 takes a free one; see `address`.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        sock = _listen(host, port)
        name = sock.getsockname()
        self._address: tuple[str, int] = (str(name[0]), int(name[1]))
        try:
            super().__init__(sock, shown=host_port(*self._address))
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {host_port(host, port)}: {in_words(error)}") from error

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        return self._address

    def _transport(self, sock: socket.socket, address: Any) -> TcpTransport:
        return TcpTransport(sock, peer=host_port(str(address[0]), int(address[1])))


def _listen(host: str, port: int) -> socket.socket:
    where = host_port(host, port)
    if not 0 <= port <= 65535:
        raise ConfigurationError(f"a port to listen on is a number from 0 to 65535, not {port}")
    try:
        endpoints = query(host, port, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {where}: {lookup_in_words(error, host=host)}") from error
    failures: list[OSError] = []
    for endpoint in endpoints:
        try:
            return _bind(endpoint)
        except OSError as error:
            failures.append(error)
    raise ConfigurationError(f"cannot listen on {where}: {_explain(endpoints, failures)}") from failures[-1]


def _bind(endpoint: Endpoint) -> socket.socket:
    sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if os.name == "posix":  # elsewhere the option would let two programs share a port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(endpoint.sockaddr)
        sock.listen(socket.SOMAXCONN)
    except BaseException:
        sock.close()
        raise
    return sock
