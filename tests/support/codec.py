"""The codec by the names of the reference's profiles, and streams cut into reads."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from stompy.errors import RemoteProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits, Grammar, Leniency, Version, grammar_of, handshake_grammar
from stompy.frames.parser import Parser
from tests.support.reference import Decoded


def grammar(profile: str, leniency: Leniency = Leniency.NONE) -> Grammar:
    return handshake_grammar(leniency) if profile == "handshake" else grammar_of(Version(profile), leniency)


def parser(profile: str, leniency: Leniency = Leniency.NONE, limits: FrameLimits = DEFAULT_LIMITS) -> Parser:
    return Parser(grammar(profile, leniency), limits)


def plain(frames: Iterable[Frame]) -> list[Decoded]:
    return [(frame.command, frame.headers.pairs, frame.body) for frame in frames]


def feed_all(parser: Parser, reads: Iterable[bytes]) -> tuple[list[Decoded], RemoteProtocolError | None]:
    """Return the frames and the error of a stream that comes in these reads."""
    frames: list[Decoded] = []
    for read in reads:
        frames += plain(parser.feed(read))
        if parser.error is not None:
            break
    return frames, parser.error


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def taught(
    stream: bytes, profile: str, leniency: Leniency = Leniency.NONE, limits: FrameLimits = DEFAULT_LIMITS
) -> Parser | None:
    """Return a parser that has seen the first frame of a stream so often that it knows its head; `None` without one."""
    first = parser(profile, leniency, limits)
    for end in range(1, len(stream) + 1):
        if first.feed(stream[end - 1 : end]):
            return teach(parser(profile, leniency, limits), stream[:end])
        if first.error is not None:
            break
    return None


def teach(reader: Parser, *frames: bytes) -> Parser:
    """Let a parser read frames so often that it knows their heads."""
    for place, frame in enumerate(frames):
        for _ in range(32 << place):
            assert reader.feed(frame)
    return reader


def another(reader: Parser) -> Parser:
    """Return a parser that knows and holds what this one does."""
    grammar = reader._grammar
    return copy.deepcopy(reader, {id(grammar): grammar})
