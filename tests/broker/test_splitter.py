from __future__ import annotations

import pytest

from stompy.broker.splitter import HEARTBEAT, Part, Splitter

CONVERSATION = (
    b"\n\r\n"
    b"CONNECTED\nversion:1.2\n\n\0"
    b"\n"
    b"MESSAGE\ndestination:/queue/a\ncontent-length:5\n\na\0\n\0b\0"
    b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0"
    b"ERROR\nmessage:no\n\nas far as the nul\0"
    b"NO-BLANK-LINE\na:b\0"
)
FRAMES = [
    (HEARTBEAT, b"\n\r\n"),
    ("CONNECTED", b"CONNECTED\nversion:1.2\n\n\0"),
    (HEARTBEAT, b"\n"),
    ("MESSAGE", b"MESSAGE\ndestination:/queue/a\ncontent-length:5\n\na\0\n\0b\0"),
    ("RECEIPT", b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0"),
    ("ERROR", b"ERROR\nmessage:no\n\nas far as the nul\0"),
    ("NO-BLANK-LINE", b"NO-BLANK-LINE\na:b\0"),
]


def whole(parts: list[Part]) -> list[tuple[str, bytes]]:
    """Put the parts of each frame together."""
    frames: list[tuple[str, bytes]] = []
    for part in parts:
        if part.begins:
            frames.append((part.command, b""))
        command, octets = frames[-1]
        assert command == part.command
        frames[-1] = (command, octets + part.octets)
    return frames


def test_frames_that_come_in_one_read_are_told_apart() -> None:
    parts = Splitter().feed(CONVERSATION)
    assert [(part.command, part.octets) for part in parts] == FRAMES
    assert all(part.begins and part.ends for part in parts)


@pytest.mark.parametrize("at", range(len(CONVERSATION)))
def test_frames_cut_anywhere_are_put_together(at: int) -> None:
    splitter = Splitter()
    parts = splitter.feed(CONVERSATION[:at]) + splitter.feed(CONVERSATION[at:])
    frames = whole(parts)
    assert b"".join(octets for _, octets in frames) == CONVERSATION
    assert [frame for frame in frames if frame[0] != HEARTBEAT] == [frame for frame in FRAMES if frame[0] != HEARTBEAT]


def test_a_conversation_octet_by_octet_is_the_same() -> None:
    splitter = Splitter()
    frames = whole([part for octet in CONVERSATION for part in splitter.feed(bytes((octet,)))])
    assert [frame for frame in frames if frame[0] != HEARTBEAT] == [frame for frame in FRAMES if frame[0] != HEARTBEAT]


def test_a_head_is_held_back_until_it_is_whole_and_a_body_is_not() -> None:
    splitter = Splitter()
    assert splitter.feed(b"SEND\ncontent-length:4\n") == []
    assert splitter.feed(b"\nab") == [Part(b"SEND\ncontent-length:4\n\nab", "SEND", begins=True, ends=False)]
    assert splitter.feed(b"c") == [Part(b"c", "SEND", begins=False, ends=False)]
    assert splitter.feed(b"d\0\n") == [
        Part(b"d\0", "SEND", begins=False, ends=True),
        Part(b"\n", HEARTBEAT, begins=True, ends=True),
    ]


def test_what_never_becomes_a_head_is_passed_on_as_it_comes() -> None:
    splitter = Splitter()
    octets = b"x" * (1024 * 1024 + 1)
    assert splitter.feed(octets) == [Part(octets, "", begins=True, ends=False)]
    assert splitter.feed(b"\n\n\0SEND\n\n\0") == [Part(b"\n\n\0SEND\n\n\0", "", begins=False, ends=False)]
