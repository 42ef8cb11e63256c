"""One session with a broker: its parts, its heartbeats, and how it ends; and a link whose owner writes every frame.

| thread | does here | may block on |
|---|---|---|
| any caller | `disconnect`, `writer` | see `writer.py` |
| reader | ends the link | see `reader.py` |
| heartbeat | `Writer.beat`, `fail` | its event; it only *tries* the write lock, and never waits for a writer |

| rank | lock | guards |
|---|---|---|
| 4 | protocol | the protocol object |
| 5 | end (leaf) | the reason why the link ended, set once |
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from stompy.deadline import Deadline
from stompy.dialects.brokers import GENERIC
from stompy.dialects.dialect import Dialect
from stompy.errors import (
    BrokerError,
    ConcurrencyError,
    ConnectError,
    ConnectionLostError,
    HeartbeatTimeoutError,
    NotConnectedError,
    Outcome,
    ReceiptTimeoutError,
    SendTimeoutError,
    StompError,
)
from stompy.frames.frame import Frame
from stompy.link.flow import FlowControl
from stompy.link.handshake import OpenedSession
from stompy.link.reader import LinkOwner, Reader
from stompy.link.receipts import Receipts
from stompy.link.settings import LinkSettings
from stompy.link.writer import Writer
from stompy.locks import Rank, SafeEvent, make_lock
from stompy.protocol.client import error_message
from stompy.protocol.heartbeat import HeartbeatTimer
from stompy.threads import DaemonThread
from stompy.transport.base import Transport
from stompy.world import threading, time

if TYPE_CHECKING:
    from stompy.protocol.unchecked import UncheckedClient

_LOG = logging.getLogger("stompy.link")

_REASON_TIMEOUT = 1.0
"""Seconds that a failed write waits for the reader, which may be about to read the broker's reason."""

_CLOSED_WITHIN = 5.0
"""Seconds that `disconnect` waits for the broker to close a WebSocket."""

_BEAT_AGAIN = 0.05
"""Seconds until the next attempt if a heartbeat was due while another thread was writing."""


