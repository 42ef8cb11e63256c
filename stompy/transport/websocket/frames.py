"""The frames of WebSocket (RFC 6455, section 5): encode them, and decode a stream of them in bounded memory."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_FRAME = 65_536
"""Bytes of the payload of a frame that is sent; longer messages leave in fragments, as Artemis takes no more."""

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
"""Opcodes."""

NORMAL, GOING_AWAY, PROTOCOL_ERROR, NO_STATUS, INVALID_TEXT, POLICY_VIOLATION = 1000, 1001, 1002, 1005, 1007, 1008
"""Status codes of a Close frame; `NO_STATUS` stands for a Close frame without one and is never sent."""

_MEANINGS = {
    NORMAL: "normal closure",
    GOING_AWAY: "going away",
    PROTOCOL_ERROR: "protocol error",
    1003: "unsupported data",
    NO_STATUS: "no status",
    INVALID_TEXT: "invalid text",
    POLICY_VIOLATION: "policy violation",
    1009: "message too big",
    1010: "extension missing",
    1011: "internal error",
    1012: "service restart",
    1013: "try again later",
    1014: "bad gateway",
}

_MAX_CONTROL = 125
"""Bytes of the payload of a control frame."""

FIN = 0x80
"""The bit of the first byte that marks the last frame of a message."""
_RESERVED, _OPCODE, _MASK = 0x70, 0x0F, 0x80
_head_of_16_bits, _head_of_64_bits = struct.Struct(">BBH").pack, struct.Struct(">BBQ").pack
_first_four = struct.Struct(">BBH").unpack_from
masked_head = struct.Struct(">BBH4s").pack
"""The head of a masked frame of 126 to 65,535 bytes: its first byte, 254, its size, the key."""
_CHUNK = 4_096
"""Bytes that are masked at a time without `apply_mask`, so that they stay in the cache of the processor."""

apply_mask: Callable[[bytes | memoryview, bytes], bytes] | None
"""`masked` in C, with the extra `websocket`: Python has no XOR of bytes."""
try:
    from websockets.speedups import apply_mask
except ImportError:
    apply_mask = None

Piece = tuple[int, bytes, bool]
"""The opcode of a message or of a control frame, bytes of its payload, and whether they are its last ones."""


@dataclass(frozen=True, slots=True)
class PeerViolation:
    """How a peer broke the protocol.

    Attributes:
        code: the status code to close with.
        message: the fault.
    """

    code: int
    message: str


def encode(opcode: int, payload: bytes | memoryview, key: bytes | None = None, *, last: bool = True) -> bytes:
    """Return a frame.

    Args:
        opcode: of the frame.
        payload: its payload.
        key: the masking key, of 4 bytes; a client masks, a server does not.
        last: whether it is the last frame of its message.
    """
    size = len(payload)
    first, mask = opcode | FIN if last else opcode, 0 if key is None else _MASK
    if size <= 125:
        head = bytes((first, mask | size))
    elif size < 65_536:
        head = _head_of_16_bits(first, mask | 126, size)
    else:
        head = _head_of_64_bits(first, mask | 127, size)
    if key is None:
        return head + payload
    return head + key + (masked(payload, key) if apply_mask is None else apply_mask(payload, key))


def message_frames(opcode: int, data: bytes, next_key: Callable[[], bytes | None]) -> Iterator[bytes]:
    """Yield the frames of a message; `next_key` returns the key of each frame, as for `encode`."""
    view = memoryview(data)
    for start in range(0, len(view) or 1, MAX_FRAME):
        stop = start + MAX_FRAME
        yield encode(CONTINUATION if start else opcode, view[start:stop], next_key(), last=stop >= len(view))


def masked(data: bytes | memoryview, key: bytes, at: int = 0) -> bytes:
    """Return `data` masked, or unmasked, which is the same (section 5.3).

    Args:
        data: bytes of a payload.
        key: the masking key, of 4 bytes.
        at: the position in the payload at which they begin.
    """
    shift = at & 3
    if shift:
        key = key[shift:] + key[:shift]
    if apply_mask is not None:
        return apply_mask(data, key)
    size, number = len(data), int.from_bytes
    # The XOR of big integers; byte by byte, Python would be a hundred times slower.
    if size <= _CHUNK:
        return (number(data, "little") ^ number((key * (size // 4 + 1))[:size], "little")).to_bytes(size, "little")
    mask, whole = number(key * (_CHUNK // 4), "little"), size - size % _CHUNK
    parts = [
        (number(data[start : start + _CHUNK], "little") ^ mask).to_bytes(_CHUNK, "little")
        for start in range(0, whole, _CHUNK)
    ]
    return b"".join((*parts, masked(data[whole:], key)))


def close_payload(code: int, reason: str = "") -> bytes:
    """Return the payload of a Close frame; a reason that is too long is cut."""
    return code.to_bytes(2, "big") + reason.encode()[: _MAX_CONTROL - 2].decode("utf-8", "ignore").encode()


def parse_close(payload: bytes) -> tuple[int, str]:
    """Return the status code and the reason in the payload of a Close frame that a `Decoder` has accepted."""
    return (int.from_bytes(payload[:2], "big"), payload[2:].decode()) if payload else (NO_STATUS, "")


def describe_close(code: int, reason: str) -> str:
    """Return status code and reason for an error message, e.g. `1008 (policy violation): the origin is unknown`."""
    meaning = _MEANINGS.get(code)
    return f"{code}{f' ({meaning})' if meaning else ''}{f': {reason}' if reason else ''}"


class Decoder:
    """Decode the frames of one peer. Payloads are returned as they arrive, so at most a frame's header is kept.

    Args:
        masks: whether the peer has to mask its frames, as clients have to, or must not, as servers must not.
        checks_text: whether to refuse text that is not UTF-8.

    Attributes:
        error: how the peer broke the protocol, after which nothing more is decoded; `None` if it did not.
        closed: whether a Close frame was decoded, after which nothing more is decoded either.
        empty: how many frames were decoded that bring no byte of a message: control frames, and empty ones.
    """

    def __init__(self, *, masks: bool, checks_text: bool = True) -> None:
        self.error: PeerViolation | None = None
        self.closed = False
        self.empty = 0
        self._mask = _MASK if masks else 0
        self._checks_text = checks_text
        self._kept = b""  # the start of a header, or of a control frame
        self._left = 0  # bytes of the payload of the current data frame that did not arrive yet
        self._key: bytes | None = None
        self._at = 0  # position in that payload
        self._last = True  # whether that frame is the last one of its message
        self._opcode = CONTINUATION  # of the current message; `CONTINUATION` between messages
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._half_character = False

    def receive(self, data: bytes) -> list[Piece]:
        """Return what is in the bytes that arrived next; see `error` and `closed` afterwards."""
        if self._kept:
            data, self._kept = self._kept + data, b""
        pieces: list[Piece] = []
        at = 0
        while self.error is None and not self.closed:
            if self._opcode == CONTINUATION:
                at = self._short_messages(data, at, pieces)
            if self._left:
                part = data[at : at + self._left]
                if not part:
                    break
                at += len(part)
                self._left -= len(part)
                self._add(pieces, part, last=self._last and not self._left)
                continue
            after = self._header(data, at, pieces)
            if after is None:
                self._kept = data[at:]
                break
            at = after
        return pieces

    def _short_messages(self, data: bytes, at: int, pieces: list[Piece]) -> int:
        """Decode whole messages of one short frame, which most are, fast; return the position after them."""
        available, mask, checks_text = len(data), self._mask, self._checks_text
        text, binary, last = FIN | TEXT, FIN | BINARY, available - 4
        long, start = mask | 126, 8 if mask else 4  # of a frame with its length in 16 bits
        while at <= last:
            first, second, size = _first_four(data, at)
            if second == long and size > 125:
                body = at + start
            elif mask < second < long:
                size, body = second ^ mask, at + start - 2
            else:
                break
            end = body + size
            if end > available or (first != binary and first != text):
                break
            part = data[body:end]
            if mask:
                part = masked(part, data[body - 4 : body])
            if checks_text and first == text and not part.isascii():
                break
            pieces.append((first ^ FIN, part, True))
            at = end
        return at

    def _add(self, pieces: list[Piece], part: bytes, *, last: bool) -> None:
        """Add bytes of the payload of a data frame."""
        opcode = self._opcode
        if self._key is not None:
            part, self._at = masked(part, self._key, self._at), self._at + len(part)
        if opcode == TEXT and self._checks_text and not self._is_text(part, last=last):
            self._fail("sent text that is not UTF-8", INVALID_TEXT)
            return
        if last:
            self._opcode = CONTINUATION
        pieces.append((opcode, part, last))

    def _is_text(self, part: bytes, *, last: bool) -> bool:
        if part.isascii() and not self._half_character:
            return True
        try:
            self._utf8.decode(part, last)
        except UnicodeDecodeError:
            return False
        self._half_character = bool(self._utf8.getstate()[0])
        return True

    def _header(self, data: bytes, at: int, pieces: list[Piece]) -> int | None:
        """Decode a header, or a whole control frame; return the position after it, or `None` if more is needed."""
        available = len(data) - at
        if available < 2:
            return None
        first, second = data[at], data[at + 1]
        opcode, size = first & _OPCODE, second & ~_MASK
        if (fault := self._fault(first, second)) is not None:
            self._fail(fault)
            return at
        body = at + 2 + (2 if size == 126 else 8 if size == 127 else 0)
        start = body + 4 if self._mask else body
        if len(data) < start:
            return None
        if size > _MAX_CONTROL:
            size, shortest = int.from_bytes(data[at + 2 : body], "big"), 126 if size == 126 else 65_536
            if size < shortest or size >> 63:
                self._fail("sent a frame with an invalid length")
                return at
        key = data[body:start] if self._mask else None
        if opcode >= CLOSE:
            if len(data) < start + size:
                return None
            self.empty += 1
            payload = data[start : start + size]
            self._control(opcode, payload if key is None else masked(payload, key), pieces)
            return start + size
        self._left, self._key, self._at, self._last = size, key, 0, bool(first & FIN)
        self._opcode = opcode or self._opcode
        if not size:
            self.empty += 1
            if self._last:
                self._add(pieces, b"", last=True)
        return start

    def _fault(self, first: int, second: int) -> str | None:
        opcode = first & _OPCODE
        if first & _RESERVED:
            return "sent a frame with a reserved bit"
        if opcode not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            return f"sent a frame with the unknown opcode {opcode}"
        if second & _MASK != self._mask:
            return "sent a frame without a mask" if self._mask else "sent a masked frame, which only a client may"
        if opcode >= CLOSE:
            if not first & FIN or second & ~_MASK > _MAX_CONTROL:
                return "sent a control frame that is too long or in fragments"
        elif (opcode == CONTINUATION) is (self._opcode == CONTINUATION):
            return "sent a fragment of no message" if opcode == CONTINUATION else "began a message within another one"
        return None

    def _control(self, opcode: int, payload: bytes, pieces: list[Piece]) -> None:
        if opcode == CLOSE:
            if (fault := _close_fault(payload)) is not None:
                self._fail(*fault)
                return
            self.closed = True
        pieces.append((opcode, payload, True))

    def _fail(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        self.error = PeerViolation(code, message)


def _close_fault(payload: bytes) -> tuple[str, int] | None:
    if len(payload) == 1:
        return "sent a Close frame with half a status code", PROTOCOL_ERROR
    code = int.from_bytes(payload[:2], "big")
    if payload and not ((code in _MEANINGS and code != NO_STATUS) or 3000 <= code <= 4999):
        return f"sent a Close frame with the invalid status code {code}", PROTOCOL_ERROR
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        return "sent a Close frame with a reason that is not UTF-8", INVALID_TEXT
    return None
