"""WebSocket over another transport: its messages are parts of one byte stream, in both directions.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | the underlying transport, until its deadline or `shutdown` |
| one writer at a time | `sendall`, `send_messages`, `shutdown_write` | the same |
| any | `shutdown` | nothing |

Lock: `WebSocketTransport._lock` guards the order of bytes out. The writer holds it during I/O; others, which answer a
Ping or close, only try it. If the writer has it, the writer sends their frames after its own.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from stompy.deadline import NOW, Budget, Deadline, deadline_of
from stompy.errors import ConnectionLostError, SendTimeoutError, StompTimeoutError
from stompy.forks import free_when_forked
from stompy.transport.websocket.frames import (
    BINARY,
    CLOSE,
    FIN,
    GOING_AWAY,
    MAX_FRAME,
    NO_STATUS,
    NORMAL,
    PING,
    POLICY_VIOLATION,
    PONG,
    TEXT,
    Decoder,
    PeerViolation,
    apply_mask,
    close_payload,
    describe_close,
    encode,
    masked_head,
    message_frames,
    parse_close,
)
from stompy.world import os, threading, time

if TYPE_CHECKING:
    from stompy.transport.base import UnderlyingTransport

_LOG = logging.getLogger("stompy.transport")

_MAX_ANSWERS = 64
"""Pings that wait for their answer; of more, only the latest are answered, which is allowed (section 5.5.3)."""

_CLOSED_WITHIN = 5.0
"""Seconds that a client waits for the server to close the connection (section 7.1.1)."""

_EMPTY_RATE = 1_000
"""Frames a second that may bring nothing: Ping and Pong frames, and empty parts of messages."""
_MAX_EMPTY = 10_000
"""Such frames that may come at once, as after a pause without reads."""

_PART = 256 * 1024
"""Bytes that are written at once, of long messages and of many."""
_KEYS = struct.Struct("4s" * 128)
"""Masking keys that are taken from the operating system at once."""


class WebSocketTransport:
    """One end of a WebSocket whose opening handshake is done; see `stompy.transport.base.Transport`.

    Each `sendall` is one message, as some peers expect one STOMP frame in each; a long one leaves in several frames of
    WebSocket. Messages of the peer may be divided in any way. The end of the underlying stream is the end of this one,
    even without a Close frame. A Close frame of the peer ends one direction: it is answered when the other one is shut
    down, so that bytes written before arrive.

    Args:
        underlying: the transport below, which this one then owns.
        client: whether this is the client.
        subprotocol: the agreed subprotocol, or `None`.
        text: whether to send text messages rather than binary ones, where the bytes are UTF-8. A server adapts to its
            client.
        received: bytes that arrived with the handshake.
    """

    keeps_messages = True

    def __init__(
        self,
        underlying: UnderlyingTransport,
        *,
        client: bool,
        subprotocol: str | None = None,
        text: bool = False,
        received: bytes = b"",
    ) -> None:
        self._underlying = underlying
        self._client = client
        # RabbitMQ sends bytes of all kinds as text.
        self._decoder = Decoder(masks=not client, checks_text=not client)
        self._received = received
        self._spare, self._counted_at = float(_MAX_EMPTY), time.monotonic()
        self._text = text
        self._keys: list[bytes] = []
        self._lock = threading.RLock()
        free_when_forked(self._lock)
        self._unsent: bytes | memoryview = b""  # the rest of a frame
        self._control: deque[bytes] = deque(maxlen=_MAX_ANSWERS)
        self._writing = False  # a thread writes messages, and what is pending before and after them
        self._interrupted = False  # a write has begun, or was ended by a signal, so that it is unknown what was written
        self._close_sent = False  # or queued
        self._close_written = False
        self._closing = close_payload(NORMAL)  # the payload of our Close frame, which answers that of the peer
        self._end: ConnectionLostError | None = None
        self._raised = False
        self._shut = False
        self.peer = underlying.peer
        """The name of the peer."""
        self.subprotocol = subprotocol
        """The agreed subprotocol."""
        self.peer_closes = client
        """Whether the peer closes the connection when it has our Close frame, which is to be waited for."""

    # Reading

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream, after a normal Close frame, and after `shutdown`.

        Raises:
            StompTimeoutError: the deadline passed.
            ConnectionLostError: the stream broke, the peer broke the protocol or closed with an error.
        """
        while not self._shut and self._end is None and not self._decoder.closed:
            data, self._received = self._received, b""
            data = data or self._underlying.recv(deadline)
            if not data:
                return b""
            payload = self._decode(data)
            if payload:
                return payload
            if deadline is not None and deadline.expired:
                raise StompTimeoutError(f"no bytes from {self.peer} in time")
        if self._shut:
            return b""
        if self._end is not None and not self._raised:
            self._raised = True
            raise self._end
        while self._decoder.error is not None and self._underlying.recv(deadline):
            pass  # unread bytes could destroy our Close frame
        return b""

    def _decode(self, data: bytes) -> bytes:
        decoder = self._decoder
        pieces = decoder.receive(data)
        if decoder.empty:  # control frames are, too
            for opcode, payload, _ in pieces:
                if opcode == PING:
                    self._answer(PONG, payload)
                elif opcode == CLOSE:
                    self._closed(*parse_close(payload))
            pieces = [piece for piece in pieces if piece[0] <= BINARY]
            if decoder.error is None:
                self._limit_rate(decoder)
        if pieces and not self._client:
            self._text = pieces[-1][0] == TEXT
        if decoder.error is not None:
            message = f"the WebSocket peer {decoder.error.message}"
            self._answer(CLOSE, close_payload(decoder.error.code, message))
            self._end = ConnectionLostError(f"connection to {self.peer} lost: {message}")
            if not self._client:
                _LOG.info("%s: ended: %s", self.peer, message)
        self._send_control()
        if decoder.error is not None and not self._client:
            self._underlying.shutdown_write()
        return b"".join([piece[1] for piece in pieces])

    def _limit_rate(self, decoder: Decoder) -> None:
        """Refuse a flood of frames that bring nothing: each costs as much as one that does, and is counted nowhere."""
        now = time.monotonic()
        self._spare = min(_MAX_EMPTY, self._spare + (now - self._counted_at) * _EMPTY_RATE) - decoder.empty
        self._counted_at, decoder.empty = now, 0
        if self._spare < 0:
            message = f"sent a flood of frames without content (more than {_EMPTY_RATE} a second)"
            decoder.error = PeerViolation(POLICY_VIOLATION, message)

    def _closed(self, code: int, reason: str) -> None:
        self._closing = b"" if code == NO_STATUS else close_payload(code)
        said = describe_close(code, reason)
        _LOG.debug("%s: closed the WebSocket with %s", self.peer, said)
        if code not in (NORMAL, GOING_AWAY, NO_STATUS):
            self._end = ConnectionLostError(f"{self.peer} closed the WebSocket with {said}")

    # Writing

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Write `data` as one message; without data, only the rest of an earlier message.

        Raises:
            SendTimeoutError: the deadline passed first.
            ConnectionLostError: the stream broke or was shut down.
        """
        size, keys = len(data), self._keys
        if not size or size > MAX_FRAME:
            self.send_messages((data,), deadline_of(deadline))  # of all of it
            return
        opcode = BINARY if not self._text else TEXT if data.isascii() else _opcode_of(data)
        if keys and 125 < size < MAX_FRAME and apply_mask is not None:
            key = keys.pop()
            frame = masked_head(FIN | opcode, 0xFE, size, key) + apply_mask(data, key)  # as `encode`, in fewer calls
        else:
            frame = encode(opcode, data, self._next_key())
        self._write(frame, (), deadline)

    def send_messages(self, messages: Sequence[bytes], deadline: Budget) -> None:
        """Write several messages together; see `stompy.transport.base.MessageTransport.send_messages`."""
        parts = self._parts(messages)
        self._write(next(parts, b""), parts, deadline)

    def send_now(self, messages: list[bytes]) -> list[bytes] | None:
        """Write without waiting; see `stompy.transport.base.DirectTransport.send_now`."""
        if sum(map(len, messages)) > MAX_FRAME:
            return messages  # not to keep much here: its parts have a time limit each
        try:
            self.send_messages(messages, NOW)
        except ConnectionLostError as error:
            return messages if error.outcome == "not-sent" else [b""]
        return None

    def _parts(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the frames of messages, joined to parts of about `_PART` bytes."""
        frames: list[bytes] = []
        size = 0
        for message in messages:
            for frame in self._frames(message):
                frames.append(frame)
                size += len(frame)
                if size >= _PART:
                    yield b"".join(frames)
                    frames, size = [], 0
        if frames:
            yield frames[0] if len(frames) == 1 else b"".join(frames)

    def _frames(self, data: bytes) -> Iterable[bytes]:
        if not data:
            return ()
        opcode = _opcode_of(data) if self._text else BINARY
        if len(data) <= MAX_FRAME:
            return (encode(opcode, data, self._next_key()),)
        return message_frames(opcode, data, self._next_key)

    def _next_key(self) -> bytes | None:
        if not self._client:
            return None
        if not self._keys:
            self._keys += _KEYS.unpack(os.urandom(_KEYS.size))
        return self._keys.pop()

    def _write(self, part: bytes | memoryview, rest: Iterator[bytes] | tuple[()], budget: Budget) -> None:
        """Write parts, of whole frames each; seconds of `budget` count anew for each of them."""
        begun, left = False, budget
        try:
            self._writing = True
            if self._control or self._unsent:  # in this order: see `_flush`
                left = deadline_of(budget)
                with self._lock:
                    pass  # a thread that has begun to write them, without waiting, ends
            if self._interrupted:
                raise self._was_shut_down()
            self._interrupted = True
            try:
                while self._control or self._unsent:
                    self._flush(left)
                if self._close_sent:  # looked at when a Close frame that was queued meanwhile is written
                    raise self._was_shut_down()
                while part:
                    if begun and (left := deadline_of(left)).expired:  # a slow reader must not extend it
                        raise SendTimeoutError(f"{self.peer} did not accept the bytes in time", outcome="unknown")
                    sent, begun = self._underlying.send(part, left), True
                    if sent < len(part):
                        part = memoryview(part)[sent:]
                    else:
                        part, left = next(rest, b"") if rest else b"", budget
                if not begun or (type(left) is Deadline and left.expired):
                    self._underlying.sendall(b"", left)  # what TLS has taken and not written yet
            except ConnectionLostError as error:
                if begun:
                    self._unsent, error.outcome = memoryview(b"".join((part, *rest))), "unknown"
                self._interrupted = False
                raise
            self._interrupted = False
        finally:
            self._writing = False
            if self._control:
                self._send_control()

    def _was_shut_down(self) -> ConnectionLostError:
        return ConnectionLostError(f"connection to {self.peer} was shut down", outcome="not-sent")

    def _flush(self, deadline: Budget) -> None:
        """Write a part of the rest of an earlier frame, else of a control frame; no other thread may write."""
        if not self._unsent:
            frame = self._unsent = self._control[0]  # in one of both all the time, for the look of a writer
            self._control.popleft()
            if self._close_written:
                self._unsent = b""  # queued at the same time as a Close frame, which nothing follows
                return
            self._close_written = frame[0] & 0x0F == CLOSE
        sent = self._underlying.send(self._unsent, deadline)
        self._unsent = self._unsent[sent:]

    def _answer(self, opcode: int, payload: bytes) -> None:
        """Queue a control frame; none follows a Close frame."""
        if not self._close_sent:
            self._close_sent = opcode == CLOSE
            self._control.append(encode(opcode, payload, os.urandom(4) if self._client else None))

    def _send_control(self) -> bool:
        """Write the queued control frames as far as possible without waiting, unless a writer will do it.

        Returns:
            `False` if they cannot be written: the peer does not read, or a signal left a frame unfinished.
        """
        lock = self._lock
        # Looked at again when the lock is released, as a writer that ends meanwhile leaves to this one what is queued.
        while self._control and not self._writing and not lock._is_owned():  # type: ignore[attr-defined]
            try:
                if not lock.acquire(blocking=False):
                    return True
                while (self._control or self._unsent) and not self._writing:
                    if self._interrupted:
                        return False
                    self._flush(NOW)
            except ConnectionLostError:
                return False  # with the next message; or the connection is lost, which the reader finds out
            finally:
                try:  # noqa: SIM105 - `suppress` is Python code, where a signal may arrive first
                    lock.release()
                except RuntimeError:
                    pass  # it was not acquired
        return self._writing or not self._interrupted

    # Closing

    def shutdown(self) -> None:
        """End both directions and wake waiting threads; from any thread."""
        if not self._shut:
            self._answer(CLOSE, self._closing)
            self._shut = True
            self._send_control()
        if not self._awaits_end():
            self._underlying.shutdown()

    def _awaits_end(self) -> bool:
        """Whether both sides have sent a Close frame, or a writer will; then the server closes the connection."""
        if not (self._client and self._decoder.closed and self._close_sent):
            return False
        return not self._interrupted or self._send_control()

    def shutdown_write(self) -> None:
        """End the outgoing direction by a Close frame: the peer reads all that was written, then the end."""
        self._answer(CLOSE, self._closing)
        if not self._send_control():
            self._underlying.shutdown_write()

    def close(self) -> None:
        """Shut down, let a server close the connection first, and release the resources of the operating system."""
        self.shutdown()
        until = Deadline(_CLOSED_WITHIN)
        with contextlib.suppress(StompTimeoutError, ConnectionLostError):
            while self._awaits_end() and self._underlying.recv(until):
                pass
        self._underlying.close()

    def __repr__(self) -> str:
        return f"<WebSocketTransport over {self._underlying!r}>"


def _opcode_of(data: bytes) -> int:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return BINARY
    return TEXT
