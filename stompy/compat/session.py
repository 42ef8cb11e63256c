"""One session of a transport: its link, and the thread that calls the listeners.

| thread | does here | may block on |
|---|---|---|
| the link's reader and heartbeat thread | notes changes of the state, queues calls of listeners | nothing |
| `stompy-compat-<number>-dispatcher`, or one that `override_threading` makes | calls listeners | user code |
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import stompy.compat.log as log
from stompy.compat.constants import CMD_DISCONNECT
from stompy.compat.utils import HEARTBEAT_FRAME, Frame, ReceivedMessage, default_create_thread
from stompy.connection.routing import Dispatcher
from stompy.dialects.brokers import dialect_of, leniency_of
from stompy.errors import HeartbeatTimeoutError, StompError
from stompy.forks import Owner, when_forked
from stompy.frames.frame import Frame as WireFrame
from stompy.frames.heads import Row, Run, frames_of
from stompy.link.link import Link, RawLink
from stompy.link.settings import LinkSettings, Timeouts
from stompy.locks import SafeEvent
from stompy.protocol.client import error_message
from stompy.protocol.unchecked import UncheckedClient
from stompy.transport.base import Transport as Stream
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.compat.transport import BaseTransport

_numbers = itertools.count(1)


class Session:
    """A link and its dispatcher; the owner of the link.

    Args:
        transport: whose listeners are called.
        stream: open.
        address: of the broker, for error messages.
    """

    def __init__(self, transport: BaseTransport, stream: Stream, address: str) -> None:
        self._transport = transport
        self._name = f"compat-{next(_numbers)}"
        self.protocol = UncheckedClient(leniency_for=leniency_of)
        settings = LinkSettings(timeouts=Timeouts(heartbeat_tolerance=transport.heartbeat_tolerance))
        self.link = RawLink(stream, self.protocol, settings, self, name=self._name, address=address)
        self.refusal: str | None = None
        """The error message of the broker, if it refused the session."""
        self.end_reason: StompError | None = None
        self.done = SafeEvent()
        """Set after the last call of a listener."""
        self._dispatcher = Dispatcher(f"stompy-{self._name}-dispatcher")
        self._ident = 0
        self._owner = Owner("connection", "connect again after a fork")
        when_forked(self)

    def after_fork(self) -> None:
        """End this copy in a forked child, without touching the parent's session."""
        self.link.after_fork(self._owner.error())
        self.done.set()

    def start(self) -> Any:
        """Start the threads, and return that of the listeners, as far as it is known."""
        create = self._transport.create_thread_fc
        self.call_soon(self._note_thread)
        thread = None
        if create is default_create_thread:
            self._dispatcher.start()
        else:
            thread = create(self._dispatcher.run)
        self.link.start()
        return thread

    def _note_thread(self) -> None:
        self._ident = threading.get_ident()

    def is_current(self) -> bool:
        """Return whether the caller is a listener of this session."""
        return threading.get_ident() == self._ident

    def disconnect(self, data: Any) -> None:
        """Write DISCONNECT; the session then ends with its receipt, or when the broker closes the connection."""
        self.link.writer.write(data, on_written=self.link.expect_end)

    # Called by the link.

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function on the dispatcher."""
        self._dispatcher.put(function)

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        """Queue messages."""
        size = sum([len(body) + (len(head) if isinstance(head, bytes) else head.size) for head, _, body in rows])
        link.flow.added(len(rows), size)
        self.call_soon(partial(self._deliver, link, rows, size))

    def _deliver(self, link: Link, rows: Sequence[Row], size: int) -> None:
        grammar, process, encoding = link.protocol.grammar, self._transport.process_frame, self._transport.encoding
        try:
            for head, _, body in rows:
                shown = body if encoding is None else body.decode(encoding, "replace")
                process(ReceivedMessage(head, grammar, shown), body)
        finally:
            link.flow.removed(len(rows), size)

    def receipts(self, link: Link, frames: WireFrame | Run) -> None:
        """Queue receipts; that of DISCONNECT ends the session."""
        for frame in frames_of([frames]):
            size = frame.headers.size
            link.flow.added(1, size)
            self._queue(frame)
            self.call_soon(partial(link.flow.removed, 1, size))
            if self._transport.take_receipt(frame.headers.get("receipt-id")) == CMD_DISCONNECT:
                self._transport.session_changed(self, connected=False)
                link.close()

    def control(self, link: RawLink, frame: WireFrame) -> None:
        """Note that the broker accepted or refused the session, and queue the frame."""
        self._queue(frame)
        if frame.command == "CONNECTED":
            idle = dialect_of(link.protocol.server).drops_idle
            if idle is not None and not self.protocol.offers_heartbeats:
                log.warning("%s drops clients that are idle for %g s: set heartbeats=(ms, ms)", link.address, idle)
            self._transport.session_changed(self, connected=True)
        elif frame.command == "ERROR" and not self.protocol.negotiated:
            self.refusal = error_message(frame)
            self._transport.session_changed(self, connected=False)
            link.fail_by_error(frame)

    def _queue(self, frame: WireFrame) -> None:
        encoding = self._transport.encoding
        body = frame.body if encoding is None else frame.body.decode(encoding, "replace")
        received = Frame(frame.command, dict(frame.headers), body)
        self.call_soon(partial(self._transport.process_frame, received, frame.body))

    def heartbeat(self, *, sent: bool) -> None:
        """Queue the calls for a heartbeat."""
        if sent:
            self.call_soon(partial(self._transport.notify, "send", Frame(None, {}, None)))
        else:
            self.call_soon(partial(self._transport.process_frame, HEARTBEAT_FRAME, b"\n"))

    def stalled(self, link: Link, seconds: float) -> None:
        """Called when the listeners are slow, of which stomp.py says nothing."""

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Queue the calls for the end of the session."""
        if reason is not None:
            log.warning("the session with %s ended: %s", link.address, reason)
        self.end_reason = reason
        self._transport.session_changed(self, connected=False)
        events = ["disconnected", "receiver_loop_completed"]
        if isinstance(reason, HeartbeatTimeoutError):
            events.append("heartbeat_timeout")
        calls = [partial(self._transport.notify, event) for event in events]
        self._dispatcher.stop([*calls, self.done.set])
