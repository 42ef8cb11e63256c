"""Byte streams over TCP.

Sockets are non-blocking for ever; each direction tries first and, when the kernel has nothing or no room, polls until
its own deadline. So a writer stuck on a deaf peer and a reader on an idle line do not know of each other.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | poll for bytes, until its deadline or `shutdown` |
| one writer at a time | `sendall`, `shutdown_write` | poll for room, until its deadline or `shutdown` |
| any | `shutdown` | nothing |

Locks (rank 5, a leaf): the one of `DescriptorUse`, taken twice a call and never held over I/O.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from typing import TYPE_CHECKING

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectError, ConnectionLost, ConnectTimeout, SendTimeout, StompTimeout
from stompy.transport.address import host_port
from stompy.transport.base import RECV_SIZE
from stompy.transport.descriptor import DescriptorUse
from stompy.transport.faults import in_words, lookup_in_words
from stompy.transport.poll import wait_readable, wait_writable
from stompy.transport.resolve import Endpoint, query, resolve

if TYPE_CHECKING:
    from stompy.errors import Outcome

_LOG = logging.getLogger("stompy.transport")
_CONNECT_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)
# A program that restored the default SIGPIPE (command line tools do) must not be killed by a broken connection.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
_ACCEPT_PAUSE = 0.2
"""Seconds between two tries to accept while the system refuses, e.g. for want of descriptors."""


class TcpTransport:
    """A connected TCP socket; see `stompy.transport.base.Transport` for what each method promises.

    Args:
        sock: connected; owned by the transport from here on.
        peer: the other end, for messages.
    """

    def __init__(self, sock: socket.socket, *, peer: str) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._peer = peer
        self._shut = False
        self._use = DescriptorUse(sock.close)
        sock.setblocking(False)
        # Some systems refuse options on a socket that the peer has already reset; recv reports that reset.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @property
    def peer(self) -> str:
        """The other end, e.g. `127.0.0.1:61613`."""
        return self._peer

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeout: the deadline passed.
            ConnectionLost: the stream broke.
        """
        if not self._use.enter():
            return b""
        try:
            while not self._shut:
                try:
                    return self._sock.recv(RECV_SIZE)
                except BlockingIOError:
                    pass
                except OSError as error:
                    return self._end_or_raise(error)
                if not wait_readable(self._fd, deadline=deadline):
                    raise StompTimeout(f"no bytes from {self._peer} in time")
            return b""
        finally:
            self._use.leave()

    def _end_or_raise(self, error: OSError) -> bytes:
        if self._shut:
            return b""  # our own doing
        raise ConnectionLost(f"connection to {self._peer} lost: {in_words(error)}") from error

    def sendall(self, data: bytes, deadline: Deadline) -> None:
        """Return when the kernel has all of `data`.

        Raises:
            SendTimeout: the deadline passed first.
            ConnectionLost: the stream broke or was shut down.
        """
        if not self._use.enter():
            raise ConnectionLost(f"connection to {self._peer} is closed", outcome="not-sent")
        try:
            sent = self._try_send(data, taken=False)
            if sent < len(data):
                self._send_rest(memoryview(data), sent, deadline)
        finally:
            self._use.leave()

    def _send_rest(self, view: memoryview, sent: int, deadline: Deadline) -> None:
        while sent < len(view):
            # Asked after each partial send too: a peer that reads drop by drop must not stretch the deadline.
            if not wait_writable(self._fd, deadline=deadline) or (sent and deadline.expired):
                raise SendTimeout(
                    f"{self._peer} did not take our bytes in time ({sent} of {len(view)} handed over)",
                    outcome="unknown" if sent else "not-sent",
                )
            sent += self._try_send(view[sent:], taken=sent > 0)

    def _is_open(self) -> bool:
        return not self._shut

    def _try_send(self, data: bytes | memoryview, *, taken: bool) -> int:
        outcome: Outcome = "unknown" if taken else "not-sent"
        if not self._is_open():
            raise ConnectionLost(f"connection to {self._peer} was shut down", outcome=outcome)
        try:
            return self._sock.send(data, _SEND_FLAGS)
        except BlockingIOError:
            return 0
        except OSError as error:
            # Who was shut down between the look above and the send gets a broken pipe.
            what = f"lost: {in_words(error)}" if self._is_open() else "was shut down"
            raise ConnectionLost(f"connection to {self._peer} {what}", outcome=outcome) from error

    def shutdown(self) -> None:
        """End both directions and wake whoever waits; from any thread."""
        # The flag first: who is woken must find it.
        self._shut = True
        self._shutdown_socket(socket.SHUT_RDWR)

    def shutdown_write(self) -> None:
        """End the outgoing direction: the peer reads what was sent, then the end."""
        self._shutdown_socket(socket.SHUT_WR)

    def _shutdown_socket(self, how: int) -> None:
        if not self._use.enter():
            return
        try:
            # "Not connected" means that the peer has reset the connection, which wakes everybody as well.
            with contextlib.suppress(OSError):
                self._sock.shutdown(how)
        finally:
            self._use.leave()

    def close(self) -> None:
        """Shut down and release the descriptor, at the latest when the last thread has left `recv` and `sendall`."""
        self.shutdown()
        self._use.close()

    def __repr__(self) -> str:
        state = "closed" if self._use.closed else "shut down" if self._shut else "open"
        return f"<TcpTransport {self._peer} {state}>"


