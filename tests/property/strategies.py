"""Frames that a version can say, streams of them, and streams that were tampered with."""

from __future__ import annotations

from hypothesis import strategies as st

from stompy.frames.encoder import encode
from stompy.frames.grammar import Leniency
from tests.support.codec import grammar
from tests.support.reference import PROFILES, WITH_BODY, WITHOUT_BODY, Decoded

profiles = st.sampled_from(PROFILES)
leniencies = st.integers(0, 255).map(Leniency)
read_sizes = st.integers(1, 40)
bodies = st.binary(max_size=40) | st.text("ab\n\r\0:\\é", max_size=20).map(str.encode)

_SPECIAL = "\n\r:\\ nctr\tAa-é😀"
_any_text = st.text(_SPECIAL, max_size=8) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
_draft_names = st.from_regex(r"[a-z0-9]{1,4}(-[a-z0-9]{1,4})?", fullmatch=True)
_draft_values = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8).map(
    lambda text: text.strip(" ")
)


def _without(chars: str) -> st.SearchStrategy[str]:
    table = dict.fromkeys(map(ord, chars))
    return _any_text.map(lambda text: text.translate(table))


@st.composite
def frames(draw: st.DrawFn, profile: str) -> Decoded:
    """Return a frame that `profile` can say, with user headers of every kind that it can write."""
    command = draw(st.sampled_from(sorted(WITH_BODY | WITHOUT_BODY)))
    body = draw(bodies) if command in WITH_BODY else b""
    if profile == "1.0-draft":
        names, values = _draft_names, _draft_values
    elif command in ("CONNECT", "STOMP", "CONNECTED"):
        names, values = _without("\n\r:"), _without("\n\r")
    elif profile == "1.0":
        names, values = _without("\n:"), _without("\n").filter(lambda text: not text.endswith("\r"))
    else:
        names, values = _any_text, _any_text
    names = names.filter(lambda name: name not in ("", "content-length"))
    return command, tuple(draw(st.lists(st.tuples(names, values), max_size=5))), body


def written(frame: Decoded, profile: str) -> bytes:
    command, pairs, body = frame
    return encode(command, pairs, body, grammar=grammar(profile))


@st.composite
def streams(draw: st.DrawFn, profile: str) -> bytes:
    """Return frames with line ends between them, whole or cut off."""
    gaps = st.sampled_from([b"", b"\n", b"\n\n"] if profile == "1.1" else [b"", b"\n", b"\r\n", b"\n\r\n"])
    parts = draw(st.lists(frames(profile).map(lambda frame: written(frame, profile)), min_size=1, max_size=4))
    stream = b"".join(draw(gaps) + part for part in parts) + draw(gaps)
    return stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream


_PIECES = (
    *(
        b"\n",
        b"\r\n",
        b"\r",
        b"\n\n",
        b"\0",
        b":",
        b"\\",
        b"\\n",
        b"\\c",
        b"\\r",
        b"\\t",
        b" ",
        b"\t",
        b"1",
        b"9",
        b"\xff",
    ),
    *(b"SEND", b"send", b"ACK\n\n\0", b"CONNECT\n", b"k:v\n", b"content-length:", b"\x7f"),
    b"MESSAGE\r\ncontent-length:3\r\n\r\n",
)
_pieces = st.binary(max_size=4) | st.sampled_from(_PIECES)


@st.composite
def broken_streams(draw: st.DrawFn, profile: str) -> bytes:
    """Return a stream with a few pieces cut out, put in or repeated."""
    stream = draw(streams(profile))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(stream)))
        until = draw(st.integers(at, min(len(stream), at + 8)))
        stream = stream[:at] + draw(_pieces) * draw(st.integers(1, 2)) + stream[until:]
    return stream


soups = st.lists(_pieces, max_size=20).map(b"".join) | st.binary(max_size=60)
"""Bytes without a plan."""
