"""The framing of RFC 6455: its own examples, every division of a stream, every violation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompy.transport.websocket import frames
from stompy.transport.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MAX_FRAME,
    PING,
    PONG,
    TEXT,
    Decoder,
    Piece,
    close_payload,
    describe_close,
    encode,
    masked,
    message_frames,
    parse_close,
)

KEY = bytes.fromhex("37fa213d")
Masked = Callable[..., bytes]

EXAMPLES = [
    ("a text message", "810548656c6c6f", encode(TEXT, b"Hello"), [(TEXT, b"Hello", True)]),
    ("a masked one", "818537fa213d7f9f4d5158", encode(TEXT, b"Hello", KEY), [(TEXT, b"Hello", True)]),
    ("a fragment", "010348656c", encode(TEXT, b"Hel", last=False), [(TEXT, b"Hel", False)]),
    ("a Ping", "890548656c6c6f", encode(PING, b"Hello"), [(PING, b"Hello", True)]),
    ("a masked Pong", "8a8537fa213d7f9f4d5158", encode(PONG, b"Hello", KEY), [(PONG, b"Hello", True)]),
    ("256 bytes", "827e0100" + 256 * "07", encode(BINARY, 256 * b"\7"), [(BINARY, 256 * b"\7", True)]),
    (
        "64 KiB",
        "827f" + "0" * 11 + "10000" + 65536 * "07",
        encode(BINARY, 65536 * b"\7"),
        [(BINARY, 65536 * b"\7", True)],
    ),
]
"""Section 5.7."""


@pytest.mark.parametrize(
    ("example", "encoded", "pieces"), [each[1:] for each in EXAMPLES], ids=[e[0] for e in EXAMPLES]
)
def test_the_examples_of_the_rfc(example: str, encoded: bytes, pieces: list[Piece]) -> None:
    assert encoded == bytes.fromhex(example)
    assert Decoder(masks=bool(encoded[1] & 0x80)).receive(encoded) == pieces


@pytest.fixture(params=["in C", "as integers"])
def mask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Masked:
    """Return `masked`, with the extra `websocket` and without it."""
    if request.param == "in C":
        assert frames.apply_mask is not None
    else:
        monkeypatch.setattr(frames, "apply_mask", None)
    return masked


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=70), key=st.binary(min_size=4, max_size=4), at=st.integers(0, 9))
def test_masking_is_an_exclusive_or_with_the_repeated_key(mask: Masked, data: bytes, key: bytes, at: int) -> None:
    assert mask(data, key, at) == bytes(byte ^ key[(at + index) % 4] for index, byte in enumerate(data))


@pytest.mark.parametrize("size", [4_095, 4_096, 4_097, 40_001])
def test_masking_of_many_bytes(mask: Masked, size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    assert mask(data, KEY, 3) == bytes(byte ^ KEY[(3 + index) % 4] for index, byte in enumerate(data))


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("size", [MAX_FRAME, MAX_FRAME + 1, 3 * MAX_FRAME, 3 * MAX_FRAME + 5])
def test_a_long_message_is_divided_into_frames(mask: Masked, key: bytes | None, size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    encoded = message_frames(BINARY, data, lambda: key)
    assert joined(Decoder(masks=key is not None).receive(b"".join(encoded))) == [(BINARY, data)]


def test_masking_needs_no_extra() -> None:
    program = (
        "import sys; sys.modules['websockets'] = None\n"
        "from stompy.transport.websocket.frames import encode, apply_mask\n"
        f"assert apply_mask is None; print(encode(1, b'Hello', {KEY!r}).hex())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "818537fa213d7f9f4d5158"


messages = st.lists(
    st.tuples(
        st.sampled_from([TEXT, BINARY]),
        st.lists(st.text("aé😀\0\n", max_size=90).map(str.encode), min_size=1, max_size=3),
    ),
    max_size=4,
)


def stream_of(spoken: list[tuple[int, list[bytes]]], key: bytes | None) -> bytes:
    """Return messages in fragments, with a Ping before each fragment."""
    frames = []
    for opcode, parts in spoken:
        for number, part in enumerate(parts):
            frames.append(encode(PING, b"?", key))
            frames.append(encode(CONTINUATION if number else opcode, part, key, last=number == len(parts) - 1))
    return b"".join(frames)


def decoded(decoder: Decoder, stream: bytes, size: int) -> list[Piece]:
    return [piece for at in range(0, len(stream), size) for piece in decoder.receive(stream[at : at + size])]


def joined(pieces: list[Piece]) -> list[tuple[int, bytes]]:
    """Return whole messages, without control frames."""
    whole: list[tuple[int, bytes]] = []
    parts = b""
    for opcode, payload, last in pieces:
        if opcode <= BINARY:
            parts += payload
            if last:
                whole.append((opcode, parts))
                parts = b""
    return whole


@given(messages, st.booleans(), st.integers(1, 70))
def test_what_is_sent_arrives_however_the_stream_is_divided(
    spoken: list[tuple[int, list[bytes]]], masks: bool, size: int
) -> None:
    decoder = Decoder(masks=masks)
    pieces = decoded(decoder, stream_of(spoken, KEY if masks else None), size)
    assert decoder.error is None
    assert joined(pieces) == [(opcode, b"".join(parts)) for opcode, parts in spoken]
    assert sum(opcode == PING for opcode, _, _ in pieces) == sum(len(parts) for _, parts in spoken)


@given(st.lists(st.binary(max_size=40), max_size=20), st.booleans())
def test_any_bytes_are_decoded_or_refused_the_same_in_every_division(parts: list[bytes], masks: bool) -> None:
    divided, whole = Decoder(masks=masks), Decoder(masks=masks)
    first = [piece for part in parts for piece in divided.receive(part)]
    second = whole.receive(b"".join(parts))
    assert (divided.error, divided.closed) == (whole.error, whole.closed)
    assert merged(first)[: len(merged(second))] == merged(second) or divided.error is not None


def merged(pieces: list[Piece]) -> list[tuple[int, bytes]]:
    """Join the pieces of a kind that follow each other."""
    return [
        (kind, b"".join(piece[1] for piece in group)) for kind, group in groupby(pieces, key=lambda piece: piece[0])
    ]


VIOLATIONS = [
    ("a reserved bit", b"\xc1\x00", 1002),
    ("an unknown opcode", b"\x83\x00", 1002),
    ("an unknown control opcode", b"\x8b\x00", 1002),
    ("a masked frame of a server", b"\x81\x80\0\0\0\0", 1002),
    ("a Ping in fragments", b"\x09\x00", 1002),
    ("a Ping that is too long", b"\x89\x7e\x00\x7e" + bytes(126), 1002),
    ("a fragment of nothing", b"\x80\x00", 1002),
    ("a message within a message", b"\x01\x01a\x81\x01b", 1002),
    ("a length that is longer than needed", b"\x82\x7e\x00\x7d", 1002),
    ("a long length that is longer than needed", b"\x82\x7f" + (65_535).to_bytes(8, "big"), 1002),
    ("a negative length", b"\x82\x7f\x80" + bytes(7), 1002),
    ("text that is not UTF-8", b"\x81\x02a\xff", 1007),
    ("text that ends within a character", b"\x81\x02a\xc3", 1007),
    ("a character that ends in no later fragment", b"\x01\x01\xc3\x80\x01a", 1007),
    ("a surrogate in text", b"\x81\x03\xed\xa0\x80", 1007),
    ("half a status code", b"\x88\x01\x03", 1002),
    ("a status code that is never sent", b"\x88\x02\x03\xed", 1002),
    ("a status code that nobody knows", b"\x88\x02\x03\x00", 1002),
    ("a reason that is not UTF-8", b"\x88\x03\x03\xe8\xff", 1007),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("stream", "code"), [each[1:] for each in VIOLATIONS], ids=[each[0] for each in VIOLATIONS])
def test_a_violation_ends_the_decoding(stream: bytes, code: int, size: int) -> None:
    decoder = Decoder(masks=False)
    before = decoded(decoder, encode(BINARY, b"before"), size)
    decoded(decoder, stream + encode(PING, b"after"), size)
    assert joined(before) == [(BINARY, b"before")]
    assert decoder.error is not None
    assert (decoder.error.code, decoder.receive(encode(PING, b""))) == (code, [])


def test_a_server_refuses_frames_without_a_mask() -> None:
    decoder = Decoder(masks=True)
    assert decoder.receive(encode(TEXT, b"a")) == []
    assert decoder.error is not None
    assert "without a mask" in decoder.error.message


def test_nothing_is_read_after_a_close_frame() -> None:
    decoder = Decoder(masks=False)
    pieces = decoder.receive(encode(CLOSE, close_payload(1001, "bye")) + encode(TEXT, b"late"))
    assert [(opcode, parse_close(payload)) for opcode, payload, _ in pieces] == [(CLOSE, (1001, "bye"))]
    assert decoder.closed


def test_a_frame_of_any_length_is_passed_on_as_it_arrives() -> None:
    decoder = Decoder(masks=True)
    head = b"\x82\xff" + (1 << 62).to_bytes(8, "big") + KEY
    assert decoder.receive(head) == []
    for number in range(50):
        [(opcode, payload, last)] = decoder.receive(bytes(1001))
        assert (opcode, payload, last) == (BINARY, masked(bytes(1001), KEY, number * 1001), False)


def test_a_reason_that_is_too_long_is_cut_between_characters() -> None:
    payload = close_payload(1008, "é" * 100)
    assert parse_close(payload) == (1008, "é" * 61)
    assert len(payload) <= 125


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [(1008, "no", "1008 (policy violation): no"), (4000, "", "4000"), (1005, "", "1005 (no status)")],
)
def test_a_close_is_described(code: int, reason: str, text: str) -> None:
    assert describe_close(code, reason) == text
