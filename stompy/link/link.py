"""One live session: who may write, what is pending, and how it ends.

| thread | does here | may block on |
|---|---|---|
| any caller | `request`, `transmit`, `say_goodbye` | the write lock, `sendall`, both under a deadline |
| reader | routes frames, ends the link | see `reader.py` |
| pacemaker | `beat`, `fail` | see `pacemaker.py` |

| rank | lock | guards |
|---|---|---|
| 3 | write | the order of octets; the only lock held over I/O |
| 4 | protocol | the protocol object |
| 5 | end (leaf) | the reason of the end, set once |

Rule: the receipt is registered before the bytes leave, the rules are checked before the bytes exist.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from stompy.deadline import Deadline
from stompy.errors import BrokerError, ConnectionLost, NotConnected, Outcome, SendTimeout, StompError
from stompy.frames.encoder import HEARTBEAT
from stompy.frames.frame import Frame
from stompy.link.flow import Gate
from stompy.link.handshake import Opened
from stompy.link.locks import Rank, make_lock
from stompy.link.pacemaker import Pacemaker
from stompy.link.reader import Reader
from stompy.link.receipts import Receipt, Receipts
from stompy.link.settings import LinkSettings
from stompy.protocol.client import error_text
from stompy.protocol.heartbeat import Pulse
from stompy.protocol.state import State

_LOG = logging.getLogger("stompy.link")

_LAST_WORDS = 1.0
"""Seconds a failed writer waits for the reader, which may be about to read the broker's reason."""


class LinkOwner(Protocol):
    """What a link tells its connection; all but `call_soon` run on the reader thread and must not block."""

    def messages(self, link: Link, frames: Sequence[Frame]) -> None:
        """Take the MESSAGE frames of one read, in order."""
        ...

    def receipt(self, link: Link, frame: Frame) -> None:
        """Hear of a RECEIPT."""
        ...

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Hear, once, that the link is over; `None` where it was closed from this side."""
        ...

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback where user code runs."""
        ...


