"""Transports and listeners over stream sockets of any address family.

Sockets are always non-blocking, as a socket has only one timeout for both directions: a timeout for the reader would
also interrupt another thread's `sendall`. Each direction first tries the system call and then, if it would block, polls
until its own deadline.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | poll for bytes, until its deadline or `shutdown` |
| one writer at a time | `sendall` or `send`, `shutdown_write` | poll for space, until its deadline or `shutdown` |
| any | `shutdown` | nothing |

Lock (rank 5, a leaf): `DescriptorUse._lock` guards the decision to release a descriptor; it is never held during I/O.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from typing import TYPE_CHECKING, Any, TypeVar

from stompy.deadline import NOW, Budget, Deadline, deadline_of
from stompy.errors import ConnectionLostError, SendTimeoutError, StompTimeoutError
from stompy.forks import when_forked
from stompy.transport.base import RECV_SIZE
from stompy.transport.diagnosis import describe_os_error
from stompy.world import select, selectors, socket, threading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompy.errors import Outcome

T = TypeVar("T")

_LOG = logging.getLogger("stompy.transport")
# A broken connection must not kill a program that restored the default SIGPIPE, as command line tools do.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
_ACCEPT_PAUSE = 0.2
"""Seconds between two attempts to accept after an error of the system, such as too many open files."""
_LONGEST_WAIT = 86_400.0
"""Seconds per system call; poll(2) takes milliseconds as a C int, and a deadline may be longer."""


def wait_readable(*fds: int, deadline: Deadline | None) -> bool:
    """Wait until one of `fds` has bytes, its end or an error; return `False` if the deadline passed first."""
    return _wait(fds, writing=False, deadline=deadline)


def wait_writable(fd: int, *, deadline: Deadline | None) -> bool:
    """Wait until `fd` accepts bytes or has an error; return `False` if the deadline passed first."""
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
    # Rounded up, as rounding down would spin for the last fraction of a millisecond.
    return bool(poller.poll(math.ceil(seconds * 1000)))


def _by_selector(fds: Sequence[int], *, writing: bool, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_WRITE if writing else selectors.EVENT_READ)
        return bool(selector.select(seconds))


_wait_once = _by_poll if hasattr(select, "poll") else _by_selector  # Windows and gevent's select have no poll


def new_socket(family: int, use: Callable[[socket.socket], T]) -> T:
    """Return `use(sock)` of a new stream socket, which does not block; close it if `use` raises."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        return use(sock)
    except BaseException:
        sock.close()
        raise


@functools.cache
def held_send() -> Callable[[int, bytes, int, int], int] | None:
    """Return send(2), called with the GIL held; `None` where the C library cannot be reached so."""
    try:
        import ctypes

        send = ctypes.PyDLL(None).send
    except (ImportError, AttributeError, OSError, TypeError):  # such as Windows, or a build without ctypes
        return None
    send.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    send.restype = ctypes.c_ssize_t
    return send


class DescriptorUse:
    """Track the threads that use a descriptor, and release it after the last one has left.

    The number of a descriptor that is released while another thread polls it may be reused at once for an unrelated
    file, whose bytes that thread would then read.

    A thread first adds itself to `users` and then reads `closed`; `close` first sets `closed` and then, under the lock,
    reads `users`. So at least one of them sees the other. Adding and removing a member of a set is atomic, with and
    without the GIL.

    Args:
        release: releases the descriptor; called exactly once, outside the lock.
    """

    __slots__ = ("__weakref__", "_lock", "_release", "_released", "closed", "sending", "users", "writing")

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = threading.RLock()
        self._released = False
        self.closed = False
        """Whether `close` was called; the release may still wait for a user."""
        self.users: set[object] = set()
        """The current users; see `enter`."""
        self.writing = False
        """Whether the one writer uses it, who sets this as others call `enter`, and in its `finally` first of all."""
        self.sending = False
        """The same of one that writes in parts; two marks, as TLS writes its closing alert whole meanwhile."""
        when_forked(self)

    def after_fork(self) -> None:
        """Release the descriptor of a forked child, where none of the users exists; the parent's is not affected."""
        self._lock = threading.RLock()
        self.users.clear()
        self.writing = self.sending = False
        self.close()

    def enter(self, user: object) -> bool:
        """Start to use the descriptor; return `False` if it is closed.

        Call this inside a `try` whose `finally` calls `users.discard(user)` and then `left()`. `discard` is a single
        call into C, so that no signal handler can raise before it.
        """
        self.users.add(user)
        return not self.closed

    def left(self) -> None:
        """Release the descriptor if it is closed and has no more users."""
        if self.closed:
            self._release_if_idle()

    def during(self, call: Callable[[], T]) -> T | None:
        """Return `call()`, during which the descriptor is used; `None` if it is closed."""
        user = object()
        try:
            return call() if self.enter(user) else None
        finally:
            self.users.discard(user)
            self.left()

    def close(self) -> None:
        """Reject new users and release the descriptor, now or after the last user has left; idempotent."""
        self.closed = True
        self._release_if_idle()

    def _release_if_idle(self) -> None:
        with self._lock:
            if self.users or self.writing or self.sending or self._released:
                return
            self._released = True
        self._release()


