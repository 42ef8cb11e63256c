"""Where a proxy's clients come in: the port, which can be left for a while and is kept all the same."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

from stompy.errors import ConfigurationError
from stompy.testing.loop import READ, Loop
from stompy.transport.address import host_port
from stompy.transport.diagnosis import describe_os_error

_LOG = logging.getLogger("stompy.testing")

_TRIES = 100
_PAUSE = 0.01
"""Seconds between two tries to have the port back, or to accept while the system refuses."""


class Door:
    """A listening socket.

    Args:
        host: an address of this machine.
        port: 0 takes a free one.
        window: octets of the kernel's receive buffer of each connection; `None` leaves it to the system.
        enter: called with each client's socket.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, *, window: int | None, enter: Callable[[socket.socket], None]) -> None:
        self._host = host
        self._window = window
        self._loop: Loop | None = None
        self._enter = enter
        self._listening = True
        self.closed = False
        try:
            self._sock = self._bind(port)
            self.port: int = self._sock.getsockname()[1]
            self._sock.listen(socket.SOMAXCONN)
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {host_port(host, port)}: {describe_os_error(error)}") from error

    def join(self, loop: Loop) -> None:
        """Let a loop serve it from now on; before the loop's start."""
        self._loop = loop
        loop.add(self)

    def refuse(self) -> None:
        """Stop listening: who dials, or waits to be accepted, is refused."""
        if self._listening:
            self._listening = False
            self._close_socket()
            # Bound without listening, the port stays ours, and the system refuses who dials it.
            self._sock = self._bind_again()

    def listen(self) -> None:
        """Listen again, on the same port."""
        if not self._listening:
            self._listening = True
            self._sock.listen(socket.SOMAXCONN)

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._window is not None:  # before listening, as accepted sockets inherit it
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._window)
            sock.bind((self._host, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def _bind_again(self) -> socket.socket:
        # Somebody who dials just now may have been given this very port for his own end, for a moment.
        for _ in range(_TRIES):
            try:
                return self._bind(self.port)
            except OSError:
                time.sleep(_PAUSE)
        return self._bind(self.port)

    def wanted(self, now: float) -> Mapping[socket.socket, int]:
        """Watch for clients, while it listens."""
        return {self._sock: READ if self._listening else 0}

    def due(self, now: float) -> float | None:
        """Nothing depends on the time."""
        return None

    def look(self, now: float) -> None:
        """Nothing depends on the time."""

    def ready(self, sock: socket.socket, events: int, now: float) -> None:
        """Let a client in."""
        if not self._listening or sock is not self._sock:
            return
        try:
            client, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            _LOG.warning("the proxy cannot accept: %s", describe_os_error(error))
            time.sleep(_PAUSE)
            return
        self._enter(client)

    def close(self) -> None:
        """Give the port up."""
        self.closed = True
        self._close_socket()

    def _close_socket(self) -> None:
        if self._loop is None:
            self._sock.close()
        else:
            self._loop.close_socket(self._sock)
