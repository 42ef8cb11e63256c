"""The reader thread: receives bytes, routes frames, cleans up the link.

| owns | may block on | never |
|---|---|---|
| the parser, the order of routing, closing the socket | `recv`, paused flow control | writes, runs user code, joins |

It takes the protocol lock (rank 4) once per read, and leaf locks (rank 5) while routing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from stompy.errors import ConnectionLostError, LimitExceededError, StompError
from stompy.frames.frame import Frame
from stompy.frames.heads import Row, Run, frames_of
from stompy.protocol.heartbeat import HeartbeatRateLimit
from stompy.threads import DaemonThread
from stompy.world import time

if TYPE_CHECKING:
    from stompy.link.link import Link

_LOG = logging.getLogger("stompy.link")
_RECEIPT_ID = b"\nreceipt-id:"
"""How the header lines of a learned RECEIPT start."""
_STALLED_AFTER = 5.0
"""Seconds of paused reading after which the owner is warned, once per session."""


class LinkOwner(Protocol):
    """Callbacks of a link; all but `call_soon` run on the reader thread and must not block."""

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        """Called with the MESSAGE frames of one read, in order."""

    def receipts(self, link: Link, frames: Frame | Run) -> None:
        """Called with one or more RECEIPT frames."""

    def stalled(self, link: Link, seconds: float) -> None:
        """Called at most once, when reading has been paused for `seconds`."""

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Called once when the link has ended; `reason` is `None` if we closed it."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback on the dispatcher."""


class Reader(DaemonThread):
    """Reads until the link ends, then cleans up.

    Args:
        link: the link to read from.
        early: frames that came with CONNECTED.
    """

    def __init__(self, link: Link, early: Sequence[Frame]) -> None:
        super().__init__(f"stompy-{link.name}-reader")
        self._link = link
        self._early = early
        self._rate_limit = HeartbeatRateLimit(link.max_eol_rate, time.monotonic())
        self._line_ends = 0

    def run(self) -> None:
        """Read until the stream ends, the broker sends ERROR or breaks the protocol, or a thread ends the link."""
        link = self._link
        try:
            self._route(self._early)
            self._check_violation()
            stalled = False
            while link.end_reason is None:
                if not link.flow.wait_while_paused(None if stalled else _STALLED_AFTER):
                    stalled = True
                    link.owner.stalled(link, _STALLED_AFTER)
                    continue
                data = link.transport.recv()
                if not data:
                    break
                now = time.monotonic()
                link.timer.last_heard = now
                link.bytes_in += len(data)
                self._process(data, now)
        except StompError as error:
            link.fail(error)
        except MemoryError as error:
            link.fail_for_memory(error)
        finally:
            link.clean_up()

    def _process(self, data: bytes, now: float) -> None:
        link = self._link
        parser = link.protocol.parser
        frames = parser.read(data)
        if frames:
            with link.protocol_lock:
                accepted = link.protocol.accept(frames)
            self._route(accepted)
        self._check_violation()
        if parser.line_ends == self._line_ends:
            return  # the limit counts nothing else
        self._line_ends = parser.line_ends
        try:
            self._rate_limit.check(parser.line_ends, frames=_count(frames), now=now)
        except LimitExceededError as flood:
            raise _protocol_violation(flood) from flood

    def _check_violation(self) -> None:
        violation = self._link.protocol.error or self._link.protocol.parser.error
        if violation is not None:
            raise _protocol_violation(violation) from violation

    def _route(self, frames: Sequence[Frame | Run]) -> None:
        """Route frames in order; consecutive messages go to the owner in one call, as each call is slow."""
        link = self._link
        link.frames_in += _count(frames)
        if _LOG.isEnabledFor(logging.DEBUG):
            for frame in frames_of(frames):
                _LOG.debug("< %r", frame)
        rows: list[Row] = []
        for item in frames:
            if item.command == "MESSAGE":
                rows += item.rows if isinstance(item, Run) else [(item.headers, b"", item.body)]
                continue
            if rows:
                link.owner.messages(link, rows)
                rows = []
            if item.command == "RECEIPT":
                self._receipts(item)
                continue
            for frame in frames_of([item]):
                link.control(frame)
        if rows:
            link.owner.messages(link, rows)

    def _receipts(self, item: Frame | Run) -> None:
        link = self._link
        # Listeners first: the caller that waits may close the connection, and with it the dispatcher.
        link.owner.receipts(link, item)
        if isinstance(item, Run):
            confirm, at = link.receipts.confirm, len(_RECEIPT_ID)
            # Our ids need no escaping, so the raw text can be compared.
            item.rows = [
                row
                for row in item.rows
                if not (row[0].startswith(_RECEIPT_ID) and confirm(row[0][at:-1].decode("utf-8", "replace")))
            ]
        for frame in frames_of([item]):
            if not link.receipts.confirm(frame.headers.get("receipt-id", "")):
                _LOG.debug("ignored an unexpected receipt: %r", frame)


def _count(frames: Sequence[Frame | Run]) -> int:
    return sum([len(item) if isinstance(item, Run) else 1 for item in frames])


def _protocol_violation(violation: StompError) -> ConnectionLostError:
    return ConnectionLostError(f"the broker broke the protocol: {violation}")