class SocketTransport:
    """A connected stream socket; see `stompy.transport.base.Transport`.

    Args:
        sock: the connected socket, which the transport then owns.
        peer: the name of the peer, for messages.
    """

    def __init__(self, sock: socket.socket, *, peer: str) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._shut = False
        self._use = DescriptorUse(sock.close)
        self.peer = peer
        """The name of the peer, e.g. `127.0.0.1:61613` or a path."""
        sock.setblocking(False)

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeoutError: the deadline passed.
            ConnectionLostError: the stream broke.
        """
        user, use = object(), self._use
        try:
            if not use.enter(user):
                return b""
            while not self._shut:
                try:
                    return self._sock.recv(RECV_SIZE)
                except BlockingIOError:
                    pass
                except OSError as error:
                    return self._end_or_raise(error)
                if not wait_readable(self._fd, deadline=deadline):
                    raise StompTimeoutError(f"no bytes from {self.peer} in time")
            return b""
        finally:
            use.users.discard(user)
            if use.closed:
                use.left()

    def _end_or_raise(self, error: OSError) -> bytes:
        if self._shut:
            return b""  # caused by our own shutdown
        raise ConnectionLostError(f"connection to {self.peer} lost: {describe_os_error(error)}") from error

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Write all of `data` to the kernel.

        Raises:
            SendTimeoutError: the deadline passed first.
            ConnectionLostError: the stream broke or was shut down.
        """
        use = self._use
        try:
            use.writing = True
            if self._shut:  # as it is before it is closed
                raise self._ended()
            try:
                sent = self._sock.send(data, _SEND_FLAGS)
            except OSError as error:
                sent = self._nothing_sent(error, "not-sent")
            if sent < len(data):
                self._send_rest(memoryview(data), sent, deadline_of(deadline))
        finally:
            use.writing = False
            if use.closed:
                use.left()

    def send(self, data: bytes | memoryview, deadline: Budget) -> int:
        """Write a part of `data`, at least one byte, and return its size; for a caller that keeps the rest.

        Raises:
            SendTimeoutError: the deadline passed first; nothing was written.
            ConnectionLostError: the stream broke or was shut down; nothing was written.
        """
        use = self._use
        try:
            use.sending = True
            if self._shut:
                raise self._ended()
            try:
                sent = self._sock.send(data, _SEND_FLAGS)
            except OSError as error:
                sent = self._nothing_sent(error, "not-sent")
            while not sent:
                deadline = deadline_of(deadline)
                if not wait_writable(self._fd, deadline=deadline):
                    raise SendTimeoutError(f"{self.peer} did not accept the bytes in time", outcome="not-sent")
                sent = self._try_send(data)
            return sent
        finally:
            use.sending = False
            if use.closed:
                use.left()

    def send_held(self, data: bytes) -> int:
        """Write what the kernel takes at once, if possible without letting another thread run; never raise.

        A thread in `socket.send` lets others run, and then waits for its turn. Where threads send small frames in turn,
        that costs many times as much as a frame.

        Returns:
            The number of bytes that were written; 0 also if the stream broke, which the next `sendall` finds out.
        """
        use, send = self._use, held_send()
        try:
            use.writing = True
            if use.closed or self._shut:
                return 0
            try:
                if send is None:
                    return self._sock.send(data, _SEND_FLAGS)
                return max(0, send(self._fd, data, len(data), _SEND_FLAGS))
            except OSError:
                return 0
        finally:
            use.writing = False
            if use.closed:
                use.left()

    def send_now(self, messages: list[bytes]) -> list[bytes] | None:
        """Write without waiting; see `stompy.transport.base.DirectTransport.send_now`."""
        data = messages[0] if len(messages) == 1 else b"".join(messages)
        try:
            sent = self.send(data, NOW)
        except ConnectionLostError:
            return [data]  # which the next `sendall` finds out
        return None if sent == len(data) else [data[sent:]]

    def _ended(self) -> ConnectionLostError:
        how = "is closed" if self._use.closed else "was shut down"
        return ConnectionLostError(f"connection to {self.peer} {how}", outcome="not-sent")

    def _send_rest(self, view: memoryview, sent: int, deadline: Deadline) -> None:
        while sent < len(view):
            # Checked after each partial write too: a peer that reads slowly must not extend the deadline.
            if not wait_writable(self._fd, deadline=deadline) or (sent and deadline.expired):
                raise SendTimeoutError(
                    f"{self.peer} did not accept the bytes in time ({sent} of {len(view)} written)",
                    outcome="unknown" if sent else "not-sent",
                )
            sent += self._try_send(view[sent:], "unknown" if sent else "not-sent")

    def _try_send(self, data: bytes | memoryview, outcome: Outcome = "not-sent") -> int:
        if self._shut:
            raise ConnectionLostError(f"connection to {self.peer} was shut down", outcome=outcome)
        try:
            return self._sock.send(data, _SEND_FLAGS)
        except OSError as error:
            return self._nothing_sent(error, outcome)

    def _nothing_sent(self, error: OSError, outcome: Outcome) -> int:
        """Return 0 if the kernel had no space; else raise `ConnectionLostError`."""
        if isinstance(error, BlockingIOError):
            return 0
        # A shutdown between the check and the send causes a broken pipe.
        what = "was shut down" if self._shut else f"lost: {describe_os_error(error)}"
        raise ConnectionLostError(f"connection to {self.peer} {what}", outcome=outcome) from error

    def shutdown(self) -> None:
        """End both directions and wake waiting threads; from any thread."""
        # The flag first: threads that are woken check it.
        self._shut = True
        self._shutdown_socket(socket.SHUT_RDWR)

    def shutdown_write(self) -> None:
        """End the outgoing direction: the peer reads all that was written, then the end."""
        self._shutdown_socket(socket.SHUT_WR)

    def _shutdown_socket(self, how: int) -> None:
        # An error means that the peer has reset the connection, which wakes the waiting threads as well.
        with contextlib.suppress(OSError):
            self._use.during(lambda: self._sock.shutdown(how))

    def close(self) -> None:
        """Shut down and release the descriptor, now or after the last thread has left `recv` and `sendall`."""
        self.shutdown()
        self._use.close()

    def __repr__(self) -> str:
        state = "closed" if self._use.closed else "shut down" if self._shut else "open"
        return f"<{type(self).__name__} {self.peer} {state}>"


