"""The codec by the names of the reference's profiles, and streams cut into reads."""

from __future__ import annotations

from collections.abc import Iterable

from stompy.errors import RemoteProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Grammar, Leniency, grammar_of, handshake_grammar
from stompy.frames.limits import DEFAULT_LIMITS, Limits
from stompy.frames.parser import Parser
from stompy.frames.version import Version
from tests.support.reference import Decoded


def grammar(profile: str, leniency: Leniency = Leniency.NONE) -> Grammar:
    return handshake_grammar(leniency) if profile == "handshake" else grammar_of(Version(profile), leniency)


def parser(profile: str, leniency: Leniency = Leniency.NONE, limits: Limits = DEFAULT_LIMITS) -> Parser:
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


def cut(octets: bytes, size: int) -> list[bytes]:
    return [octets[start : start + size] for start in range(0, len(octets), size)]
