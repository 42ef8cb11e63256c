"""Byte streams over sockets, and listening for them, whatever their family.

Sockets are non-blocking for ever; each direction tries first and, when the kernel has nothing or no room, polls until
its own deadline. So a writer stuck on a deaf peer and a reader on an idle line do not know of each other.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | poll for bytes, until its deadline or `shutdown` |
| one writer at a time | `sendall` or `send`, `shutdown_write` | poll for room, until its deadline or `shutdown` |
| any | `shutdown` | nothing |

Locks (rank 5, a leaf): the one of `DescriptorUse`, taken when a descriptor is released and never held over I/O.
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import selectors
import socket
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from stompy.deadline import Budget, Deadline, deadline_of
from stompy.errors import ConnectionLost, SendTimeout, StompTimeout
from stompy.transport.base import RECV_SIZE
from stompy.transport.diagnosis import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompy.deadline import Deadline
    from stompy.errors import Outcome


_LONGEST_WAIT = 86_400.0
"""Seconds of one system call; poll(2) takes a C int of milliseconds, and a caller's deadline may be longer."""


def wait_readable(*fds: int, deadline: Deadline | None) -> bool:
    """Wait until one of `fds` has bytes, its end or an error; `False` when the deadline passed first."""
    return _wait(fds, writing=False, deadline=deadline)


def wait_writable(fd: int, *, deadline: Deadline | None) -> bool:
    """Wait until `fd` takes bytes or has an error; `False` when the deadline passed first."""
    return _wait((fd,), writing=True, deadline=deadline)


def _wait(fds: Sequence[int], *, writing: bool, deadline: Deadline | None) -> bool:
    while True:
        remaining = None if deadline is None else deadline.remaining()
        seconds = _LONGEST_WAIT if remaining is None else min(remaining, _LONGEST_WAIT)
        if _wait_once(fds, writing=writing, seconds=seconds):
            return True
        if deadline is not None and deadline.expired:
            return False


def _by_poll(fds: Sequence[int], *, writing: bool, seconds: float) -> bool:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLOUT if writing else select.POLLIN)
    # Rounded up: rounded down, the last fraction of a millisecond would be spent spinning.
    return bool(poller.poll(math.ceil(seconds * 1000)))


def _by_selector(fds: Sequence[int], *, writing: bool, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_WRITE if writing else selectors.EVENT_READ)
        return bool(selector.select(seconds))


_wait_once = _by_poll if hasattr(select, "poll") else _by_selector  # Windows, and gevent's patched select, have no poll


class DescriptorUse:
    """Counts the threads that are using a descriptor and puts its release off until the last one has left.

    A number released while another thread polls it may be given at once to an unrelated file: that thread would then
    wait for, or read, a stranger's bytes.

    Args:
        release: gives the descriptor back; called exactly once, outside the lock.
    """

    __slots__ = ("_lock", "_release", "_released", "closed", "users")

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = threading.RLock()
        self._released = False
        self.closed = False
        """Whether `close` was called; the release itself may still be waiting for a user."""
        self.users: set[object] = set()
        """Who is using it; see `enter`."""

    def enter(self, user: object) -> bool:
        """Begin to use the descriptor; `False` means that it is closed.

        The end of the use is `users.discard(user)` and then `left()`, in a `finally` whose `try` begins before this
        call: the first is one call into C, so that no signal handler can raise in front of it.
        """
        self.users.add(user)
        return not self.closed

    def left(self) -> None:
        """Release a closed descriptor behind its last user."""
        if self.closed:
            self._release_if_idle()

    def close(self) -> None:
        """Let nobody in any more and release the descriptor, now or when the last user leaves. Idempotent."""
        self.closed = True
        self._release_if_idle()

    def _release_if_idle(self) -> None:
        with self._lock:
            if self.users or self._released:
                return
            self._released = True
        self._release()


_LOG = logging.getLogger("stompy.transport")
# A program that restored the default SIGPIPE (command line tools do) must not be killed by a broken connection.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
_ACCEPT_PAUSE = 0.2
"""Seconds between two tries to accept while the system refuses, e.g. for want of descriptors."""


