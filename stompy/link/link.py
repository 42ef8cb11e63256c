"""One live session: who may write, what is pending, and how it ends.

| thread | does here | may block on |
|---|---|---|
| any caller | `request`, `transmit`, `say_goodbye` | the write lock, `sendall`, both under a deadline |
| reader | routes frames, ends the link | see `reader.py` |
| pacemaker | `beat`, `fail` | see `pacemaker.py` |

| rank | lock | guards |
|---|---|---|
| 3 | write | the order of bytes out; held over `sendall` |
| 4 | protocol | the protocol object |
| 5 | end (leaf) | the reason of the end, set once |

Rule: the receipt is registered before the bytes leave, the rules are checked before the bytes exist.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from stompy.deadline import Deadline
from stompy.errors import BrokerError, ConcurrencyError, ConnectionLost, NotConnected, Outcome, SendTimeout, StompError
from stompy.frames.encoder import HEARTBEAT
from stompy.frames.frame import Frame
from stompy.link.flow import Gate
from stompy.link.handshake import Opened
from stompy.link.locks import Event, Rank, make_lock
from stompy.link.pacemaker import Pacemaker
from stompy.link.reader import LinkOwner, Reader
from stompy.link.receipts import Receipt, Receipts
from stompy.link.settings import Counters, LinkSettings
from stompy.protocol.client import error_text
from stompy.protocol.heartbeat import Pulse
from stompy.protocol.state import State

_LOG = logging.getLogger("stompy.link")

_STATELESS = frozenset({"SEND", "ACK", "NACK"})
"""The frames that our book of the session does not note."""

_LAST_WORDS = 1.0
"""Seconds a failed writer waits for the reader, which may be about to read the broker's reason."""