class SocketListener:
    """Accepts connections on a listening socket; subclasses make transports of them.

    Args:
        sock: the listening, non-blocking socket, which the listener then owns.
        shown: the address that it listens on, for messages.

    Raises:
        OSError: the system has no more descriptors; the socket is closed.
    """

    def __init__(self, sock: socket.socket, *, shown: str) -> None:
        self._closed = False
        self._sock = sock
        self._shown = shown
        try:
            # A byte on this pair wakes all threads in accept; shutting down a listening socket does so on Linux only.
            self._wake, self._waker = socket.socketpair()
        except OSError:
            sock.close()
            raise
        self._use = DescriptorUse(self._release)

    def _transport(self, sock: socket.socket, address: Any) -> SocketTransport:
        """Return the transport for an accepted connection."""
        raise NotImplementedError

    def accept(self) -> SocketTransport | None:
        """Return the next connection; `None` after the listener was closed."""
        return self._use.during(self._next)

    def _next(self) -> SocketTransport | None:
        accepted = None
        while accepted is None and not self._closed:
            accepted = self._try_accept()
        return accepted

    def _try_accept(self) -> SocketTransport | None:
        try:
            sock, address = self._sock.accept()
        except BlockingIOError:
            wait_readable(self._sock.fileno(), self._wake.fileno(), deadline=None)
            return None
        except ConnectionAbortedError:
            return None  # the client gave up while it was queued
        except OSError as error:
            if not self._closed:
                # Too many open files, or a network error of the new connection (accept(2)): the listener goes on.
                _LOG.warning("cannot accept on %s: %s", self._shown, describe_os_error(error))
                wait_readable(self._wake.fileno(), deadline=Deadline(_ACCEPT_PAUSE))
            return None
        return self._transport(sock, address)

    def close(self) -> None:
        """Stop listening and wake `accept`; from any thread. Accepted connections stay open."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._use.during(lambda: self._waker.send(b"\0"))
        # If the system supports it, refuse connections from now on, not only after the last accept has returned.
        with contextlib.suppress(OSError):
            self._use.during(lambda: self._sock.shutdown(socket.SHUT_RDWR))
        self._use.close()

    def _release(self) -> None:
        for sock in (self._sock, self._wake, self._waker):
            sock.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown} {'closed' if self._closed else 'open'}>"
