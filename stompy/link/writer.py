"""Writing to a link: one frame, or one batch of them, at a time.

| thread | does here | may block on |
|---|---|---|
| any caller | `write`, `request` | its turn to write and the socket, both within the send timeout |
| heartbeat | `beat` | nothing |

| rank | lock | guards |
|---|---|---|
| 3 | write | the order of written bytes; held over `sendall` |
| 4 | protocol | the session: its state, subscriptions, transactions |
| 5 | turns (leaf) | what has left of the frames that wait; held while the kernel takes some, without waiting |

A thread that finds the write lock taken leaves its frame to the one that has it, which writes the frames of all who
wait together, as far as the kernel takes them at once. What then is left, its own thread writes.

SEND, ACK and NACK do not change the session, so they are encoded first and need the write lock only. A receipt is
registered before the bytes are written. A partly written frame ends the link, as the broker would read the next frame
as the rest of it.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from stompy.deadline import Budget, Deadline, deadline_of
from stompy.default import DEFAULT, Default
from stompy.errors import ConcurrencyError, ConnectionLostError, SendTimeoutError, StompError
from stompy.frames.encoder import HEARTBEAT, Encoded
from stompy.frames.frame import Frame
from stompy.frames.grammar import FrameLimits
from stompy.frames.parser import Parser
from stompy.link.receipts import Receipt
from stompy.locks import Rank, make_lock
from stompy.world import threading, time

if TYPE_CHECKING:
    from stompy.link.link import Link

_monotonic = time.monotonic  # called for each message

_LOG = logging.getLogger("stompy.link")
_LEVELS: dict[int, bool] = getattr(_LOG, "_cache", {})
"""Of levels that were asked for, whether they are enabled: the logger's own record, as asking it is slow."""

_UNLIMITED = FrameLimits(
    max_headers=sys.maxsize,
    max_header_line=sys.maxsize,
    max_header_block=sys.maxsize,
    max_body=sys.maxsize,
    max_first_body=sys.maxsize,
)

_INTERRUPTED = "the write of a frame was interrupted"
_INTERRUPTING = "a signal handler cannot send while it interrupts a send of the same connection"

_STINT = 64
"""Writes that let no other thread run, after threads have met: each is a switch of threads otherwise, which costs more
than a frame. The next one is as before, so that the others have their turn."""

_LOOK = 0.1
"""Seconds after which a waiting thread looks at the lock itself, as a signal may have kept another from waking it."""


class _Turn:
    """A thread that waits to write.

    Attributes:
        data: its frame, or what is left of it; `None` if it needs the lock itself.
        begun: whether bytes of the frame may be out.
        written: whether all are.
    """

    __slots__ = ("_awake", "begun", "data", "thread", "written")

    def __init__(self, data: bytes | None) -> None:
        self.data = data
        self.begun = self.written = False
        self.thread = threading.get_ident()
        self._awake = threading.Lock()
        self._awake.acquire()

    def wake(self) -> None:
        """End this or the next `wait`."""
        try:  # noqa: SIM105 - as in `Writer.write`
            self._awake.release()
        except RuntimeError:
            pass  # it is awake

    def wait(self, deadline: Deadline) -> None:
        """Wait until woken, but not long."""
        remaining = deadline.remaining()
        self._awake.acquire(True, _LOOK if remaining is None else min(remaining, _LOOK))


