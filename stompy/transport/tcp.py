"""Transports over TCP (see `sockets.py`), dialer, listener, and name lookup within a deadline.

| thread | lives with | owns | may block on | never |
|---|---|---|---|---|
| `stompy-resolver` | one lookup | its result | getaddrinfo | holds a lock |

The caller joins the resolver thread. A lookup that takes longer than the deadline cannot be interrupted: its daemon
thread then ends by itself when the system's resolver gives up, usually within half a minute.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any, NamedTuple

from stompy.arguments import check_fields
from stompy.errors import ConfigurationError, ConnectError, ConnectTimeoutError
from stompy.transport.address import host_port
from stompy.transport.diagnosis import describe_lookup_error, describe_os_error
from stompy.transport.sockets import SocketListener, SocketTransport, new_socket, wait_writable
from stompy.values import Value
from stompy.world import os, socket, threading

if TYPE_CHECKING:
    from stompy.deadline import Deadline


_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)
_MILLISECONDS = 1000
_RANGES = (
    ("source_port", 0, 65_535),
    ("keepalive_idle", 1, 32_767),
    ("keepalive_interval", 1, 32_767),
    ("keepalive_probes", 1, 127),
)
"""The least and the most of options; those of keepalive are what Linux accepts (tcp(7))."""


class Endpoint(NamedTuple):
    """A network address, as the name service returns it."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        return host_port(str(self.sockaddr[0]), int(self.sockaddr[1]))


def resolve(host: str, port: int, *, deadline: Deadline) -> list[Endpoint]:
    """Return the addresses of `host`, at least one, without duplicates, in the system's order of preference.

    Raises:
        ConfigurationError: `host` is not a valid host name.
        ConnectError: the name has no address, or the lookup failed.
        ConnectTimeoutError: the deadline passed first.
    """
    try:
        return lookup(host, port, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name, not an IP address: ask the name service, which may take long
    answer = _in_time(host, port, deadline=deadline)
    address = host_port(host, port)
    if isinstance(answer, OSError):
        raise ConnectError(describe_lookup_error(answer, host=host), address=address) from answer
    if not answer:
        raise ConnectError(f"the host name has no address: {host}", address=address)
    return answer


def _in_time(host: str, port: int, *, deadline: Deadline) -> list[Endpoint] | OSError:
    answers: list[list[Endpoint] | BaseException] = []

    def look_up() -> None:
        try:
            answers.append(lookup(host, port, flags=0))
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=look_up, name="stompy-resolver", daemon=True)
    thread.start()
    remaining = deadline.remaining()
    thread.join(None if remaining is None else min(remaining, threading.TIMEOUT_MAX))
    if not answers:
        message = f"the lookup of the host name {host} took longer than the time allowed"
        raise ConnectTimeoutError(message, address=host_port(host, port))
    answer = answers[0]
    if isinstance(answer, (list, OSError)):
        return answer
    raise answer