class SocketTransport:
    """A connected stream socket; see `stompy.transport.base.Transport` for what each method promises.

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

    @property
    def peer(self) -> str:
        """The other end, e.g. `127.0.0.1:61613` or a path."""
        return self._peer

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeout: the deadline passed.
            ConnectionLost: the stream broke.
        """
        user = object()
        try:
            if not self._use.enter(user):
                return b""
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
            self._use.users.discard(user)
            self._use.left()

    def _end_or_raise(self, error: OSError) -> bytes:
        if self._shut:
            return b""  # our own doing
        raise ConnectionLost(f"connection to {self._peer} lost: {in_words(error)}") from error

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Return when the kernel has all of `data`.

        Raises:
            SendTimeout: the deadline passed first.
            ConnectionLost: the stream broke or was shut down.
        """
        user, use = object(), self._use
        try:
            use.users.add(user)
            if use.closed:
                raise ConnectionLost(f"connection to {self._peer} is closed", outcome="not-sent")
            if self._shut:
                raise ConnectionLost(f"connection to {self._peer} was shut down", outcome="not-sent")
            try:
                sent = self._sock.send(data, _SEND_FLAGS)
            except OSError as error:
                sent = self._nothing_sent(error, "not-sent")
            if sent < len(data):
                self._send_rest(memoryview(data), sent, deadline_of(deadline))
        finally:
            use.users.discard(user)
            if use.closed:
                use.left()

    def send(self, data: bytes | memoryview, deadline: Deadline) -> int:
        """Return how many bytes of `data` the kernel took, at least one; for a layer above that keeps the rest.

        Raises:
            SendTimeout: the deadline passed first; the kernel has none of them.
            ConnectionLost: the stream broke or was shut down; the kernel took none of them.
        """
        user = object()
        try:
            if not self._use.enter(user):
                raise ConnectionLost(f"connection to {self._peer} is closed", outcome="not-sent")
            while not (sent := self._try_send(data)):
                if not wait_writable(self._fd, deadline=deadline):
                    raise SendTimeout(f"{self._peer} did not take our bytes in time", outcome="not-sent")
            return sent
        finally:
            self._use.users.discard(user)
            self._use.left()

    def _send_rest(self, view: memoryview, sent: int, deadline: Deadline) -> None:
        while sent < len(view):
            # Asked after each partial send too: a peer that reads drop by drop must not stretch the deadline.
            if not wait_writable(self._fd, deadline=deadline) or (sent and deadline.expired):
                raise SendTimeout(
                    f"{self._peer} did not take our bytes in time ({sent} of {len(view)} handed over)",
                    outcome="unknown" if sent else "not-sent",
                )
            sent += self._try_send(view[sent:], "unknown" if sent else "not-sent")

    def _try_send(self, data: bytes | memoryview, outcome: Outcome = "not-sent") -> int:
        if self._shut:
            raise ConnectionLost(f"connection to {self._peer} was shut down", outcome=outcome)
        try:
            return self._sock.send(data, _SEND_FLAGS)
        except OSError as error:
            return self._nothing_sent(error, outcome)

    def _nothing_sent(self, error: OSError, outcome: Outcome) -> int:
        """Return 0 where the kernel had no room; else the stream is over."""
        if isinstance(error, BlockingIOError):
            return 0
        # Who was shut down between the look before and the send gets a broken pipe.
        what = "was shut down" if self._shut else f"lost: {in_words(error)}"
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
        user = object()
        try:
            if not self._use.enter(user):
                return
            # "Not connected" means that the peer has reset the connection, which wakes everybody as well.
            with contextlib.suppress(OSError):
                self._sock.shutdown(how)
        finally:
            self._use.users.discard(user)
            self._use.left()

    def close(self) -> None:
        """Shut down and release the descriptor, at the latest when the last thread has left `recv` and `sendall`."""
        self.shutdown()
        self._use.close()

    def __repr__(self) -> str:
        state = "closed" if self._use.closed else "shut down" if self._shut else "open"
        return f"<{type(self).__name__} {self._peer} {state}>"


AcceptedT = TypeVar("AcceptedT", bound=SocketTransport, covariant=True)


class SocketListener(Generic[AcceptedT]):
    """Accepts connections of a listening socket; the families differ in what they make of one.

    Args:
        sock: listening and non-blocking; owned by the listener from here on.
        shown: where it listens, for messages.

    Raises:
        OSError: the system has no descriptors left; the socket is closed.
    """

    def __init__(self, sock: socket.socket, *, shown: str) -> None:
        self._closed = False
        self._sock = sock
        self._shown = shown
        try:
            # A byte here wakes every thread in accept: shutting down a listening socket does so on Linux only.
            self._wake, self._waker = socket.socketpair()
        except OSError:
            sock.close()
            raise
        self._use = DescriptorUse(self._release)

    def _transport(self, sock: socket.socket, address: Any) -> AcceptedT:
        """Return the transport for a connection that was accepted."""
        raise NotImplementedError

    def accept(self) -> AcceptedT | None:
        """Wait for the next connection; `None` once the listener is closed."""
        user = object()
        try:
            if not self._use.enter(user):
                return None
            while not self._closed:
                accepted = self._try_accept()
                if accepted is not None:
                    return accepted
            return None
        finally:
            self._use.users.discard(user)
            self._use.left()

    def _try_accept(self) -> AcceptedT | None:
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
                _LOG.warning("cannot accept on %s: %s", self._shown, in_words(error))
                wait_readable(self._wake.fileno(), deadline=Deadline(_ACCEPT_PAUSE))
            return None
        return self._transport(sock, address)

    def close(self) -> None:
        """Stop listening and wake `accept`; from any thread. Accepted transports live on."""
        self._closed = True
        user = object()
        try:
            if not self._use.enter(user):
                return
            with contextlib.suppress(OSError):
                self._waker.send(b"\0")
            # Where the system allows it, dialers are refused from here on, not only once the last accept has left.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        finally:
            self._use.users.discard(user)
            self._use.left()
        self._use.close()

    def _release(self) -> None:
        for sock in (self._sock, self._wake, self._waker):
            sock.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown} {'closed' if self._closed else 'open'}>"