class Link:
    """One session with a broker, from CONNECTED until it ends; a link is never reopened.

    Args:
        opened: the result of `open_session`.
        settings: timeouts and limits.
        owner: called with messages, receipts and the end of the link.
        name: prefix of thread names and receipt ids.
        dialect: of the broker.
    """

    def __init__(
        self, opened: OpenedSession, settings: LinkSettings, owner: LinkOwner, *, name: str, dialect: Dialect = GENERIC
    ) -> None:
        assert opened.protocol.version is not None
        self.protocol = opened.protocol
        if dialect.max_open_transactions is not None:
            # A commit may open a second one, see `Transaction.commit`.
            most = dialect.max_open_transactions // 2
            self.protocol.max_transactions = min(self.protocol.max_transactions, most)
        self.version = opened.protocol.version
        self.dialect = dialect
        self.transport = opened.transport
        self.address = opened.address
        self.connected = opened.connected
        self.name = name
        self.frames_in = 0
        self.bytes_in = 0
        self.owner = owner
        self.timer = HeartbeatTimer(opened.protocol.heartbeats, time.monotonic(), settings.timeouts.heartbeat_tolerance)
        self.flow = FlowControl(settings.limits, self.timer)
        self.receipt_timeout = settings.timeouts.receipt
        """Default timeout of a receipt, in seconds."""
        self.receipts = Receipts(f"{name}-", self, limit=settings.limits.max_receipts)
        self.max_eol_rate = settings.limits.max_eol_rate
        self.ended = SafeEvent()
        """Set when the reader has cleaned up."""
        self.protocol_lock = make_lock(Rank.PROTOCOL, "protocol")
        self._end_lock = make_lock(Rank.LEAF, "end")
        self.end_reason: StompError | None = None
        """Why the link ended; set once."""
        self._closing = False
        self._expected_end = False
        self.alive = True
        """Whether frames can still be sent."""
        self.writer = Writer(self, send_timeout=settings.timeouts.send)
        self._reader = self._new_reader(opened.early)
        self._heartbeat = HeartbeatThread(self) if self.timer.next_check(time.monotonic()) is not None else None

    def start(self) -> None:
        """Start the threads; raises as `DaemonThread.start` does, after which the caller must `discard` the link."""
        self._reader.start()
        if self._heartbeat is not None:
            self._heartbeat.start()

    def _new_reader(self, early: Sequence[Frame]) -> Reader:
        return Reader(self, early)

    def beat(self) -> bool:
        """Send a heartbeat; see `Writer.beat`. Called on the heartbeat thread."""
        return self.writer.beat()

    def control(self, frame: Frame) -> None:
        """Handle a frame other than MESSAGE and RECEIPT; called on the reader. After CONNECTED it can only be ERROR."""
        self.fail_by_error(frame)

    # The end of the link.

    def check_open(self) -> None:
        """Raise the reason if the link can send no more frames."""
        if self._closing and not isinstance(self.end_reason, ConcurrencyError):
            raise NotConnectedError("the connection is closed; stompy.connect() opens another")
        if isinstance(self.end_reason, ConcurrencyError):
            raise self.end_reason.with_traceback(None)
        if self.end_reason is not None:
            raise for_caller(self.end_reason, "not-sent")

    def write_failed(self, error: ConnectionLostError) -> StompError:
        """End the link after a failed write and return the error to raise; called without locks."""
        if not isinstance(error, SendTimeoutError) and not self._reader.is_current():
            # A broker that rejects us sends the reason, then closes: let the reader find it first.
            holder = object()
            try:
                self.flow.hold(holder)
                self.ended.wait(_REASON_TIMEOUT)
            finally:
                self.flow.holders.discard(holder)
        # As the reason of the end it reaches callers with other frames, which may have arrived.
        outcome, error.outcome = error.outcome, "unknown"
        self.fail(error)
        return for_caller(self.end_reason or error, outcome)

    def fail(self, reason: StompError) -> None:
        """End the link from any thread; only the first reason counts. The reader cleans up."""
        with self._end_lock:
            first = self.end_reason is None
            if first:
                self.end_reason = reason
                self.alive = False
                # Decided here: closing a link that is already lost must not hide why. An ERROR that answers
                # DISCONNECT is about an earlier frame, and is reported too.
                self._expected_end = self._closing and not isinstance(reason, BrokerError)
        if first and not self._closing:
            _LOG.info("session with %s ended: %s", self.address, reason, extra={"stompy_address": self.address})
        self.flow.disable()
        self.transport.shutdown()

    def fail_by_error(self, frame: Frame) -> None:
        """End the link because the broker sent ERROR, and reject the receipt that it names."""
        receipt_id, message = frame.headers.get("receipt-id"), error_message(frame)
        error = BrokerError(f"the broker reports an error: {message}", frame=frame, receipt_id=receipt_id)
        if receipt_id is not None:
            self.receipts.reject(receipt_id, for_caller(error, "rejected"))
        if message.startswith(self.dialect.missed_heartbeats):
            # It refuses nothing that we sent: what we sent did not reach it.
            lost = ConnectionLostError(f"the broker gave up the connection: {message}")
            lost.__cause__ = error
            self.fail(lost)
        else:
            self.fail(error)

    def fail_for_memory(self, error: MemoryError) -> None:
        """End the link because one of its threads found no memory."""
        lost = ConnectionLostError(
            f"out of memory while reading from {self.address}: the broker sends larger frames, or more of them, than"
            " this program has memory for; lower limits or inbox of connect, or prefetch"
        )
        lost.__cause__ = error.with_traceback(None)  # its traceback would keep what filled the memory
        _LOG.warning("%s", lost, extra={"stompy_address": self.address})
        self.fail(lost)

    def disconnect(self, deadline: Deadline) -> None:
        """Wait for pending receipts, send DISCONNECT, wait for its receipt, then end the link.

        Brokers that confirm out of order answer DISCONNECT and drop the other receipts, hence the first step.

        Raises:
            StompError: DISCONNECT was not confirmed in time; the link has ended anyway.
        """
        try:
            remaining = deadline.remaining()
            others = deadline.sooner(None if remaining is None else remaining / 2)
            for receipt in self.receipts.outstanding():
                with contextlib.suppress(StompError):
                    receipt.result(others.remaining())
            confirmation = self.receipts.make()
            self.writer.request("DISCONNECT", {}, receipt=confirmation, timeout=deadline.remaining())
            confirmation.result(deadline.remaining())
            if getattr(self.transport, "peer_closes", False):
                self.expect_end()
                self.transport.shutdown_write()
                self.ended.wait(deadline.sooner(_CLOSED_WITHIN).remaining())
        finally:
            self.close()

    def after_fork(self, reason: ConcurrencyError) -> None:
        """End this copy of the link in a forked child, without touching the parent's stream."""
        self.end_reason, self.alive = reason, False
        self.receipts.fail_all(reason)

    def expect_end(self) -> None:
        """Treat the end of the stream, from now on, as requested by us."""
        self._closing, self.alive = True, False

    def close(self) -> None:
        """End the link without DISCONNECT. Idempotent, never blocks."""
        self.expect_end()
        self.fail(NotConnectedError("the connection is closed; stompy.connect() opens another"))

    def discard(self) -> None:
        """End a link that is not in use yet; clean up here if its reader was never started."""
        self.close()
        if not self._reader.started:
            self.clean_up()

    def join(self, deadline: Deadline) -> bool:
        """Wait for all threads but the current one to end; return whether they have."""
        threads = [thread for thread in (self._reader, self._heartbeat) if thread is not None]
        return all([thread.join_until(deadline) for thread in threads])  # noqa: C419 - each waits

    def clean_up(self) -> None:
        """Release everything; the last thing that the reader does."""
        reason = self.end_reason or ConnectionLostError(f"{self.address} closed the connection")
        self.fail(reason)
        with self.protocol_lock:
            self.protocol.end()
        self.transport.close()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        closed = ConnectionLostError("the connection was closed before the broker confirmed")
        self.receipts.fail_all(closed if self._expected_end else for_caller(reason, "unknown"))
        try:
            self.owner.ended(self, None if self._expected_end else reason)
        finally:
            # Last: a waiting caller may stop the dispatcher, which the owner still needs.
            self.ended.set()

    def __repr__(self) -> str:
        return f"<Link {self.name} to {self.address} {'alive' if self.alive else 'ended'}>"


