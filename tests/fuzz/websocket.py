"""What holds for any bytes of a WebSocket peer: what the fuzzer asserts, and the seeds it starts from.

The first bytes of an input choose the rules; the rest is the stream::

    byte 0   bit 0: the peer is a client, which masks; bit 1: text is checked; bit 2: the heads of the handshake instead
    byte 1   size of the reads: 0 whole, else so many bytes each
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from stompy.errors import ConnectError
from stompy.transport.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    INVALID_TEXT,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    Decoder,
    Piece,
    close_payload,
    describe_close,
    encode,
    message_frames,
    parse_close,
)
from stompy.transport.websocket.handshake import (
    HandshakeRefused,
    accept_head,
    check_response,
    choose_subprotocol,
    parse_request,
    request_head,
)
from tests.support.codec import cut

PREFIX = 2
KEY = b"\x01\xff\x00\x80"
NONCE = b"the sample nonce"
SUBPROTOCOLS = ("v12.stomp", "v11.stomp")
_STATUS = {*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)}
_CODES = {CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG}


class Broken(Exception):
    """The peer broke the protocol; the argument is the status code to close with."""


def check(data: bytes) -> None:
    """Assert that decoder and reference agree on `data`, however it is cut, and that messages survive a second trip."""
    if len(data) < PREFIX:
        return
    stream = data[PREFIX:]
    if data[0] & 4:
        check_heads(stream)
        return
    masks, checks_text = bool(data[0] & 1), bool(data[0] & 2)
    expected, code = _reference(stream, masks=masks, checks_text=checks_text)
    decoder, pieces = Decoder(masks=masks, checks_text=checks_text), list[Piece]()
    for part in cut(stream, data[1] or len(stream) or 1):
        pieces += decoder.receive(part)
    found = _joined(pieces)
    assert (decoder.error.code if decoder.error else None) == code, (decoder.error, code)
    assert decoder.closed == (bool(expected) and expected[-1][0] == CLOSE), expected
    if code == INVALID_TEXT and found and not found[-1][2]:
        opcode, payload, _ = found.pop()  # what came before the fault, which depends on the reads
        assert (opcode, payload) == (TEXT, expected[len(found)][1][: len(payload)])
        expected = expected[: len(found)]
    elif code == INVALID_TEXT and expected and not expected[-1][2]:
        expected = expected[:-1]
    assert found == expected, (found, expected)
    for opcode, payload, last in found:
        check_second_trip(opcode, payload, checks_text=checks_text and last)


def check_second_trip(opcode: int, payload: bytes, *, checks_text: bool) -> None:
    """Assert that a message that came in is read again as it is written."""
    if opcode == CLOSE:
        describe_close(*parse_close(payload))
    for key in (None, KEY):
        frames = message_frames(opcode, payload, itertools.repeat(key).__next__)
        again = Decoder(masks=key is not None, checks_text=checks_text).receive(b"".join(frames))
        assert _joined(again) == [(opcode, payload, True)]


def check_heads(head: bytes) -> None:
    """Assert that nothing but the errors of the handshake comes of a head."""
    with contextlib.suppress(HandshakeRefused):
        request = parse_request(head)
        accept_head(request.key, choose_subprotocol(request.subprotocols, SUBPROTOCOLS))
    with contextlib.suppress(ConnectError):
        check_response(head, NONCE, SUBPROTOCOLS, b"")


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Return pieces with those of one message joined, where nothing came in between."""
    joined: list[Piece] = []
    for opcode, payload, last in pieces:
        if joined and opcode < CLOSE and joined[-1][0] == opcode and not joined[-1][2]:
            joined[-1] = opcode, joined[-1][1] + payload, last
        else:
            joined.append((opcode, payload, last))
    return joined


def _reference(stream: bytes, *, masks: bool, checks_text: bool) -> tuple[list[Piece], int | None]:
    """Return what a stream says, and the status code for what breaks the protocol: RFC 6455, line by line."""
    pieces: list[Piece] = []
    try:
        _decode(stream, pieces, masks=masks, checks_text=checks_text)
    except Broken as broken:
        return _joined(pieces), broken.args[0]
    return _joined(pieces), None


def _decode(data: bytes, pieces: list[Piece], *, masks: bool, checks_text: bool) -> None:
    message, text = CONTINUATION, codecs.getincrementaldecoder("utf-8")()
    while len(data) >= 2:
        last, opcode, size = data[0] >= 128, data[0] & 15, data[1] & 127
        if data[0] & 0x70 or opcode not in _CODES or (data[1] >= 128) != masks:
            raise Broken(PROTOCOL_ERROR)
        if (opcode >= CLOSE and (not last or size > 125)) or (opcode < CLOSE and bool(opcode) == bool(message)):
            raise Broken(PROTOCOL_ERROR)
        wide = {126: 2, 127: 8}.get(size, 0)
        start = 2 + wide + 4 * masks
        if len(data) < start:
            return
        if wide:
            size = int.from_bytes(data[2 : 2 + wide], "big")
            if size < {2: 126, 8: 65_536}[wide] or size >= 2**63:
                raise Broken(PROTOCOL_ERROR)
        payload, whole = data[start : start + size], len(data) >= start + size
        if masks:
            payload = bytes(byte ^ data[start - 4 + at % 4] for at, byte in enumerate(payload))
        data = data[start + size :]
        if opcode >= CLOSE:
            if not whole:
                return
            if opcode == CLOSE:
                _check_close(payload)
            pieces.append((opcode, payload, True))
            if opcode == CLOSE:
                return
            continue
        message = opcode or message
        ends = last and whole
        if payload or ends:
            pieces.append((message, payload, ends))
        if message == TEXT and checks_text:
            try:
                text.decode(payload, ends)
            except UnicodeDecodeError:
                pieces[-1] = message, payload, False
                raise Broken(INVALID_TEXT) from None
        if not whole:
            return
        if last:
            message = CONTINUATION


def _check_close(payload: bytes) -> None:
    if payload and (len(payload) == 1 or int.from_bytes(payload[:2], "big") not in _STATUS):
        raise Broken(PROTOCOL_ERROR)
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise Broken(INVALID_TEXT) from None


def seeds() -> Iterator[bytes]:
    """Return what a fuzzer may begin with."""
    for key in (None, KEY):
        rules = bytes((3 if key else 2, 0))
        yield rules + encode(TEXT, "a frame é\n\n\0".encode(), key) + encode(PING, b"?", key)
        yield rules + encode(TEXT, b"in \xc3", key, last=False) + encode(CONTINUATION, b"\xa9 parts", key)
        yield rules + encode(BINARY, bytes(range(256)), key) + encode(CLOSE, close_payload(1000, "bye"), key)
        yield rules + encode(TEXT, b"no \xff text", key)
        yield rules + encode(BINARY, b"", key, last=False) + encode(PONG, b"", key) + encode(CONTINUATION, b"", key)
        yield rules + encode(BINARY, bytes(300), key)[:20]
    headers = {"Origin": "http://a", "Cookie": "b=c"}
    yield b"\4\0" + request_head("/", "h", NONCE, subprotocols=SUBPROTOCOLS, headers=headers)
    yield b"\4\0" + accept_head("dGhlIHNhbXBsZSBub25jZQ==", "v12.stomp")
    yield b"\4\0HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n"


if __name__ == "__main__":
    for number, seed in enumerate(seeds()):
        Path(sys.argv[1], f"seed-{number:02}").write_bytes(seed)
