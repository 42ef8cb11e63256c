"""The frames that wait for one client, and the thread that writes them.

| thread | owns | may block on |
|---|---|---|
| `stompy-broker-<n>-writer` | order of bytes out, heartbeats | the write queue; `sendall`, which `shutdown` ends |
| any, in `wake` | the same, while the writer waits | nothing: the writer writes the rest |

Locks: `WriteQueue._lock` is a leaf, taken by the holder of the router's lock, by the writer and by the reader; it calls
nothing and is never held over I/O.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, SendTimeoutError
from stompy.frames.encoder import HEARTBEAT
from stompy.locks import Rank, make_condition
from stompy.protocol.heartbeat import HeartbeatTimer
from stompy.transport.base import DirectTransport, MessageTransport, Transport
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.broker")

_SLICE = 256 * 1024
"""Bytes that a client must take within the send timeout."""


class WaitingMessage(Protocol):
    """A MESSAGE frame that waits; `stompy.broker.session_state.OutgoingMessage` is the only kind."""

    head: bytes
    body: bytes
    size: int


M = TypeVar("M", bound=WaitingMessage)
_Write: TypeAlias = Callable[[Sequence[bytes | WaitingMessage]], "list[bytes] | None"]


class WriteQueue(Generic[M]):
    """A bounded list of frames: MESSAGEs stop at the bound, the answers to a client's own frames do not.

    The answers are bounded in another way: the reader takes no more frames from a client that does not fetch them.
    Frames are added with the router's lock held, without waking the writer; the router wakes all writers at the end of
    its turn, so that the frames of one turn leave in one write.

    Two threads may write: the writer, and while it waits the thread that would wake it, which saves two switches of
    threads. `_waiting` and `_at_once_runs` decide between them, and both change with the lock held.

    Args:
        max_bytes: MESSAGEs are refused from here on, and the reader waits when so many bytes of answers pile up.
        max_frames: the same, in frames.
        touched: where the write queue enters itself when it must be woken.
        ending: bytes after the NUL of each frame.
    """

    def __init__(
        self, *, max_bytes: int, max_frames: int, touched: dict[WriteQueue[M], None], ending: bytes = b""
    ) -> None:
        self.ending = ending
        self._max_bytes = max_bytes
        self._max_frames = max_frames
        self._touched = touched
        self._lock = make_condition("write queue", Rank.BROKER_LEAF)
        self._frames: list[bytes | M] = []
        self._bytes = 0
        self._answers = 0  # bytes of answers among them
        self._room_wanted = False  # somebody wanted to add a MESSAGE and could not
        self._closed = False  # nothing may be added any more, or could be written
        self._at_once: _Write | None = None
        self._rest: list[bytes] | None = None  # of what was begun to be written at once
        self._waiting = False  # the writer waits for frames, and others may write at once
        self._at_once_runs = False  # another thread writes at once
        self._due = False  # the writer is to look when its next heartbeat is due

    def write_at_once(self, write: _Write | None) -> None:
        """Let a thread that would wake the writer write first: `write` takes frames, and returns as `send_now` does."""
        self._at_once = write

    def room(self) -> tuple[int, int]:
        """Return how many MESSAGEs may be added now, and about how many bytes; there may be more room in a moment."""
        # Without the lock: the writer only makes room, and whoever adds holds the router's lock.
        if self._closed:
            return 0, 0
        return self._max_frames - len(self._frames), self._max_bytes - self._bytes

    def has_room(self) -> bool:
        """Whether a MESSAGE may be added; if not, the writer will say when there is room again."""
        # With the lock, as the writer must not take the last frames between the look and the wish: it would find no
        # wish, and nobody would ever say that there is room.
        with self._lock:
            if self._closed:
                return False
            if self._bytes < self._max_bytes and len(self._frames) < self._max_frames:
                return True
            self._room_wanted = True
            return False

    def deliver(self, deliveries: Sequence[M], size: int) -> None:
        """Add MESSAGEs, of so many bytes in all."""
        # Also when it was closed between the look at its room and this call: what nobody writes goes back, as the
        # session of a closed write queue withdraws everything at its end.
        with self._lock:
            self._frames += deliveries
            self._bytes += size
        self._touched[self] = None

    def answer(self, *frames: bytes) -> None:
        """Add any other frames; nothing happens once the write queue is finished."""
        size = sum(map(len, frames))
        with self._lock:
            if self._closed:
                return
            self._frames += [frame + self.ending for frame in frames]
            self._bytes += size
            self._answers += size
        self._touched[self] = None

    def withdraw(self, unwanted: Callable[[M], bool]) -> list[M]:
        """Take out and return the MESSAGEs that no thread has begun to write and that are `unwanted`."""
        # What the writer, or a thread that writes at once, has taken is not in the list any more, and counts as sent.
        with self._lock:
            taken = [frame for frame in self._frames if not isinstance(frame, bytes) and unwanted(frame)]
            if taken:
                gone = set(map(id, taken))
                self._frames = [frame for frame in self._frames if id(frame) not in gone]
                self._bytes -= sum(frame.size for frame in taken)
        return taken

    def finish(self) -> None:
        """Let the writer write the waiting frames, end its direction of the stream, and stop."""
        with self._lock:
            self._closed = True
        self._touched[self] = None

    def recheck(self) -> None:
        """Let the writer come out of `take`, as the time that it waits has changed."""
        with self._lock:
            self._due = True
            self._lock.notify_all()

    def wake(self) -> None:
        """Write the waiting frames at once, or wake the writer and a waiting reader; without the router's lock."""
        rest: list[bytes] | None = None
        begun = False
        try:
            with self._lock:
                at_once = self._at_once
                # Not while the writer is at work or was not woken yet (`_waiting`), or another thread writes: the bytes
                # would overtake. Nor before the rest of a partial write, which comes first and is the writer's.
                # Nor where the writer has more to do than write: make room known, or end the stream.
                busy = not self._waiting or self._at_once_runs or self._rest is not None
                if at_once is None or busy or not self._frames or self._closed or self._room_wanted:
                    self._lock.notify_all()
                    return
                # From here on the writer does not leave `take` until `_end_at_once`, whatever wakes it.
                begun = self._at_once_runs = True
                frames = self._take_frames()
            rest = at_once(frames)
        finally:
            # Also if a signal's exception ends this thread in between: else the writer would wait forever.
            if begun:
                self._end_at_once(rest)

    def _end_at_once(self, rest: list[bytes] | None) -> None:
        with self._lock:
            self._rest = rest
            self._at_once_runs = False
            # The writer is woken if it has something to do: the rest of a partial write, or what came meanwhile, whose
            # own `wake` found this thread at work. It is also woken if it has left its first wait (`not _waiting`) and
            # waits for the end of this write.
            if rest is not None or self._frames or self._room_wanted or self._closed or not self._waiting:
                self._lock.notify_all()

    def _take_frames(self) -> list[bytes | M]:
        frames, self._frames = self._frames, []
        if self._answers >= self._max_bytes:
            self._lock.notify_all()  # the reader waits for that
        self._bytes = self._answers = 0
        return frames

    def take(self, timeout: float | None) -> tuple[list[bytes | M], bool] | None:
        """Wait for frames and take all of them; with them, whether a MESSAGE waits for room.

        Returns:
            no frames when `timeout` seconds passed without any; `None` when the write queue is finished and empty.
        """
        with self._lock:
            if not self._has_work():
                self._waiting = True
                self._lock.wait_for(self._has_work, timeout)
            self._waiting = False  # from here on no other thread begins to write at once
            # One may have begun before, and what it leaves comes first; it notifies at its end.
            self._lock.wait_for(lambda: not self._at_once_runs)
            self._due = False
            if not self._frames and self._rest is None and self._closed:
                return None
            frames: list[bytes | M] = [*(self._rest or ()), *self._take_frames()]
            self._rest = None
            room_wanted, self._room_wanted = self._room_wanted, False
            return frames, room_wanted

    def _has_work(self) -> bool:
        return bool(self._frames) or self._rest is not None or self._closed or self._room_wanted or self._due

    def give_up(self) -> None:
        """Note that nothing can be written any more."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def wait_for_answers(self) -> None:
        """Wait until the answers that pile up are below the bound, or nothing can be written any more."""
        # Without the lock first, as this is asked after every read. The reader's own frames cause nearly all answers,
        # so it has seen their sum; an answer that comes from elsewhere is seen after the next read.
        if self._answers < self._max_bytes:
            return
        with self._lock:
            self._lock.wait_for(lambda: self._answers < self._max_bytes or self._closed)


class WriterThread:
    """Writes a write queue to a transport, and a heartbeat when there was nothing to write.

    Args:
        write_queue: the frames to write.
        transport: where to.
        on_room: called when there is room again for a MESSAGE that had none; takes the router's lock.
        stalled: seconds after which a client that reads too little is disconnected; `None` for never.
        name: of the thread.
    """

    def __init__(
        self,
        write_queue: WriteQueue[M],
        transport: Transport,
        *,
        on_room: Callable[[], None],
        stalled: float | None,
        name: str,
    ) -> None:
        self._stalled = stalled
        self._write_queue = write_queue
        self._transport = transport
        self._on_room = on_room
        self._pulse: HeartbeatTimer | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.join = self._thread.join
        """Wait for the end of the thread, as `threading.Thread.join` does."""
        self.start = self._thread.start
        self._messages = cast("MessageTransport", transport) if hasattr(transport, "keeps_messages") else None
        self._at_once: _Write | None = None
        if isinstance(transport, DirectTransport):
            self._at_once = functools.partial(self._write_at_once, transport)
        self.watch(None)

    def watch(self, on_write: Callable[[bytes], None] | None) -> None:
        """Call a function with the frames before they are written, from now on; `None` ends that. From any thread."""
        self._on_write = on_write
        self._write_queue.write_at_once(self._at_once if on_write is None else None)

    def beat(self, pulse: HeartbeatTimer) -> None:
        """Send heartbeats from now on; called before CONNECTED enters the write queue."""
        self._pulse = pulse
        self._write_queue.recheck()

    def _run(self) -> None:
        try:
            self._write_all()
            self._transport.shutdown_write()
        except SendTimeoutError:
            text = "%s: read less than %d bytes in %g s; disconnected (limit send_timeout=%g)"
            _LOG.info(text, self._transport.peer, _SLICE, self._stalled, self._stalled)
            self._transport.shutdown()
        except ConnectionLostError as error:
            # The reader is not stopped here: it shall still find what the client said before it went away.
            _LOG.debug("%s: %s", self._transport.peer, error)
        except BaseException:
            _LOG.exception("%s: the writer failed", self._transport.peer)
            self._transport.shutdown()
        finally:
            self._write_queue.give_up()

    def _write_all(self) -> None:
        while (taken := self._write_queue.take(self._until_beat())) is not None:
            frames, room_wanted = taken
            if frames:
                messages, on_write = self._encoded(frames), self._on_write  # which another thread may change
                if on_write is not None:
                    on_write(b"".join(messages))
                self._write(messages)
            elif self._pulse is not None and self._pulse.beat_due(time.monotonic()):
                self._write([HEARTBEAT])
            if room_wanted:
                self._on_room()

    def _until_beat(self) -> float | None:
        return None if self._pulse is None else self._pulse.next_check(time.monotonic())

    def _encoded(self, frames: Sequence[bytes | WaitingMessage]) -> list[bytes]:
        """Return frames as they are written: each by itself where the transport keeps messages apart, else joined."""
        if self._messages is None or not self._messages.keeps_messages:
            return [self._joined(frames)]
        return [self._joined([frame]) for frame in frames]

    def _write(self, messages: list[bytes]) -> None:
        # A client may be slow for long, but must read; each slice has its own time, however much there is.
        if self._messages is not None and self._messages.keeps_messages:
            self._messages.send_messages(messages, self._stalled)
        else:
            for data in messages:
                for start in range(0, len(data) or 1, _SLICE):
                    self._transport.sendall(data[start : start + _SLICE], Deadline(self._stalled))
        if self._pulse is not None:
            self._pulse.sent(time.monotonic())

    def _write_at_once(
        self, transport: DirectTransport, frames: Sequence[bytes | WaitingMessage]
    ) -> list[bytes] | None:
        messages = self._encoded(frames)
        rest = transport.send_now(messages)
        # The same list comes back where nothing was written, which is no sign of life for the client.
        if rest is not messages and self._pulse is not None:
            self._pulse.sent(time.monotonic())
        return rest

    def _joined(self, frames: Sequence[bytes | WaitingMessage]) -> bytes:
        parts: list[bytes] = []
        for frame in frames:
            if isinstance(frame, bytes):
                parts.append(frame)
            else:
                parts += (frame.head, frame.body, b"\0", self._write_queue.ending)
                frame.head = b""  # it may wait for its ACK for long, and the id of a subscription may be
        return b"".join(parts)