class HeartbeatThread(DaemonThread):
    """Sends heartbeats while we are idle, and ends a link whose peer is silent (STOMP 1.2, Heart-beating).

    Only started if heartbeats were negotiated.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(f"stompy-{link.name}-heartbeat")
        self._link = link
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the thread to end; does not wait."""
        self._stop.set()

    def run(self) -> None:
        """Send and check heartbeats when they are due, until stopped."""
        try:
            self._beat()
        except MemoryError as error:
            self._link.fail_for_memory(error)

    def _beat(self) -> None:
        link = self._link
        pause = 0.0
        while True:
            if self._stop.wait(pause):
                return
            now = time.monotonic()
            if link.flow.peer_dead(now):
                silent = now - link.timer.last_heard
                link.fail(HeartbeatTimeoutError(f"received nothing from {link.address} for {silent:.1f} s"))
                return
            done = not link.timer.beat_due(now) or link.beat()
            due = link.timer.next_check(time.monotonic())
            assert due is not None
            pause = due if done else max(due, _BEAT_AGAIN)
            if link.flow.paused:
                pause = max(pause, _BEAT_AGAIN)


def error_of(reason: StompError | None) -> BrokerError | None:
    """Return the ERROR that ended a link for this reason."""
    error = reason.__cause__ if isinstance(reason, ConnectionLostError) else reason
    return error if isinstance(error, BrokerError) else None


