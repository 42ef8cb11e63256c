"""What holds for any bytes: what the fuzzer asserts, and the seeds it starts from.

The first stream of an input choose the rules; the rest is the stream::

    byte 0   profile: one of the versions, or the handshake (modulo 5); above that, limits: none or tight ones
    byte 1   leniencies, one a bit
    byte 2   size of the reads: 0 whole, else so many bytes each
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from stompy.errors import LocalProtocolError
from stompy.frames.encoder import encode
from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits, Leniency
from tests.frames.cases import GROUPS
from tests.support.codec import cut, feed_all, grammar, parser, taught
from tests.support.reference import PROFILES, Decoded, Reference

TIGHT = FrameLimits(max_headers=3, max_header_line=12, max_header_block=24, max_body=6, max_first_body=4)
PREFIX = 3


def check(data: bytes) -> None:
    """Assert that parser and reference agree on `data`, however it is cut, and that frames survive a second trip."""
    if len(data) < PREFIX:
        return
    profile = PROFILES[data[0] % len(PROFILES)]
    limits = TIGHT if data[0] // len(PROFILES) % 2 else DEFAULT_LIMITS
    leniency = Leniency(data[1] & 0x7F)
    stream = data[PREFIX:]
    check_stream(stream, profile, leniency, limits, size=data[2] or len(stream) or 1)


def check_stream(stream: bytes, profile: str, leniency: Leniency, limits: FrameLimits, *, size: int) -> None:
    """Assert the same of a stream that comes in reads of `size` bytes."""
    expected, refusal = Reference(profile, leniency, limits).decode(stream)
    reader = parser(profile, leniency, limits)
    frames, error = feed_all(reader, cut(stream, size))
    assert frames == expected, (frames, expected, error, refusal)
    assert (error is None) == (refusal is None), (error, refusal)
    assert reader.pending <= len(stream)
    learned = taught(stream, profile, leniency, limits)
    if learned is not None:
        assert feed_all(learned, cut(stream, size))[0] == frames
        assert str(learned.error) == str(error)
        assert learned.pending == reader.pending
    for frame in frames:
        check_second_trip(frame, profile, leniency)


def check_second_trip(frame: Decoded, profile: str, leniency: Leniency) -> None:
    """Assert that a frame that came in comes out of what is written of it; the encoder may refuse the few it must."""
    command, pairs, body = frame
    headers = [(name, value) for name, value in pairs if name != "content-length"]
    try:
        stream = encode(command, headers, body, grammar=grammar(profile, leniency))
    except LocalProtocolError:
        stream = b""
    if not stream:
        assert _unwritable(frame, profile), frame
        return
    again, error = feed_all(parser(profile, leniency), [stream])
    assert error is None, (frame, stream)
    ((command_again, pairs_again, body_again),) = again
    assert (command_again, body_again) == (command, body)
    assert [pair for pair in pairs_again if pair[0] != "content-length"] == headers, (stream, pairs_again)


def _unwritable(frame: Decoded, profile: str) -> bool:
    """Whether reading takes more than writing gives: the handshake and 1.0 bear what no version may send."""
    command, pairs, body = frame
    if profile == "1.0-draft":
        return True  # names of any form are read
    if body and profile == "handshake" and command not in ("SEND", "MESSAGE", "ERROR"):
        return True
    return any("\r" in name + value for name, value in pairs) and (command in RAW or profile != "1.2")


RAW = ("CONNECT", "STOMP", "CONNECTED")


def seeds() -> Iterator[tuple[str, bytes]]:
    """Return a name and the bytes of a seed for every case of the codec, in each profile it names."""
    for group, cases in GROUPS.items():
        for place, case in enumerate(cases):
            for profile in case.profiles:
                if len(case.stream) > 1000:
                    continue
                tight = len(PROFILES) * (case.limits is not DEFAULT_LIMITS)
                prefix = bytes((PROFILES.index(profile) + tight, case.leniency.value, 0))
                yield f"{group.replace(' ', '-')}-{place:02}-{profile}", prefix + case.stream


if __name__ == "__main__":
    for name, seed in seeds():
        Path(sys.argv[1], name).write_bytes(seed)