class Link:
    """One session with a broker, from CONNECTED to its only end.

    Args:
        opened: what `open_session` gave.
        settings: timeouts and limits.
        owner: is told of messages and of the end.
        name: prefix of thread names and receipt ids.
    """

    def __init__(self, opened: Opened, settings: LinkSettings, owner: LinkOwner, *, name: str) -> None:
        self.protocol = opened.protocol
        self.transport = opened.transport
        self.address = opened.address
        self.connected = opened.connected
        self.name = name
        self.counters = Counters()
        self.owner = owner
        self.pulse = Pulse(opened.protocol.heartbeats, time.monotonic(), settings.heartbeat_tolerance)
        self.gate = Gate(settings.marks, self.pulse)
        self.receipts = Receipts(f"{name}-", self, limit=settings.max_receipts)
        self.max_eol_rate = settings.max_eol_rate
        self.ended = Event()
        """Set when the reader has cleaned up; nothing happens on this link any more."""
        self._settings = settings
        self._write_lock = make_lock(Rank.WRITE, "write")
        self.protocol_lock = make_lock(Rank.PROTOCOL, "protocol")
        self._end_lock = make_lock(Rank.LEAF, "end")
        self._end: StompError | None = None
        self._closing = False
        self._farewell = False
        self._torn = False
        self._reader = Reader(self, opened.early)
        self._pacemaker = Pacemaker(self) if self.pulse.next_look(time.monotonic()) is not None else None

    def start(self) -> None:
        """Start the threads; raises as `HouseThread.start` does, and `discard` is left to the caller."""
        self._reader.start()
        if self._pacemaker is not None:
            self._pacemaker.start()

    # What receipts need (`receipts.Surroundings`).

    @property
    def receipt_timeout(self) -> float:
        """The default wait for a receipt in seconds."""
        return self._settings.receipt_timeout

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback on the dispatcher."""
        self.owner.call_soon(function)

    # Bytes out.

    @property
    def alive(self) -> bool:
        """Whether frames can still be sent."""
        return self._end is None and not self._closing

    def request(
        self,
        command: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        receipt: bool | Receipt = False,
        content_length: bool = True,
        on_left: Callable[[], None] | None = None,
        timeout: float | None = None,
    ) -> Receipt | None:
        """Send one frame; return its receipt where one was asked for.

        Takes the write lock, and inside it the protocol lock. Any thread.

        Args:
            command: a client command.
            headers: of the frame; `receipt` is added here.
            body: octets.
            receipt: ask the broker to confirm; a `Receipt` that is kept is taken for it.
            content_length: see `stompy.frames.encoder.encode`.
            on_left: called with the write lock when all of it has left. Where a signal strikes before it was called,
                the frame has not left, or the link is over.
            timeout: seconds until the frame must have left; `None` takes the send timeout.

        Raises:
            ConcurrencyError: called by a signal handler that interrupted a send of this thread.
            NotConnected: the link was closed from this side.
            ConnectionLost: the link died; `SendTimeout` if the broker stopped reading.
            LocalProtocolError: the frame may not or cannot be sent; nothing left.
            LimitExceeded: too many receipts, subscriptions or transactions already; nothing left.
        """
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug("> %r", Frame(command, headers, body))
        handle = self.receipt_for(receipt)

        def encode() -> bytes:
            data = self.encode_asking(command, headers, body, handle, content_length=content_length)
            # From DISCONNECT on, the end of the stream is what we asked for.
            self._closing = self._closing or command == "DISCONNECT"
            return data

        def withdraw(error: BaseException) -> None:
            self.withdraw(command, handle, error)

        self._write(encode, withdraw, on_left, timeout=timeout)
        return handle

    def receipt_for(self, wanted: bool | Receipt) -> Receipt | None:
        """Return the receipt that a frame shall have, which waits for nothing yet."""
        return wanted if isinstance(wanted, Receipt) else self.receipts.make() if wanted else None

    def encode_asking(
        self,
        command: str,
        headers: dict[str, str],
        body: bytes = b"",
        receipt: Receipt | None = None,
        *,
        content_length: bool = True,
    ) -> bytes:
        """Return the octets of a frame that may be sent now, and wait for its receipt; `withdraw` it if it is not."""
        if receipt is not None:
            headers["receipt"] = receipt.id
            if not receipt.kept:
                self.receipts.expect(receipt, farewell=command == "DISCONNECT")
        data = self.encode(command, headers, body, content_length=content_length)
        if receipt is not None and receipt.kept:
            self.receipts.adopt(receipt)
        return data

    def withdraw(self, command: str, receipt: Receipt | None, error: BaseException) -> None:
        """Forget a frame that did not leave because of `error`."""
        if receipt is not None:
            self.receipts.forget(receipt)
        if not isinstance(error, StompError) and command not in _STATELESS:
            # A signal, and our book of subscriptions and transactions may name what the broker never heard of.
            self.fail(ConnectionLost(f"a {command} frame was interrupted on its way out"))

    def encode(
        self, command: str, headers: Mapping[str, str], body: bytes = b"", *, content_length: bool = True
    ) -> bytes:
        """Return the octets of a frame that may be sent now. Takes the protocol lock."""
        with self.protocol_lock:
            self.check_open()
            return self.protocol.send(command, headers, body, content_length=content_length)

    def transmit(
        self, data: bytes, *, frames: int, on_left: Callable[[], None] | None = None, timeout: float | None = None
    ) -> None:
        """Send frames that `encode` made, in one write; raises, and calls `on_left`, as `request` does."""

        def encoded() -> bytes:
            # DISCONNECT may have gone out since they were encoded, and nothing may follow it.
            self.check_open()
            return data

        self._write(encoded, None, on_left, frames=frames, timeout=timeout)

    def _write(
        self,
        encode: Callable[[], bytes],
        withdraw: Callable[[BaseException], None] | None,
        on_left: Callable[[], None] | None,
        *,
        frames: int = 1,
        timeout: float | None,
    ) -> None:
        deadline = Deadline(self._settings.send_timeout if timeout is None else timeout)
        lock = self._write_lock
        if lock._is_owned():
            raise ConcurrencyError("a signal handler cannot send while it interrupts a send of the same connection")
        mine = leaving = False
        try:
            self._acquire_write(deadline)
            mine = True
            data = encode()
            leaving = self._torn = True
            self._sendall(data, deadline)
            self.counters.frames_out += frames
            if on_left is not None:
                on_left()
            self._torn = False
            return
        except BaseException as error:
            if leaving and not isinstance(error, ConnectionLost):
                # Ctrl-C, say: part of the frame may have left, and the next one would be read as the rest of it.
                self.fail(ConnectionLost("a frame was interrupted on its way out"))
            elif not leaving and withdraw is not None:
                withdraw(error)
            if not mine or not isinstance(error, ConnectionLost):
                raise
            failure = error
        finally:
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may strike first
                lock.release()
            except RuntimeError:
                pass  # it was not taken
        raise self._write_failed(failure, failure.outcome if leaving else "not-sent")

    def check_open(self) -> None:
        """Raise the reason if nothing can be sent any more."""
        if self._closing and not isinstance(self._end, ConcurrencyError):
            raise NotConnected("the connection is closed")
        if isinstance(self._end, ConcurrencyError):
            raise self._end.with_traceback(None)
        if self._end is not None:
            raise _retold(self._end, "not-sent")

    def _acquire_write(self, deadline: Deadline) -> None:
        remaining = deadline.remaining()
        if not self._write_lock.acquire(timeout=-1 if remaining is None else remaining):
            self.check_open()
            raise SendTimeout(f"another frame to {self.address} did not leave in time", outcome="not-sent")
        self._check_whole()

    def _check_whole(self) -> None:
        """End the link if a frame was left half-sent, by two signals in a row; called with the write lock."""
        if self._torn:
            self.fail(ConnectionLost("a frame was interrupted on its way out"))
            self.check_open()

    def _sendall(self, data: bytes, deadline: Deadline) -> None:
        self.transport.sendall(data, deadline)
        self.counters.octets_out += len(data)
        self.pulse.sent(time.monotonic())

    def _write_failed(self, error: ConnectionLost, outcome: Outcome) -> StompError:
        """End the link after a failed write, and return the best reason for it; called without locks."""
        if not isinstance(error, SendTimeout) and not self._reader.is_current():
            # A broker that refuses us says why and closes: the reason lies in front of the end of the stream.
            holder = object()
            try:
                self.gate.hold(holder)
                self.ended.wait(_LAST_WORDS)
            finally:
                self.gate.holders.discard(holder)
        self.fail(error)
        return _retold(self._end or error, outcome)

    def beat(self) -> bool:
        """Send a heart-beat if the line is free; return whether one went out. Never waits."""
        if not self._write_lock.acquire(blocking=False):
            return False  # a busy line is not idle
        try:
            self._check_whole()
            self._sendall(HEARTBEAT, Deadline(0))
        except SendTimeout:
            return False  # a full window: bytes of ours are on the way
        except ConnectionLost:
            return False  # the reader finds out by itself
        finally:
            self._write_lock.release()
        return True

    # The end.

    @property
    def end_reason(self) -> StompError | None:
        """Why the link is over, or `None`."""
        return self._end

    def fail(self, reason: StompError) -> None:
        """End the link from any thread; the first reason stays. The reader does the cleaning."""
        with self._end_lock:
            first = self._end is None
            if first:
                self._end = reason
                # Decided here: who closes a link that is already lost must not hide why. An ERROR in the answer to
                # DISCONNECT is about a frame before it, and must not get lost either.
                self._farewell = self._closing and not isinstance(reason, BrokerError)
        if first and not self._closing:
            _LOG.info("link to %s is over: %s", self.address, reason)
        self.gate.abandon()
        self.transport.shutdown()

    def fail_by_error(self, frame: Frame) -> None:
        """End the link because the broker sent ERROR; the receipt that it names is rejected."""
        receipt_id = frame.headers.get("receipt-id")
        error = BrokerError(f"the broker reports an error: {error_text(frame)}", frame=frame, receipt_id=receipt_id)
        if receipt_id is not None:
            self.receipts.reject(receipt_id, error)
        self.fail(error)

    def say_goodbye(self, deadline: Deadline) -> None:
        """Send DISCONNECT with a receipt and wait for it, after the receipts under way; then end the link.

        Brokers that confirm out of order answer DISCONNECT and forget the others, so those are waited for first.

        Raises:
            StompError: it did not work out in time; the link is over all the same.
        """
        try:
            remaining = deadline.remaining()
            others = deadline.sooner(None if remaining is None else remaining / 2)
            for receipt in self.receipts.outstanding():
                with contextlib.suppress(StompError):
                    receipt.wait(others.remaining())
            receipt_of_goodbye = self.request("DISCONNECT", {}, receipt=True, timeout=deadline.remaining())
            assert receipt_of_goodbye is not None
            receipt_of_goodbye.wait(deadline.remaining())
        finally:
            self.close()

    def orphan(self, reason: ConcurrencyError) -> None:
        """End this copy of the link in a forked child: nothing is sent, and the parent's stream is not shut down."""
        self._end = reason
        self.receipts.fail_all(reason)

    def close(self) -> None:
        """End the link from this side, without a word. Idempotent, never blocks."""
        self._closing = True
        self.fail(NotConnected("the connection is closed"))

    def discard(self) -> None:
        """End a link that nobody uses yet; without a reader, which would clean up, that is done here."""
        self.close()
        if not self._reader.started:
            self.clean_up()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the threads are gone; return whether they are. The current thread is not waited for."""
        threads = [self._reader, self._pacemaker]
        ended = [thread.join_until(deadline) for thread in threads if thread is not None]
        return all(ended)

    def clean_up(self) -> None:
        """Release everything; the reader's last act."""
        reason = self._end or ConnectionLost(f"{self.address} closed the connection")
        self.fail(reason)
        with self.protocol_lock:
            self.protocol.end()
        self.transport.close()
        if self._pacemaker is not None:
            self._pacemaker.stop()
        closed = ConnectionLost("the connection was closed before the broker confirmed")
        self.receipts.fail_all(closed if self._farewell else _retold(reason, "unknown"))
        try:
            self.owner.ended(self, None if self._farewell else reason)
        finally:
            # Last: who waits for it may stop the dispatcher, which the owner still needs.
            self.ended.set()

    @property
    def state(self) -> State:
        """Where the conversation stands."""
        return self.protocol.state

    def __repr__(self) -> str:
        return f"<Link {self.name} to {self.address} {'alive' if self.alive else 'over'}>"


def _retold(reason: StompError, outcome: Outcome) -> StompError:
    """Return the reason of the end as a fresh error that says what became of one caller's frame."""
    told: StompError
    if isinstance(reason, BrokerError):
        told = BrokerError(str(reason), frame=reason.frame, receipt_id=reason.receipt_id, outcome=outcome)
    elif isinstance(reason, ConnectionLost):
        told = type(reason)(str(reason), outcome=outcome)
    else:
        told = NotConnected(str(reason))
    told.__cause__ = reason
    return told