class Writer:
    """Writes the frames of a link.

    Args:
        link: to write to.
        send_timeout: default timeout of a write, in seconds.
    """

    def __init__(self, link: Link, *, send_timeout: float) -> None:
        self._link = link
        self._timer = link.timer
        self._transport = link.transport
        # A transport of messages, such as a WebSocket, gets one frame in each: some brokers expect that.
        self._send_messages = getattr(link.transport, "send_messages", None)
        # Of a plain stream: writes what the kernel takes at once, without letting another thread run.
        self._send_held: Callable[[bytes], int] | None = getattr(link.transport, "send_held", None)
        self._send_timeout = send_timeout
        self._lock = make_lock(Rank.WRITE, "write")
        self._turns: deque[_Turn] = deque()
        """Who waits to write, in order. Only the first may have begun, and then writes the rest itself."""
        self._turns_lock = make_lock(Rank.LEAF, "turns")
        self._stint = 0
        """Writes left that let no other thread run."""
        self._incomplete = False
        self.frames = 0
        """Frames written, without heartbeats."""
        self.bytes = 0
        """Bytes written."""

    def write(
        self,
        data: Encoded | list[bytes] | Callable[[], bytes],
        receipt: Receipt | None = None,
        timeout: float | Default | None = DEFAULT,
        now: float = 0.0,
        frames: int = 1,
        check: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        """Write one or more frames; return when the operating system has all bytes. Any thread.

        Args:
            data: the bytes; those of each frame; or a function that returns them, called with the write lock.
            receipt: registered before the write.
            timeout: seconds; by default the send timeout.
            now: the monotonic time, if the caller knows it.
            frames: how many.
            check: called with the write lock before the write; if it raises, nothing is written.
            on_written: called with the write lock after the write. If a signal prevents this call, nothing was written
                or the link has ended.

        Raises:
            ConcurrencyError: called from a signal handler that interrupted a send of this thread.
            NotConnectedError: the link was closed by us.
            ConnectionLostError: the link was lost; `SendTimeoutError` if the broker stopped reading.
            LimitExceededError: too many receipts are pending; nothing was written.
        """
        lock = self._lock
        # The lock is reentrant, as all are that a signal handler may meet. A handler that interrupts a write of its own
        # thread would get it, and put its frame into the middle of the other one.
        if lock._is_owned():
            raise ConcurrencyError(_INTERRUPTING)
        try:
            debug = _LEVELS[10]
        except KeyError:
            debug = _LOG.isEnabledFor(logging.DEBUG)
        if debug and not callable(data):
            raw = data if isinstance(data, bytes) else b"".join(data)
            for frame in Parser(self._link.protocol.grammar, _UNLIMITED).feed(raw):
                _LOG.debug("> %r", frame)
        budget: Budget = self._send_timeout if timeout is DEFAULT else timeout
        begun, turn = False, None
        try:
            # Inside the block, as a signal may raise when the lock was acquired, but before the call has returned.
            if self._turns or not lock.acquire(False):
                budget = deadline_of(budget)
                if self._send_held is None:
                    self._await_lock(budget)
                else:
                    alone = type(data) is not bytes or not (receipt is None is check is on_written)
                    turn = _Turn(None if alone else data)  # type: ignore[arg-type]
                    self._await_turn(turn, budget)
                    if turn.written:
                        return
                    if turn.begun:
                        begun, data = True, turn.data or b""
            # The link may have ended while this thread waited for the lock.
            if self._incomplete or not self._link.alive:
                self._check_usable()
            if check is not None:
                check()
            # Before any byte is out: the RECEIPT may arrive before this call returns.
            if receipt is not None:
                self._link.receipts.register(receipt)
            if type(data) is bytes:
                # From here on bytes may be out. The mark outlasts this call: if a signal raises here, and a second one
                # in the handling of the first, the next writer finds the mark and ends the link.
                begun = self._incomplete = True
                if self._stint:
                    self._send_in_stint(data, budget)
                else:
                    self._transport.sendall(data, budget)
                self.bytes += len(data)
            else:
                # A frame that changes the session is encoded here, with the lock held, so that frames leave in the
                # order in which the session has recorded them.
                parts = data() if callable(data) else data
                begun = self._incomplete = True
                self._send_parts(parts, budget)
            self.frames += frames
            self._timer.last_sent = now or _monotonic()
            # Before the mark is removed: a caller that learns by `on_written` that its frame is out either learns it,
            # or finds the link ended.
            if on_written is not None:
                on_written()
            self._incomplete = False
            return
        except BaseException as error:
            if turn is not None:
                self._withdraw(turn)
                if turn.written:
                    raise  # a signal, after the write
                begun = begun or turn.begun
            if not begun:
                # No byte is out: the link goes on, and the broker will send no RECEIPT.
                if receipt is not None:
                    self._link.receipts.forget(receipt)
                raise
            if not isinstance(error, ConnectionLostError):
                # Such as Ctrl-C. Perhaps a part of the frame is out, and the broker would read the next frame as the
                # rest of it. The receipt stays registered: the end of the link resolves it as unknown.
                self._link.fail(ConnectionLostError(_INTERRUPTED))
                raise
            failure = error
            if turn is not None and turn.begun:
                failure.outcome = "unknown"
        finally:
            # One call into C, which no signal can interrupt.
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may arrive first
                lock.release()
            except RuntimeError:
                pass  # it was not acquired
            if self._turns:
                self._hand_out()
        # Without the lock, as this waits for the reader, which may find the broker's reason; no other writer has to.
        raise self._link.write_failed(failure)

    def request(
        self,
        command: str,
        headers: Mapping[str, str],
        *,
        receipt: Receipt | None = None,
        on_written: Callable[[], None] | None = None,
        timeout: float | Default | None = DEFAULT,
    ) -> None:
        """Send a frame that may change the session; arguments and errors are also those of `write`.

        Raises:
            LocalProtocolError: the session does not allow the frame, or it cannot be encoded; nothing was written.
            LimitExceededError: too many receipts, subscriptions or transactions; nothing was written.
        """
        link = self._link
        if receipt is not None:
            headers = {**headers, "receipt": receipt.id}
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug("> %r", Frame(command, dict(headers)))

        def encoded() -> bytes:
            if receipt is not None:
                link.receipts.register(receipt, always=command == "DISCONNECT")
            data = self.encode(command, headers)
            if command == "DISCONNECT":
                link.expect_end()
            return data

        try:
            self.write(encoded, on_written=on_written, timeout=timeout)
        except BaseException as error:
            if receipt is not None:
                link.receipts.forget(receipt)
            if not isinstance(error, StompError):
                # A signal: we may have recorded a subscription or transaction that the broker does not know.
                link.fail(ConnectionLostError(f"the write of a {command} frame was interrupted"))
            raise

    def encode(self, command: str, headers: Mapping[str, str]) -> bytes:
        """Check a frame against the session, record it there and return its bytes; raises as `request` does."""
        with self._link.protocol_lock:
            self._link.check_open()
            return self._link.protocol.send(command, headers)

    def beat(self) -> bool:
        """Send a heartbeat unless another thread is writing; return whether one was sent. Never waits."""
        if self._turns or not self._lock.acquire(blocking=False):
            return False  # a connection that is being written to is not idle
        try:
            if self._incomplete:
                self._check_usable()
            self._transport.sendall(HEARTBEAT, 0.0)
            self.bytes += len(HEARTBEAT)
            self._timer.last_sent = _monotonic()
        except StompError:
            return False  # the TCP window is full, so earlier bytes are in flight; or the link was lost or closed
        finally:
            self._lock.release()
            if self._turns:
                self._hand_out()
        return True

    def _send_parts(self, data: bytes | tuple[bytes, ...] | list[bytes], budget: Budget) -> None:
        """Write a frame, one in parts, or several frames."""
        if isinstance(data, tuple) and self._send_messages is None:
            budget = deadline_of(budget)
            for part in data:
                try:
                    self._transport.sendall(part, budget)
                except ConnectionLostError as error:
                    if part is not data[0]:
                        error.outcome = "unknown"
                    raise
                self.bytes += len(part)
            return
        joined = data if isinstance(data, bytes) else b"".join(data)
        if isinstance(data, list) and self._send_messages is not None:
            self._send_messages(data, deadline_of(budget))  # of all of them
        elif self._stint:
            self._send_in_stint(joined, budget)
        else:
            self._transport.sendall(joined, budget)
        self.bytes += len(joined)

    def _send_in_stint(self, data: bytes, budget: Budget) -> None:
        assert self._send_held is not None
        self._stint -= 1
        sent = self._send_held(data)
        if sent < len(data):
            self._stint = 0  # whoever waits for the peer lets others run
            try:
                self._transport.sendall(data[sent:], budget)
            except ConnectionLostError as error:
                if sent:
                    error.outcome = "unknown"
                raise

    def _await_lock(self, deadline: Deadline) -> None:
        remaining = deadline.remaining()
        if not self._lock.acquire(timeout=-1 if remaining is None else remaining):
            raise self._late()

    def _late(self) -> StompError:
        self._link.check_open()
        late = f"another write to {self._link.address} did not finish in time"
        return SendTimeoutError(late, outcome="not-sent", session_ended=False)

    def _await_turn(self, turn: _Turn, deadline: Deadline) -> None:
        """Wait until another thread has written the frame, or acquire the lock to write it; the caller releases it.

        Raises:
            SendTimeoutError: the deadline passed first.
            ConcurrencyError: in a signal handler that interrupts a send of this thread of which a part is out.
        """
        lock, turns = self._lock, self._turns
        self._stint = _STINT
        turns.append(turn)
        polite = True
        while True:
            if lock.acquire(False):
                self._write_turns()
                if turn.written:
                    return
                first = turns[0]
                # Only its own thread may go on with a frame of which a part is out, as it has its own time. Who needs
                # the lock itself goes first, too; but nobody depends on it, as signals may have ended its call.
                mine = first is turn or (first.data is not None and not first.begun) or not self._link.alive
                if mine or not (polite or first.begun):
                    turns.remove(turn)
                    return
                lock.release()
                first.wake()
                if first.begun and first.thread == turn.thread:
                    raise ConcurrencyError(_INTERRUPTING)
                polite = False
            turn.wait(deadline)
            late = deadline.expired
            if late:
                self._withdraw(turn)
            if turn.written:
                return
            if late:
                if turn.begun:
                    text = f"{self._transport.peer} did not accept the bytes in time"
                    raise SendTimeoutError(text, outcome="unknown")
                raise self._late()

    def _withdraw(self, turn: _Turn) -> None:
        """Take a turn back; then `begun` and `written` are final. Nothing follows a frame of which a part is out."""
        with self._turns_lock:
            self._incomplete = self._incomplete or (turn.begun and not turn.written)
            try:  # noqa: SIM105 - as in `write`
                self._turns.remove(turn)
            except ValueError:
                pass  # it had its turn

    def _write_turns(self) -> None:
        """Write the frames of those who wait as far as the kernel takes them at once; with the write lock held."""
        turns, send = self._turns, self._send_held
        if self._incomplete or not self._link.alive or send is None or (turns and turns[0].begun):
            return  # they find out themselves
        written = []
        with self._turns_lock:
            frames = []
            for turn in turns.copy():
                if turn.data is None:
                    break
                frames.append(turn.data)
                turn.begun = True
            if not frames:
                return
            # As in `write`: if signals end this call and its handling, all of these frames may have left in part.
            self._incomplete = True
            data = b"".join(frames)
            sent = send(data)
            self.bytes += sent
            for frame in frames:
                turn = turns[0]
                if sent < len(frame):
                    break
                sent -= len(frame)
                turn.written = True
                written.append(turns.popleft())
            for turn in turns.copy():
                turn.begun = sent > 0
                if sent:
                    turn.data, sent = frames[len(written)][sent:], 0
            self._incomplete = False
        if written:
            self.frames += len(written)
            self._timer.last_sent = _monotonic()
            for turn in written:
                turn.wake()

    def _hand_out(self) -> None:
        """Write what others have left meanwhile, and wake the next; called without the lock."""
        try:
            if not self._lock.acquire(False):
                return  # whoever has it does the same
            self._write_turns()
        finally:
            try:  # noqa: SIM105 - as in `write`
                self._lock.release()
            except RuntimeError:
                pass
        for first in self._turns.copy():
            first.wake()
            break  # it wakes the next

    def _check_usable(self) -> None:
        """Raise if the link cannot be written to, including after a frame that two signals in a row interrupted."""
        if self._incomplete:
            self._link.fail(ConnectionLostError(_INTERRUPTED))
        self._link.check_open()
