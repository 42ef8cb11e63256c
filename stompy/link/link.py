"""One live session: its parts, and how it ends.

| thread | does here | may block on |
|---|---|---|
| any caller | `say_goodbye`; writes by `writer` | see `writer.py` |
| reader | ends the link | see `reader.py` |
| pacemaker | `fail` | see `heartbeat.py` |

| rank | lock | guards |
|---|---|---|
| 4 | protocol | the protocol object |
| 5 | end (leaf) | the reason of the end, set once |
"""

from __future__ import annotations

import contextlib
import logging
import time

from stompy.deadline import Deadline
from stompy.dialects.brokers import GENERIC
from stompy.dialects.dialect import Dialect
from stompy.errors import BrokerError, ConcurrencyError, ConnectionLost, NotConnected, Outcome, SendTimeout, StompError
from stompy.frames.frame import Frame
from stompy.link.flow import FlowControl
from stompy.link.handshake import OpenedSession
from stompy.link.heartbeat import HeartbeatThread
from stompy.link.reader import LinkOwner, Reader
from stompy.link.receipts import Receipts
from stompy.link.settings import LinkSettings
from stompy.link.writer import Writer
from stompy.locks import Event, Rank, make_lock
from stompy.protocol.client import error_message
from stompy.protocol.heartbeat import HeartbeatTimer
from stompy.protocol.state import State

_LOG = logging.getLogger("stompy.link")

_LAST_WORDS = 1.0
"""Seconds a failed writer waits for the reader, which may be about to read the broker's reason."""


class Link:
    """One session with a broker, from CONNECTED to its only end.

    Args:
        opened: what `open_session` gave.
        settings: timeouts and limits.
        owner: is told of messages and of the end.
        name: prefix of thread names and receipt ids.
        dialect: the broker's ways.
    """

    def __init__(
        self, opened: OpenedSession, settings: LinkSettings, owner: LinkOwner, *, name: str, dialect: Dialect = GENERIC
    ) -> None:
        assert opened.protocol.version is not None
        self.protocol = opened.protocol
        self.version = opened.protocol.version
        self.dialect = dialect
        self.transport = opened.transport
        self.address = opened.address
        self.connected = opened.connected
        self.name = name
        self.frames_in = 0
        self.bytes_in = 0
        self.owner = owner
        self.pulse = HeartbeatTimer(opened.protocol.heartbeats, time.monotonic(), settings.heartbeat_tolerance)
        self.flow = FlowControl(settings.inbox, self.pulse)
        self.receipt_timeout = settings.receipt_timeout
        """The default wait for a receipt in seconds."""
        self.receipts = Receipts(f"{name}-", self, limit=settings.max_receipts)
        self.max_eol_rate = settings.max_eol_rate
        self.ended = Event()
        """Set when the reader has cleaned up; nothing happens on this link any more."""
        self.protocol_lock = make_lock(Rank.PROTOCOL, "protocol")
        self._end_lock = make_lock(Rank.LEAF, "end")
        self._end: StompError | None = None
        self._closing = False
        self._farewell = False
        self.alive = True
        """Whether frames can still be sent."""
        self.writer = Writer(self, send_timeout=settings.send_timeout)
        self._reader = Reader(self, opened.early)
        self._heartbeat = HeartbeatThread(self) if self.pulse.next_check(time.monotonic()) is not None else None

    def start(self) -> None:
        """Start the threads; raises as `DaemonThread.start` does, and `discard` is left to the caller."""
        self._reader.start()
        if self._heartbeat is not None:
            self._heartbeat.start()

    # The end.

    def check_open(self) -> None:
        """Raise the reason if nothing can be sent any more."""
        if self._closing and not isinstance(self._end, ConcurrencyError):
            raise NotConnected("the connection is closed")
        if isinstance(self._end, ConcurrencyError):
            raise self._end.with_traceback(None)
        if self._end is not None:
            raise _retold(self._end, "not-sent")

    def write_failed(self, error: ConnectionLost) -> StompError:
        """End the link after a failed write, and return the best reason for it; called without locks."""
        if not isinstance(error, SendTimeout) and not self._reader.is_current():
            # A broker that refuses us says why and closes: the reason lies in front of the end of the stream.
            holder = object()
            try:
                self.flow.hold(holder)
                self.ended.wait(_LAST_WORDS)
            finally:
                self.flow.holders.discard(holder)
        self.fail(error)
        return _retold(self._end or error, error.outcome)

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
                self.alive = False
                # Decided here: who closes a link that is already lost must not hide why. An ERROR in the answer to
                # DISCONNECT is about a frame before it, and must not get lost either.
                self._farewell = self._closing and not isinstance(reason, BrokerError)
        if first and not self._closing:
            _LOG.info("link to %s is over: %s", self.address, reason)
        self.flow.abandon()
        self.transport.shutdown()

    def fail_by_error(self, frame: Frame) -> None:
        """End the link because the broker sent ERROR; the receipt that it names is rejected."""
        receipt_id = frame.headers.get("receipt-id")
        error = BrokerError(f"the broker reports an error: {error_message(frame)}", frame=frame, receipt_id=receipt_id)
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
            receipt_of_goodbye = self.writer.request("DISCONNECT", {}, receipt=True, timeout=deadline.remaining())
            assert receipt_of_goodbye is not None
            receipt_of_goodbye.wait(deadline.remaining())
        finally:
            self.close()

    def orphan(self, reason: ConcurrencyError) -> None:
        """End this copy of the link in a forked child: nothing is sent, and the parent's stream is not shut down."""
        self._end, self.alive = reason, False
        self.receipts.fail_all(reason)

    def leave(self) -> None:
        """Take the end of the stream, from now on, for what we asked for."""
        self._closing, self.alive = True, False

    def close(self) -> None:
        """End the link from this side, without a word. Idempotent, never blocks."""
        self.leave()
        self.fail(NotConnected("the connection is closed"))

    def discard(self) -> None:
        """End a link that nobody uses yet; without a reader, which would clean up, that is done here."""
        self.close()
        if not self._reader.started:
            self.clean_up()

    def join(self, deadline: Deadline) -> bool:
        """Wait until the threads are gone; return whether they are. The current thread is not waited for."""
        threads = [self._reader, self._heartbeat]
        ended = [thread.join_until(deadline) for thread in threads if thread is not None]
        return all(ended)

    def clean_up(self) -> None:
        """Release everything; the reader's last act."""
        reason = self._end or ConnectionLost(f"{self.address} closed the connection")
        self.fail(reason)
        with self.protocol_lock:
            self.protocol.end()
        self.transport.close()
        if self._heartbeat is not None:
            self._heartbeat.stop()
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
