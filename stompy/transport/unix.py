"""Byte streams over Unix sockets; how they behave is told in `sockets.py`."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

from stompy.errors import ConfigurationError, ConnectError, ConnectTimeout
from stompy.transport.address import unix_url
from stompy.transport.diagnosis import in_words
from stompy.transport.sockets import SocketListener, SocketTransport

if TYPE_CHECKING:
    from stompy.deadline import Deadline

_LONGEST_PATH = 107 if sys.platform == "linux" else 103
"""Bytes of a path that the system takes (unix(7))."""

HOST = "localhost"
"""What a session over a Unix socket calls its host."""

_FULL_QUEUE_LOOK = 0.01
"""Seconds between two tries to connect while the listener's queue is full, for which there is no event to wait for."""


class UnixTransport(SocketTransport):
    """A connected Unix socket; see `stompy.transport.base.Transport` for what each method promises."""


class UnixDialer:
    """Connects to a Unix socket.

    Args:
        path: of the socket; a path in the abstract namespace of Linux cannot be written.

    Raises:
        ConfigurationError: this platform has no such sockets, or the path cannot be one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = _checked(path)

    @property
    def address(self) -> str:
        """The URL of the socket."""
        return unix_url(self._path)

    @property
    def host(self) -> str:
        """The machine itself."""
        return HOST

    def dial(self, deadline: Deadline) -> UnixTransport:
        """Return a new connection.

        Raises:
            ConnectError: nobody listens there, or not for us.
            ConnectTimeout: the listener's queue was full until the deadline.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            self._connect(sock, deadline)
            return UnixTransport(sock, peer=self.address)
        except ConnectError:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            raise ConnectError(self._explain(error), address=self.address) from error
        except BaseException:
            sock.close()
            raise

    def _connect(self, sock: socket.socket, deadline: Deadline) -> None:
        while (code := sock.connect_ex(self._path)) == errno.EAGAIN:
            if deadline.expired:
                raise ConnectTimeout("the queue of who listens there is full", address=self.address)
            time.sleep(deadline.sooner(_FULL_QUEUE_LOOK).remaining() or 0.0)
        if code:
            raise OSError(code, os.strerror(code))

    def _explain(self, error: OSError) -> str:
        if error.errno == errno.ENOENT:
            return "there is no such socket"
        if error.errno in (errno.ECONNREFUSED, errno.ENOTSOCK):
            return "nobody listens on this socket" if _is_socket(self._path) else "this is not a socket"
        return in_words(error)

    def __repr__(self) -> str:
        return f"<UnixDialer {self.address}>"


class UnixListener(SocketListener[UnixTransport]):
    """Listens on a Unix socket, whose file it makes and removes.

    The file comes into being with its permissions. One that nobody listens on, as a process that was killed leaves it
    behind, is replaced.

    Args:
        path: of the socket.
        mode: permissions of the file; who may write to it may connect.

    Raises:
        ConfigurationError: the path cannot be listened on, or somebody does already.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: int = 0o600) -> None:
        self._path = _checked(path)
        try:
            sock = _listen(self._path, mode)
            self._file = _identity(self._path)
            super().__init__(sock, shown=self._path)
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {self._path}: {in_words(error)}") from error

    @property
    def address(self) -> str:
        """The URL of the socket."""
        return unix_url(self._path)

    def _transport(self, sock: socket.socket, address: Any) -> UnixTransport:
        return UnixTransport(sock, peer=self.address)

    def close(self) -> None:
        """Stop listening, remove the file and wake `accept`; from any thread. Accepted transports live on."""
        with contextlib.suppress(OSError):
            # Another listener may have taken the place.
            if not self._closed and _identity(self._path) == self._file:
                os.unlink(self._path)
        super().close()


def _checked(path: str | os.PathLike[str]) -> str:
    place = os.fspath(path)
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigurationError("this platform has no Unix sockets")
    if not place or "\0" in place:
        raise ConfigurationError(f"not a path of a Unix socket: {place!r}")
    if len(os.fsencode(place)) > _LONGEST_PATH:
        raise ConfigurationError(f"the path of a Unix socket has at most {_LONGEST_PATH} bytes: {place!r}")
    return place


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _listen(path: str, mode: int) -> socket.socket:
    if os.path.lexists(path):
        _check_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Under a name of its own until it has its permissions: nobody shall slip in before.
    draft = os.path.join(os.path.dirname(path), f".{os.urandom(4).hex()}")
    try:
        sock.setblocking(False)
        sock.bind(draft)
        try:
            os.chmod(draft, mode)
            sock.listen(socket.SOMAXCONN)
            os.rename(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
    except BaseException:
        sock.close()
        raise
    return sock


def _check_stale(path: str) -> None:
    """Raise unless `path` is a socket that nobody listens on."""
    if not _is_socket(path):
        raise OSError("there is something that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT):
            raise OSError(errno.EADDRINUSE, "")
