"""The reader thread: bytes in, frames routed, the link cleaned up.

| owns | may block on | never |
|---|---|---|
| the parser, the order of routing, closing the socket | `recv`, the flow gate | writes, runs user code, joins |

It takes the protocol lock (rank 4) once a read, and leaves (rank 5) while routing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from stompy.errors import ConnectionLost, LimitExceeded, StompError
from stompy.frames.frame import Frame
from stompy.frames.learned import Row, Run, frames_of
from stompy.protocol.heartbeat import HeartbeatRateLimit
from stompy.threads import DaemonThread

if TYPE_CHECKING:
    from stompy.link.link import Link

_LOG = logging.getLogger("stompy.link")
_RECEIPT_ID = b"receipt-id:"


class LinkOwner(Protocol):
    """What a link tells its connection; all but `call_soon` run on the reader thread and must not block."""

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        """Take the MESSAGE frames of one read, in order."""
        ...

    def receipts(self, link: Link, frames: Frame | Run) -> None:
        """Hear of one RECEIPT or several."""
        ...

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Hear, once, that the link is over; `None` where it was closed from this side."""
        ...

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback where user code runs."""
        ...


class Reader(DaemonThread):
    """Reads until the link is over, then releases it.

    Args:
        link: whose bytes are read.
        early: frames that came with CONNECTED.
    """

    def __init__(self, link: Link, early: Sequence[Frame]) -> None:
        super().__init__(f"stompy-{link.name}-reader")
        self._link = link
        self._early = early
        self._meter = HeartbeatRateLimit(link.max_eol_rate, time.monotonic())

    def run(self) -> None:
        """Read to the end of the stream, an ERROR, an offence, or the end set by somebody else."""
        link = self._link
        try:
            self._route(self._early)
            self._fail_on_offence()
            while link.end_reason is None:
                link.flow.wait_open()
                data = link.transport.recv()
                if not data:
                    break
                now = time.monotonic()
                link.pulse.heard(now)
                link.bytes_in += len(data)
                self._take(data, now)
        except StompError as error:
            link.fail(error)
        finally:
            link.clean_up()

    def _take(self, data: bytes, now: float) -> None:
        link = self._link
        parser = link.protocol.parser
        frames = parser.read(data)
        if frames:
            with link.protocol_lock:
                accepted = link.protocol.accept(frames)
            self._route(accepted)
        self._fail_on_offence()
        try:
            self._meter.check(parser.line_ends, frames=_count(frames), now=now)
        except LimitExceeded as flood:
            raise _broken(flood) from flood

    def _fail_on_offence(self) -> None:
        offence = self._link.protocol.error or self._link.protocol.parser.error
        if offence is not None:
            raise _broken(offence) from offence

    def _route(self, frames: Sequence[Frame | Run]) -> None:
        """Hand the messages over as one, since each hand-over is what costs; only other frames between divide them."""
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
                link.fail_by_error(frame)
        if rows:
            link.owner.messages(link, rows)

    def _receipts(self, item: Frame | Run) -> None:
        link = self._link
        # Listeners first: who waits for a receipt may end the connection, and with it the dispatcher.
        link.owner.receipts(link, item)
        if isinstance(item, Run):
            confirm, at = link.receipts.confirm, len(_RECEIPT_ID)
            # Our ids have nothing to be escaped: where the raw text is one of them, it is that one.
            item.rows = [
                row
                for row in item.rows
                if not (
                    isinstance(head := row[0], bytes)
                    and head.startswith(_RECEIPT_ID)
                    and confirm(head[at:-1].decode("utf-8", "replace"))
                )
            ]
        for frame in frames_of([item]):
            if not link.receipts.confirm(frame.headers["receipt-id"]):
                _LOG.debug("a receipt that nobody waits for: %r", frame)


def _count(frames: Sequence[Frame | Run]) -> int:
    return sum([len(item) if isinstance(item, Run) else 1 for item in frames])


def _broken(offence: StompError) -> ConnectionLost:
    return ConnectionLost(f"the broker broke the protocol: {offence}")
