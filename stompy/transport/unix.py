"""Transports over Unix sockets (see `sockets.py`), dialer and listener."""

from __future__ import annotations

import contextlib
import errno
import stat
import sys
from typing import TYPE_CHECKING, Any

from stompy.errors import ConfigurationError, ConnectError, ConnectTimeoutError
from stompy.transport.address import unix_url
from stompy.transport.diagnosis import describe_os_error
from stompy.transport.sockets import SocketListener, SocketTransport, new_socket
from stompy.world import os, socket, time

if TYPE_CHECKING:
    from stompy.deadline import Deadline

_LONGEST_PATH = 107 if sys.platform == "linux" else 103
"""The maximum size of a path in bytes (unix(7))."""

_FULL_QUEUE_PAUSE = 0.01
"""Seconds between two attempts to connect while the listener's queue is full, as there is no event to wait for."""


class UnixDialer:
    """Connects to a Unix socket.

    Args:
        path: the path of the socket; the abstract namespace of Linux is not supported.

    Raises:
        ConfigurationError: the platform has no Unix sockets, or the path is not valid.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = _checked(path)
        self.address = unix_url(self._path)
        """The URL of the socket."""
        self.host = "localhost"
        """The host name of a session over a Unix socket."""

    def dial(self, deadline: Deadline) -> SocketTransport:
        """Return a new connection.

        Raises:
            ConnectError: no process listens on the socket, or permission is denied.
            ConnectTimeoutError: the listener's queue was full until the deadline.
        """
        try:
            return new_socket(socket.AF_UNIX, lambda sock: self._connect(sock, deadline))
        except ConnectError:
            raise
        except OSError as error:
            raise ConnectError(self._explain(error), address=self.address) from error

    def _connect(self, sock: socket.socket, deadline: Deadline) -> SocketTransport:
        while (code := sock.connect_ex(self._path)) == errno.EAGAIN:
            if deadline.expired:
                raise ConnectTimeoutError("the queue of the listener is full", address=self.address)
            time.sleep(deadline.sooner(_FULL_QUEUE_PAUSE).remaining() or 0.0)
        if code:
            raise OSError(code, os.strerror(code))
        return SocketTransport(sock, peer=self.address)

    def _explain(self, error: OSError) -> str:
        if error.errno == errno.ENOENT:
            return "there is no such socket"
        if error.errno in (errno.ECONNREFUSED, errno.ENOTSOCK):
            return "no process listens on this socket" if _is_socket(self._path) else "this is not a socket"
        return describe_os_error(error)

    def __repr__(self) -> str:
        return f"<UnixDialer {self.address}>"


class UnixListener(SocketListener):
    """Listens on a Unix socket; creates its file and removes it when closed.

    The file has its permissions from the start. A file without a listener, which a killed process leaves behind, is
    replaced.

    Args:
        path: the path of the socket.
        mode: the permissions of the file; users with write permission can connect.

    Raises:
        ConfigurationError: the path cannot be used, or another process listens on it.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: int = 0o600) -> None:
        self._path = _checked(path)
        self.address = unix_url(self._path)
        """The URL of the socket."""
        try:
            if os.path.lexists(self._path):
                _check_stale(self._path)
            sock = new_socket(socket.AF_UNIX, lambda sock: _listen(sock, self._path, mode))
            self._file = _identity(self._path)
            super().__init__(sock, shown=self._path)
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {self._path}: {describe_os_error(error)}") from error

    def _transport(self, sock: socket.socket, address: Any) -> SocketTransport:
        return SocketTransport(sock, peer=self.address)

    def close(self) -> None:
        """Stop listening, remove the file and wake `accept`; from any thread. Accepted connections stay open."""
        with contextlib.suppress(OSError):
            # Another listener may have replaced the file.
            if not self._use.closed and _identity(self._path) == self._file:
                os.unlink(self._path)
        super().close()


def _checked(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigurationError("this platform has no Unix sockets")
    if not text or "\0" in text:
        raise ConfigurationError(f"not a path of a Unix socket: {text!r}")
    if len(os.fsencode(text)) > _LONGEST_PATH:
        raise ConfigurationError(f"the path of a Unix socket has at most {_LONGEST_PATH} bytes: {text!r}")
    return text


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _listen(sock: socket.socket, path: str, mode: int) -> socket.socket:
    # Under a temporary name until the permissions are set, so that nobody can connect before.
    draft = os.path.join(os.path.dirname(path), f".{os.urandom(4).hex()}")
    sock.bind(draft)
    try:
        os.chmod(draft, mode)
        sock.listen(socket.SOMAXCONN)
        os.rename(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    return sock


def _check_stale(path: str) -> None:
    """Raise `OSError` unless `path` is a socket without a listener."""
    if not _is_socket(path):
        raise OSError("the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT):
            raise OSError(errno.EADDRINUSE, "")