def for_caller(reason: StompError, outcome: Outcome, message: str | None = None) -> StompError:
    """Return a copy of the reason, with the outcome of one caller's frames, and a message of its own."""
    copy: StompError
    text = str(reason) if message is None else message
    if isinstance(reason, BrokerError):
        copy = BrokerError(text, frame=reason.frame, receipt_id=reason.receipt_id, outcome=outcome)
    elif isinstance(reason, ConnectionLostError):
        copy = type(reason)(text, outcome=outcome, session_ended=reason.session_ended)
    elif isinstance(reason, ReceiptTimeoutError):
        copy = ReceiptTimeoutError(text, receipt_id=reason.receipt_id, outcome=outcome)
    elif outcome == "not-sent":
        copy = NotConnectedError(text)
    else:
        copy = ConnectionLostError(message or "the connection was closed while the frame was written", outcome=outcome)
    copy.__cause__ = reason
    return copy


class RawOwner(LinkOwner, Protocol):
    """Callbacks of a raw link; they must not block."""

    def control(self, link: RawLink, frame: Frame) -> None:
        """Called with each CONNECTED and ERROR frame; on the reader. Neither ends the link."""

    def heartbeat(self, *, sent: bool) -> None:
        """Called when a heartbeat arrived, on the reader, or was sent, on the heartbeat thread."""


class RawLink(Link):
    """A link from the dialled transport on, before CONNECT: its owner writes and receives every frame.

    The heartbeat thread starts with CONNECTED, on the reader.

    Args:
        transport: open.
        protocol: of the session.
        settings: timeouts and limits.
        owner: called with everything that happens.
        name: prefix of thread names.
        address: of the broker, for error messages.
    """

    def __init__(
        self,
        transport: Transport,
        protocol: UncheckedClient,
        settings: LinkSettings,
        owner: RawOwner,
        *,
        name: str,
        address: str,
    ) -> None:
        self._raw, self._raw_owner, self._tolerance = protocol, owner, settings.timeouts.heartbeat_tolerance
        super().__init__(
            OpenedSession(transport, protocol, Frame("CONNECTED"), [], address), settings, owner, name=name
        )

    def _new_reader(self, early: Sequence[Frame]) -> Reader:
        return _RawReader(self, self._raw, self._raw_owner)

    def control(self, frame: Frame) -> None:
        """Pass on a frame; after CONNECTED, start the heartbeats."""
        if frame.command == "CONNECTED":
            self.connected = frame
            self.timer.start(self._raw.heartbeats, time.monotonic(), self._tolerance)
            if self._heartbeat is None and self.timer.next_check(time.monotonic()) is not None:
                self._heartbeat = HeartbeatThread(self)
                try:
                    self._heartbeat.start()
                except ConnectError as error:
                    self.fail(error)
        self._raw_owner.control(self, frame)

    def beat(self) -> bool:
        """Send a heartbeat, and report it."""
        sent = super().beat()
        if sent:
            self._raw_owner.heartbeat(sent=True)
        return sent


class _RawReader(Reader):
    """A reader that reads the handshake too, and reports heartbeats."""

    def __init__(self, link: RawLink, protocol: UncheckedClient, owner: RawOwner) -> None:
        super().__init__(link, ())
        self._protocol = protocol
        self._owner = owner

    def _process(self, data: bytes, now: float) -> None:
        parser = self._protocol.parser
        line_ends, before = parser.line_ends, self._link.frames_in
        if self._protocol.negotiated:
            super()._process(data, now)
        else:
            frames = -1
            while frames != self._link.frames_in:  # the parser pauses after each frame
                frames = self._link.frames_in
                super()._process(data, now)
                data = b""
        # The line ends of a read with frames may belong to them.
        if parser.line_ends > line_ends and self._link.frames_in == before:
            self._owner.heartbeat(sent=False)
