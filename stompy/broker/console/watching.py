"""What the console watches: messages as they arrive at a destination, and the frames of a connection.

A watch keeps the latest of what passes, and ends when nobody has read it for a while. Nothing here costs the broker
anything while nobody watches.

| thread | lives with | owns | may block on |
|---|---|---|---|
| `stompy-broker-watches` | the watches | their end | the router's lock |

Locks: the router's guards the taps; the deque of a frame watch is filled by the session's threads, and is thread-safe.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stompy.broker.profile import subscribe_options
from stompy.broker.queues import Queue, View
from stompy.broker.topology import Feed
from stompy.frames.frame import is_secret
from stompy.world import threading, time

if TYPE_CHECKING:
    from stompy.broker.destinations import Target
    from stompy.broker.message import Item, MessageHead
    from stompy.broker.router import BrokerRouter
    from stompy.broker.selector import Selector
    from stompy.broker.session_state import SessionState
    from stompy.frames.frame import Frame, Headers

KEPT = 100
"""Messages, or frames, that a watch keeps."""
SHOWN = 2048
"""Bytes of a body that it keeps."""
UNREAD = 5.0
"""Seconds after which a watch that nobody reads ends, or half as many more."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A message, or a frame, that passed.

    Attributes:
        number: counts what the watch saw.
        moment: seconds since the epoch.
        kind: `"message"`, or the direction of a frame: `"received"` or `"sent"`.
        command: of the frame.
        headers: in order; the values of secret ones are masked.
        body: its first bytes.
        size: bytes of the whole body.
    """

    number: int
    moment: float
    kind: Literal["message", "received", "sent"]
    command: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    size: int


class Tap(View):
    """Sees the messages that are added to a queue; takes none.

    Args:
        selector: the condition on headers.
        text: bytes that the headers or the body must contain.
        after: the place in the order of the last message that it does not see.
    """

    __slots__ = ("_kept", "_last", "_text", "read_at", "seen")

    def __init__(self, selector: Selector | None, text: bytes, *, after: int) -> None:
        super().__init__(selector)
        self._text = text
        self._kept: deque[tuple[int, float, MessageHead, bytes, int]] = deque(maxlen=KEPT)
        self._last = after
        self.seen = 0
        self.read_at = time.monotonic()

    def sees(self, item: Item) -> bool:
        """Note a message that was not here before; return that it is not for a consumer."""
        message = item.message
        if item.order > self._last:  # others come back
            self._last = item.order
            wanted = not self._text or self._text in message.shared.data or self._text in message.body
            if wanted and super().sees(item):
                self.seen += 1
                body = message.body
                self._kept.append((self.seen, time.time(), message.shared, body[:SHOWN], len(body)))
        return False

    def read(self) -> list[Seen]:
        """Return what came since the last call, the latest of it if that is much."""
        self.read_at = time.monotonic()
        kept = [
            Seen(number, moment, "message", "MESSAGE", masked(head.pairs()), body, size)
            for number, moment, head, body, size in self._kept
        ]
        self._kept.clear()
        return kept


class _Passing(Queue):
    """A queue that shows each message to a tap, and keeps none."""

    def __init__(self, name: str, tap: Tap) -> None:
        super().__init__(name, max_messages=0, max_bytes=0, kept=True)
        self._tap = tap

    def fits(self, messages: int, size: int) -> bool:
        """There is always room."""
        return True

    def append(self, item: Item) -> None:
        """Show a message."""
        item.queue = self
        self._tap.sees(item)


class FrameWatch:
    """Keeps the latest frames of a session."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, float, Literal["received", "sent"], str, Headers, bytes, int]] = deque(maxlen=KEPT)
        self.seen = 0
        self.read_at = time.monotonic()

    def note(self, direction: Literal["received", "sent"], session: str, frame: Frame) -> None:
        """Note a frame; on the session's threads."""
        self.seen += 1
        body = frame.body
        self._kept.append((self.seen, time.time(), direction, frame.command, frame.headers, body[:SHOWN], len(body)))

    def read(self) -> list[Seen]:
        """Return what passed since the last call, the latest of it if that is much."""
        self.read_at = time.monotonic()
        kept = []
        while self._kept:
            number, moment, direction, command, headers, body, size = self._kept.popleft()
            kept.append(Seen(number, moment, direction, command, masked(headers.pairs), body, size))
        return kept


class Watches:
    """The watches of a broker.

    Args:
        router: the broker's state.
        unread: seconds after which a watch that nobody reads ends.
    """

    def __init__(self, router: BrokerRouter, *, unread: float = UNREAD) -> None:
        self._router = router
        self._unread = unread
        self._timer: threading.Timer | None = None
        self._taps: dict[tuple[str, Target, str, str], tuple[Tap, Queue | Feed]] = {}
        self._frames: dict[tuple[str, str], tuple[FrameWatch, SessionState]] = {}

    def messages(self, reader: str, target: Target, *, selector: str, text: str) -> Tap:
        """Return the tap of a reader for a destination, which is new where it has none such; with the router's lock.

        Raises:
            RemoteProtocolError: the selector is invalid.
        """
        key = (reader, target, selector, text)
        if key not in self._taps:
            options = subscribe_options({"selector": selector}.get, prefetch=1)
            topology, after = self._router.topology, self._router.publisher.mark()
            tap = Tap(options.selector, text.encode(), after=after)
            tapped: Queue | Feed
            if target.kind == "topic":
                tapped = Feed(target, _Passing(target.name, tap), selector=None)
                topology.add(tapped)
            else:
                tapped = topology.queue(target.name, forced=True)
                tapped.watch(tap)
            self._taps[key] = tap, tapped
            self._look_later()
        return self._taps[key][0]

    def frames(self, reader: str, session: SessionState) -> FrameWatch:
        """Return the watch of a reader for a session, which is new where it has none; with the router's lock."""
        key = (reader, session.name)
        if key not in self._frames:
            self._frames[key] = FrameWatch(), session
            self._show_frames(session)
            self._look_later()
        return self._frames[key][0]

    def _show_frames(self, session: SessionState) -> None:
        session.watch(*(watch.note for watch, watched in self._frames.values() if watched is session))

    def _look_later(self) -> None:
        if self._timer is None and (self._taps or self._frames):
            self._timer = threading.Timer(self._unread / 2, self._look)
            self._timer.name = "stompy-broker-watches"
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        with self._router.turn():
            self._timer = None
            self._end_unread(self._unread)
            self._look_later()

    def close(self) -> None:
        """End all watches."""
        with self._router.turn():
            timer, self._timer = self._timer, None
            self._end_unread(0.0)
        if timer is not None:
            timer.cancel()
            timer.join()

    def _end_unread(self, unread: float) -> None:
        before = time.monotonic() - unread
        for key, (tap, tapped) in list(self._taps.items()):
            if tap.read_at <= before:
                del self._taps[key]
                if isinstance(tapped, Queue):
                    tapped.unwatch(tap)
                    self._router.topology.forget_if_useless(tapped)
                else:
                    self._router.topology.remove(tapped)
        for name, (watch, session) in list(self._frames.items()):
            if watch.read_at <= before:
                del self._frames[name]
                self._show_frames(session)


def masked(pairs: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return headers with the values of secret ones replaced, such as that of `passcode`."""
    return tuple((name, "***" if is_secret(name) else value) for name, value in pairs)