class TcpDialer:
    """Connects to a host and port.

    Args:
        host: a name or an IP address. Of a name with several addresses each is tried in turn, and each gets an equal
            part of the time that is left, so that one that swallows everything does not starve the others.
        port: 1 to 65535.
    """

    def __init__(self, host: str, port: int) -> None:
        if not 1 <= port <= 65535:
            raise ConfigurationError(f"a port to connect to is a number from 1 to 65535, not {port}")
        self._host = host
        self._port = port

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
                return _connect(endpoint, _share(deadline, parts=len(endpoints) - tried))
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


def _connect(endpoint: Endpoint, deadline: Deadline) -> TcpTransport:
    sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
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
        return TcpTransport(sock, peer=str(endpoint))
    except BaseException:
        sock.close()
        raise


class TcpListener:
    """Listens on a host and port.

    Args:
        host: a name or an IP address of this machine; the first of its addresses that can be had is taken.
        port: 0 takes a free one; see `address`.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._closed = False
        # A byte here wakes every thread in accept: shutting down a listening socket does so on Linux only.
        self._sock, self._wake, self._waker = _listen(host, port)
        self._use = DescriptorUse(self._release)
        name = self._sock.getsockname()
        self._address: tuple[str, int] = (str(name[0]), int(name[1]))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        return self._address

    def accept(self) -> TcpTransport | None:
        """Wait for the next connection; `None` once the listener is closed."""
        if not self._use.enter():
            return None
        try:
            while not self._closed:
                accepted = self._try_accept()
                if accepted is not None:
                    return accepted
            return None
        finally:
            self._use.leave()

    def _try_accept(self) -> TcpTransport | None:
        try:
            sock, address = self._sock.accept()
        except BlockingIOError:
            wait_readable(self._sock.fileno(), self._wake.fileno(), deadline=None)
            return None
        except ConnectionAbortedError:
            return None  # that client gave up while it queued
        except OSError as error:
            if not self._closed:
                # Out of descriptors, or a network error of the client to be (accept(2)): neither ends a listener.
                _LOG.warning("cannot accept on %s: %s", host_port(*self._address), in_words(error))
                wait_readable(self._wake.fileno(), deadline=Deadline(_ACCEPT_PAUSE))
            return None
        return TcpTransport(sock, peer=host_port(str(address[0]), int(address[1])))

    def close(self) -> None:
        """Stop listening and wake `accept`; from any thread. Accepted transports live on."""
        self._closed = True
        if not self._use.enter():
            return
        try:
            with contextlib.suppress(OSError):
                self._waker.send(b"\0")
            # Where the system allows it, dialers are refused from here on, not only once the last accept has left.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        finally:
            self._use.leave()
        self._use.close()

    def _release(self) -> None:
        for sock in (self._sock, self._wake, self._waker):
            sock.close()

    def __repr__(self) -> str:
        return f"<TcpListener {host_port(*self._address)} {'closed' if self._closed else 'open'}>"


def _listen(host: str, port: int) -> tuple[socket.socket, socket.socket, socket.socket]:
    """Return a listening socket, and a pair that wakes who waits for it."""
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
            sock = _bind(endpoint)
        except OSError as error:
            failures.append(error)
            continue
        try:
            return sock, *socket.socketpair()
        except OSError as error:
            sock.close()
            raise ConfigurationError(f"cannot listen on {where}: {in_words(error)}") from error
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
