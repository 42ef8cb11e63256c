"""The way out of one link: one frame, or one batch of them, at a time.

| thread | does here | may block on |
|---|---|---|
| any caller | `write`, `request` | the write lock and the carrier, both within the send timeout |
| pacemaker | `beat` | nothing |

| rank | lock | guards |
|---|---|---|
| 3 | write | the order of bytes out; held over `sendall` |
| 4 | protocol | the book of the session: subscriptions, transactions, its state |

SEND, ACK and NACK change nothing in that book, so they are encoded ahead and need the write lock alone. A receipt is
registered before the bytes leave. A frame that was interrupted half-way ends the link: the next one would be read as
the rest of it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from stompy.deadline import Deadline, deadline_of
from stompy.errors import ConcurrencyError, ConnectionLost, SendTimeout, StompError
from stompy.frames.encoder import HEARTBEAT, Encoded
from stompy.frames.frame import Frame
from stompy.frames.grammar import Limits
from stompy.frames.parser import Parser
from stompy.link.receipts import Receipt
from stompy.locks import Rank, make_lock

if TYPE_CHECKING:
    from stompy.link.link import Link

_LOG = logging.getLogger("stompy.link")

_UNLIMITED = Limits(sys.maxsize, sys.maxsize, sys.maxsize, sys.maxsize, sys.maxsize)

_INTERRUPTED = "a frame was interrupted on its way out"


class Writer:
    """Writes the frames of a link.

    Args:
        link: whose frames they are.
        send_timeout: seconds for a frame to leave, where the caller says nothing else.
    """

    def __init__(self, link: Link, *, send_timeout: float) -> None:
        self._link = link
        self._transport = link.transport
        self._send_timeout = send_timeout
        self._lock = make_lock(Rank.WRITE, "write")
        self._torn = False
        self.frames = 0
        """Frames that left, heart-beats aside."""
        self.bytes = 0
        """Bytes that left."""

    def write(
        self,
        data: Encoded | Callable[[], bytes],
        *,
        frames: int = 1,
        receipt: Receipt | None = None,
        on_left: Callable[[], None] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Return when the carrier has the bytes of one or more frames. Any thread.

        Args:
            data: what to write, or what returns it in its turn, with the write lock.
            frames: how many they are.
            receipt: registered before they leave.
            on_left: called with the write lock when all of them have left. Where a signal strikes before it was called,
                they have not left, or the link is over.
            timeout: seconds until they must have left; `None` takes the send timeout.

        Raises:
            ConcurrencyError: called by a signal handler that interrupted a send of this thread.
            NotConnected: the link was closed from this side.
            ConnectionLost: the link died; `SendTimeout` if the broker stopped reading.
            LimitExceeded: too many receipts are under way; nothing left.
        """
        lock, link = self._lock, self._link
        if lock._is_owned():
            raise ConcurrencyError("a signal handler cannot send while it interrupts a send of the same connection")
        if _LOG.isEnabledFor(logging.DEBUG) and not callable(data):
            whole = data if isinstance(data, bytes) else b"".join(data)
            for frame in Parser(link.protocol.grammar, _UNLIMITED).feed(whole):
                _LOG.debug("> %r", frame)
        budget: Deadline | float = self._send_timeout if timeout is None else timeout
        begun = False
        try:
            if not lock.acquire(False):
                budget = self._await_turn(deadline_of(budget))
            if self._torn or not link.alive:
                self._check_line()
            if receipt is not None:
                link.receipts.register(receipt)
            encoded = data() if callable(data) else data
            begun = self._torn = True
            if isinstance(encoded, bytes):
                self._transport.sendall(encoded, budget)
                self.bytes += len(encoded)
            else:
                self._send_parts(encoded, deadline_of(budget))
            self.frames += frames
            link.pulse.last_sent = monotonic()
            if on_left is not None:
                on_left()
            self._torn = False
            return
        except BaseException as error:
            if not begun and receipt is not None:
                link.receipts.forget(receipt)
            if begun and not isinstance(error, ConnectionLost):
                link.fail(ConnectionLost(_INTERRUPTED))  # Ctrl-C, say
            if not begun or not isinstance(error, ConnectionLost):
                raise
            failure = error
        finally:
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may strike first
                lock.release()
            except RuntimeError:
                pass  # it was not taken
        raise link.write_failed(failure)

    def request(
        self,
        command: str,
        headers: Mapping[str, str],
        *,
        receipt: bool = False,
        on_left: Callable[[], None] | None = None,
        timeout: float | None = None,
    ) -> Receipt | None:
        """Send a frame by all the rules of the session; return its receipt where one was asked for.

        Raises, and calls `on_left`, as `write` does.

        Raises:
            LocalProtocolError: the frame may not or cannot be sent; nothing left.
            LimitExceeded: too many receipts, subscriptions or transactions already; nothing left.
        """
        link = self._link
        handle = link.receipts.make() if receipt else None
        if handle is not None:
            headers = {**headers, "receipt": handle.id}
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug("> %r", Frame(command, dict(headers)))

        def encoded() -> bytes:
            if handle is not None:
                link.receipts.register(handle, always=command == "DISCONNECT")
            data = self.encode(command, headers)
            if command == "DISCONNECT":
                link.leave()
            return data

        try:
            self.write(encoded, on_left=on_left, timeout=timeout)
        except BaseException as error:
            if handle is not None:
                link.receipts.forget(handle)
            if not isinstance(error, StompError):
                # A signal, and our book of subscriptions and transactions may name what the broker never heard of.
                link.fail(ConnectionLost(f"a {command} frame was interrupted on its way out"))
            raise
        return handle

    def encode(self, command: str, headers: Mapping[str, str]) -> bytes:
        """Return the bytes of a frame that may be sent now, and note it in the book; raises as `request` does."""
        with self._link.protocol_lock:
            self._link.check_open()
            return self._link.protocol.send(command, headers)

    def beat(self) -> bool:
        """Send a heart-beat if the line is free; return whether one went out. Never waits."""
        if not self._lock.acquire(blocking=False):
            return False  # a busy line is not idle
        try:
            if self._torn:
                self._check_line()
            self._transport.sendall(HEARTBEAT, 0.0)
            self.bytes += len(HEARTBEAT)
            self._link.pulse.last_sent = monotonic()
        except ConnectionLost:
            return False  # a full window, where bytes of ours are on the way; or the end, which the reader finds
        finally:
            self._lock.release()
        return True

    def _send_parts(self, parts: tuple[bytes, ...], deadline: Deadline) -> None:
        for part in parts:
            try:
                self._transport.sendall(part, deadline)
            except ConnectionLost as lost:
                if part is not parts[0]:
                    lost.outcome = "unknown"
                raise
            self.bytes += len(part)

    def _await_turn(self, deadline: Deadline) -> Deadline:
        remaining = deadline.remaining()
        if not self._lock.acquire(timeout=-1 if remaining is None else remaining):
            self._link.check_open()
            raise SendTimeout(f"another frame to {self._link.address} did not leave in time", outcome="not-sent")
        return deadline

    def _check_line(self) -> None:
        """Raise if nothing may leave any more, also behind a frame that two signals in a row left half-sent."""
        if self._torn:
            self._link.fail(ConnectionLost(_INTERRUPTED))
        self._link.check_open()