@dataclass(slots=True)
class Counters:
    """What went through a link; each is written by one thread at a time."""

    frames_out: int = 0
    octets_out: int = 0
    frames_in: int = 0
    octets_in: int = 0


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
        self.ended = threading.Event()
        """Set when the reader has cleaned up; nothing happens on this link any more."""
        self._settings = settings
        self._write_lock = make_lock(Rank.WRITE, "write")
        self.protocol_lock = make_lock(Rank.PROTOCOL, "protocol")
        self._end_lock = make_lock(Rank.LEAF, "end")
        self._end: StompError | None = None
        self._closing = False
        self._farewell = False
        self._reader = Reader(self, opened.early)
        self._pacemaker = Pacemaker(self) if self.pulse.next_look(time.monotonic()) is not None else None

    def start(self) -> None:
        """Start the threads."""
        self._reader.start()
        if self._pacemaker is not None:
            self._pacemaker.start()

    # What receipts need (`receipts.Surroundings`).

    @property
    def receipt_timeout(self) -> float:
        """The default wait for a receipt in seconds."""
        return self._settings.receipt_timeout

    @property
    def gate_shut(self) -> bool:
        """Whether the reader is stopped by a full inbox."""
        return self.gate.shut

    def hold_gate(self) -> contextlib.AbstractContextManager[None]:
        """Keep the reader reading."""
        return self.gate.hold()

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
            timeout: seconds until the frame must have left; `None` takes the send timeout.

        Raises:
            NotConnected: the link was closed from this side.
            ConnectionLost: the link died; `SendTimeout` if the broker stopped reading.
            LocalProtocolError: the frame may not or cannot be sent; nothing left.
            LimitExceeded: too many receipts, subscriptions or transactions already; nothing left.
        """
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug("> %r", Frame(command, headers, body))
        deadline = Deadline(self._settings.send_timeout if timeout is None else timeout)
        leaving = False
        self._acquire_write(deadline)
        try:
            data, handle = self.encode_asking(command, headers, body, receipt=receipt, content_length=content_length)
            # From DISCONNECT on, the end of the stream is what we asked for.
            self._closing = self._closing or command == "DISCONNECT"
            leaving = True
            self._sendall(data, deadline)
            self.counters.frames_out += 1
        except ConnectionLost as error:
            failure = error
        else:
            return handle
        finally:
            self._write_lock.release()
        raise self._write_failed(failure, failure.outcome if leaving else "not-sent")

    def encode_asking(
        self,
        command: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        receipt: bool | Receipt,
        content_length: bool = True,
    ) -> tuple[bytes, Receipt | None]:
        """Return the octets of a frame that may be sent now, and its receipt, which is registered."""
        kept = receipt if isinstance(receipt, Receipt) else None
        handle = kept or (self.receipts.new(farewell=command == "DISCONNECT") if receipt else None)
        if handle is not None:
            headers["receipt"] = handle.id
        try:
            data = self.encode(command, headers, body, content_length=content_length)
        except BaseException:
            if handle is not None and kept is None:
                self.receipts.forget(handle)
            raise
        if kept is not None:
            self.receipts.adopt(kept)
        return data, handle

    def encode(
        self, command: str, headers: Mapping[str, str], body: bytes = b"", *, content_length: bool = True
    ) -> bytes:
        """Return the octets of a frame that may be sent now. Takes the protocol lock."""
        with self.protocol_lock:
            self.check_open()
            return self.protocol.send(command, headers, body, content_length=content_length)

    def transmit(self, data: bytes, *, frames: int, timeout: float | None = None) -> None:
        """Send frames that `encode` made, in one write. Raises as `request` does."""
        deadline = Deadline(self._settings.send_timeout if timeout is None else timeout)
        leaving = False
        self._acquire_write(deadline)
        try:
            # DISCONNECT may have gone out since they were encoded, and nothing may follow it.
            self.check_open()
            leaving = True
            self._sendall(data, deadline)
            self.counters.frames_out += frames
        except ConnectionLost as error:
            failure = error
        else:
            return
        finally:
            self._write_lock.release()
        raise self._write_failed(failure, failure.outcome if leaving else "not-sent")

    def check_open(self) -> None:
        """Raise the reason if nothing can be sent any more."""
        if self._closing:
            raise NotConnected("the connection is closed")
        if self._end is not None:
            raise _retold(self._end, "not-sent")

    def _acquire_write(self, deadline: Deadline) -> None:
        remaining = deadline.remaining()
        if self._write_lock.acquire(timeout=-1 if remaining is None else remaining):
            return
        self.check_open()
        raise SendTimeout(f"another frame to {self.address} did not leave in time", outcome="not-sent")

    def _sendall(self, data: bytes, deadline: Deadline) -> None:
        try:
            self.transport.sendall(data, deadline)
        except ConnectionLost:
            raise
        except BaseException:
            # Ctrl-C, say: part of the frame may have left, and the next one would be read as the rest of it.
            self.fail(ConnectionLost("a frame was interrupted on its way out"))
            raise
        self.counters.octets_out += len(data)
        self.pulse.sent(time.monotonic())

    def _write_failed(self, error: ConnectionLost, outcome: Outcome) -> StompError:
        """End the link after a failed write, and return the best reason for it; called without locks."""
        if not isinstance(error, SendTimeout) and not self._reader.is_current():
            # A broker that refuses us says why and closes: the reason lies in front of the end of the stream.
            with self.gate.hold():
                self.ended.wait(_LAST_WORDS)
        self.fail(error)
        return _retold(self._end or error, outcome)

    def beat(self) -> bool:
        """Send a heart-beat if the line is free; return whether one went out. Never waits."""
        if not self._write_lock.acquire(blocking=False):
            return False  # a busy line is not idle
        try:
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

    def close(self) -> None:
        """End the link from this side, without a word. Idempotent, never blocks."""
        self._closing = True
        self.fail(NotConnected("the connection is closed"))

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