def lookup(host: str, port: int, *, flags: int) -> list[Endpoint]:
    """Return the addresses of `host`, without duplicates; it may block for as long as the system's resolver.

    Raises:
        ConfigurationError: `host` is not a valid host name.
        OSError: the lookup failed, e.g. with `socket.gaierror`.
    """
    # The C library reads up to a NUL: 127.0.0.1\0.example would be the loopback.
    if not host or " " in host or not host.isprintable():
        raise ConfigurationError(f"not a usable host name: {host!r}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except ValueError as error:
        raise ConfigurationError(f"not a usable host name: {host!r}") from error
    return list(dict.fromkeys(Endpoint(family, sockaddr) for family, _, _, _, sockaddr in found))


class TcpOptions(Value):
    """Options of TCP connections; durations in seconds.

    Options that the platform does not support are ignored.

    Attributes:
        source: the local IP address to connect from; `None` leaves the choice to the system.
        source_port: the local port to connect from; 0 means any free port.
        keepalive: whether the kernel probes an idle peer.
        keepalive_idle: the idle time before the first probe.
        keepalive_interval: the time between two probes.
        keepalive_probes: the number of unanswered probes after which the connection is lost.
        user_timeout: how long sent bytes may stay unacknowledged by the peer's kernel, or the peer's window full,
            before the connection is lost (`TCP_USER_TIMEOUT`); `None` means the system's default: on Linux, 15 minutes
            without an answer, and no limit for a full window.
        nodelay: whether each frame leaves at once (`TCP_NODELAY`). Without it a small frame waits until the peer's
            kernel has confirmed the one before, and those that wait share a segment.

    Raises:
        ConfigurationError: a value is out of range, or there is a `source_port` without a `source`.
    """

    source: str | None = None
    source_port: int = 0
    keepalive: bool = True
    keepalive_idle: int = 60
    keepalive_interval: int = 15
    keepalive_probes: int = 4
    user_timeout: float | None = None
    nodelay: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.source is not None:
            import ipaddress  # late, as few set it

            try:
                ipaddress.ip_address(self.source.partition("%")[0])
            except ValueError:
                raise ConfigurationError(f"source must be an IP address of this machine, not {self.source!r}") from None
        for name, least, most in _RANGES:
            if not least <= getattr(self, name) <= most:
                value = getattr(self, name)
                raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
        if self.source_port and self.source is None:
            raise ConfigurationError("a source_port needs a source")
        if self.user_timeout is not None and not 0.001 <= self.user_timeout <= 1_000_000:
            raise ConfigurationError(f"user_timeout must be a number of seconds or None, not {self.user_timeout!r}")

    def _socket_options(self) -> list[tuple[int, int, int]]:
        """Return the socket options to set, as level, option and value."""
        settings = [(socket.IPPROTO_TCP, "TCP_NODELAY", int(self.nodelay))]
        if self.keepalive:
            idle = "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE"  # the name on macOS
            settings += [
                (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
                (socket.IPPROTO_TCP, idle, self.keepalive_idle),
                (socket.IPPROTO_TCP, "TCP_KEEPINTVL", self.keepalive_interval),
                (socket.IPPROTO_TCP, "TCP_KEEPCNT", self.keepalive_probes),
            ]
        if self.user_timeout is not None:
            settings.append((socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", round(self.user_timeout * _MILLISECONDS)))
        return [(level, getattr(socket, name), value) for level, name, value in settings if hasattr(socket, name)]


DEFAULT_OPTIONS = TcpOptions()


class TcpTransport(SocketTransport):
    """A connected TCP socket; see `stompy.transport.base.Transport`.

    Args:
        sock: the connected socket, which the transport then owns.
        peer: the name of the peer, for messages.
        options: the options to set.
    """

    def __init__(self, sock: socket.socket, *, peer: str, options: TcpOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(sock, peer=peer)
        # Some systems reject options on a socket that the peer has already reset; recv reports the reset.
        with contextlib.suppress(OSError):
            for level, option, value in options._socket_options():
                sock.setsockopt(level, option, value)


class TcpDialer:
    """Connects to a host and port.

    Args:
        host: a name or an IP address. The addresses of a name are tried in turn; each gets an equal share of the
            remaining time, so that an unresponsive one leaves time for the others.
        port: 1 to 65535.
        options: the options of the connection.
    """

    def __init__(self, host: str, port: int, *, options: TcpOptions = DEFAULT_OPTIONS) -> None:
        if not 1 <= port <= 65535:
            raise ConfigurationError(f"a port to connect to is a number from 1 to 65535, not {port}")
        self._port = port
        self._options = options
        self.host = host
        """The host as given."""
        self.address = host_port(host, port)
        """Host and port, e.g. `broker.example:61613`."""

    def dial(self, deadline: Deadline) -> TcpTransport:
        """Return a new connection.

        Raises:
            ConfigurationError: the host is not a valid host name.
            ConnectError: no address can be reached; the error message names each address and the reason.
            ConnectTimeoutError: the deadline passed first.
        """
        endpoints = resolve(self.host, self._port, deadline=deadline)
        failures: list[OSError] = []
        for tried, endpoint in enumerate(endpoints):
            share = _share(deadline, parts=len(endpoints) - tried)
            try:
                return new_socket(endpoint.family, lambda sock: _connect(sock, endpoint, self._options, share))  # noqa: B023
            except OSError as error:
                failures.append(error)
        message = _explain(endpoints, failures)
        # The last address had all of the remaining time: if it timed out, the deadline has passed.
        kind = ConnectTimeoutError if isinstance(failures[-1], _NoAnswer) else ConnectError
        raise kind(message, address=self.address) from failures[-1]

    def __repr__(self) -> str:
        return f"<TcpDialer {self.address}>"


class _NoAnswer(TimeoutError):
    """An address did not answer within its share of the time."""


def _share(deadline: Deadline, *, parts: int) -> Deadline:
    remaining = deadline.remaining()
    return deadline if remaining is None else deadline.sooner(remaining / parts)


def _explain(endpoints: list[Endpoint], failures: list[OSError]) -> str:
    if len(endpoints) == 1:
        return describe_os_error(failures[0])
    return "; ".join(
        f"{endpoint} {describe_os_error(error)}" for endpoint, error in zip(endpoints, failures, strict=True)
    )


def _connect(sock: socket.socket, endpoint: Endpoint, options: TcpOptions, deadline: Deadline) -> TcpTransport:
    if options.source is not None:
        _bind_source(sock, endpoint, options.source, options.source_port)
    code = sock.connect_ex(endpoint.sockaddr)
    if code in _IN_PROGRESS:
        if not wait_writable(sock.fileno(), deadline=deadline):
            raise _NoAnswer("no answer in time")
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if not code and sock.getsockname() == sock.getpeername():
        # A TCP simultaneous open: the kernel chose the local target port as the source port.
        code = errno.ECONNREFUSED
    if code:
        raise OSError(code, os.strerror(code))
    return TcpTransport(sock, peer=str(endpoint), options=options)


def _bind_source(sock: socket.socket, endpoint: Endpoint, source: str, port: int) -> None:
    if (endpoint.family == socket.AF_INET6) != (":" in source):
        raise OSError(f"is not of the same family as the source address {source}")
    try:
        _reuse_address(sock)
        sock.bind((source, port))
    except OSError as error:
        raise OSError(f"cannot be reached from {host_port(source, port)}: {describe_os_error(error)}") from error


def _reuse_address(sock: socket.socket) -> None:
    if os.name == "posix":  # on Windows the option would let two programs share a port
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


class TcpListener(SocketListener):
    """Listens on a host and port.

    Args:
        host: a name or an IP address of this machine; of a name, the first usable address.
        port: the port; 0 means any free port, see `address`.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        sock = _listen(host, port)
        name = sock.getsockname()
        self.address: tuple[str, int] = (str(name[0]), int(name[1]))
        """The host and the port that it listens on."""
        try:
            super().__init__(sock, shown=host_port(*self.address))
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {host_port(host, port)}: {describe_os_error(error)}") from error

    def _transport(self, sock: socket.socket, address: Any) -> TcpTransport:
        return TcpTransport(sock, peer=host_port(str(address[0]), int(address[1])))


def _listen(host: str, port: int) -> socket.socket:
    where = host_port(host, port)
    if not 0 <= port <= 65535:
        raise ConfigurationError(f"a port to listen on is a number from 0 to 65535, not {port}")
    try:
        endpoints = lookup(host, port, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {where}: {describe_lookup_error(error, host=host)}") from error
    failures: list[OSError] = []
    for endpoint in endpoints:
        try:
            return new_socket(endpoint.family, lambda sock: _bind(sock, endpoint))  # noqa: B023
        except OSError as error:
            failures.append(error)
    raise ConfigurationError(f"cannot listen on {where}: {_explain(endpoints, failures)}") from failures[-1]


def _bind(sock: socket.socket, endpoint: Endpoint) -> socket.socket:
    _reuse_address(sock)
    sock.bind(endpoint.sockaddr)
    sock.listen(socket.SOMAXCONN)
    return sock
