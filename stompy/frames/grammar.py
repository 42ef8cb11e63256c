"""The grammar of each version as data: what separates lines, what is escaped, what is trimmed."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field, fields
from typing import Literal

from stompy.errors import ConfigurationError


class Version(enum.Enum):
    """A version of STOMP; the value is what the `version` header says.

    `DRAFT` is the early "1.0-draft" text, a profile of its own that is never negotiated: both sides must be told.
    """

    DRAFT = "1.0-draft"
    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"

    def __str__(self) -> str:
        return self.value

    def __lt__(self, other: Version) -> bool:
        return _ORDER[self] < _ORDER[other]

    @property
    def has_heartbeats(self) -> bool:
        """Whether this version knows heart-beats and escapes (1.1 and newer)."""
        return self in (Version.V1_1, Version.V1_2)


_ORDER = {version: place for place, version in enumerate(Version)}

NEGOTIABLE = (Version.V1_0, Version.V1_1, Version.V1_2)
"""The versions that CONNECT can offer, in increasing order."""


def parse_version(text: str | Version) -> Version:
    """Return the version named `text`, such as `"1.2"`.

    Raises:
        ConfigurationError: there is no such version.
    """
    try:
        return Version(text)
    except ValueError:
        known = ", ".join(version.value for version in Version)
        raise ConfigurationError(f"unknown STOMP version {text!r}: stompy speaks {known}") from None


BODY_COMMANDS = frozenset(("SEND", "MESSAGE", "ERROR"))
"""The frames that may have a body (STOMP 1.2, Body)."""

RAW_COMMANDS = frozenset(("CONNECT", "STOMP", "CONNECTED"))
"""Frames whose headers are neither escaped nor unescaped (STOMP 1.2, Value Encoding); STOMP is treated as CONNECT."""

CLIENT_COMMANDS = frozenset(
    ("CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT")
)
SERVER_COMMANDS = frozenset(("CONNECTED", "MESSAGE", "RECEIPT", "ERROR"))


class Leniency(enum.Flag):
    """A named deviation from the letter that some real peer needs; strict (`NONE`) by default.

    Each one widens what is accepted; only `ESCAPED_CONNECT`, `ESCAPES_IN_1_0` and
    `WRITE_CR_ESCAPE_IN_1_1` change what is written too.
    """

    NONE = 0
    UNDEFINED_ESCAPES = enum.auto()
    """An undefined escape sequence stays as it is instead of being fatal (ActiveMQ does so)."""
    CR_ESCAPE_IN_1_1 = enum.auto()
    r"""`\r` is decoded in 1.1 too (Artemis and RabbitMQ write it there)."""
    ESCAPES_IN_1_0 = enum.auto()
    """1.0 frames are escaped and unescaped with the set of 1.2 (RabbitMQ does so)."""
    CRLF_IN_1_1 = enum.auto()
    """A CR before the LF of a line is part of the line end in 1.1 too (RabbitMQ)."""
    INVALID_UTF8 = enum.auto()
    """Octets of a header that are not UTF-8 are kept by surrogate escapes (RabbitMQ passes them on)."""
    UNEXPECTED_BODY = enum.auto()
    """A body on a frame that may have none is dropped in 1.1 and 1.2 too (ActiveMQ and RabbitMQ)."""
    ESCAPED_CONNECT = enum.auto()
    """CONNECT, STOMP and CONNECTED are escaped and unescaped as other frames are (RabbitMQ; ActiveMQ reads so)."""
    WRITE_CR_ESCAPE_IN_1_1 = enum.auto()
    r"""`\r` is written and decoded in 1.1 too (RabbitMQ closes the connection at a raw CR)."""
    NUL_BETWEEN_FRAMES = enum.auto()
    """NULs between frames are skipped, and count as line ends do (ActiveMQ and RabbitMQ); not in the 1.0-draft."""


_ESCAPES_1_1 = {"\\": "\\\\", "\n": "\\n", ":": "\\c"}
_ESCAPES_1_2 = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c"}

BodyPolicy = Literal["refuse", "drop", "keep"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the codec must know of a version.

    Attributes:
        version: the version; for the frames before a version is agreed, `Version.V1_2` with `handshake` set.
        escapes: character to its escape sequence when writing; empty where the version has no escapes.
        unescapes: the reverse, for reading; may know more than `escapes`.
        lenient_escapes: undefined sequences stay as they are.
        escape_raw_commands: CONNECT, STOMP and CONNECTED are escaped too.
        crlf: one CR before the LF of a line belongs to the line end when reading.
        bare_cr: any other CR in a header is data (else malformed).
        nul_between: NULs between frames are skipped as line ends are.
        trim: values lose the spaces around them.
        unexpected_body: what happens to a body on a frame that may have none.
        utf8_errors: error handler of the header text.
        draft: the rules of the 1.0-draft: case folded, spaces and CR stripped, no control characters.
        handshake: the grammar of CONNECT, CONNECTED or an early ERROR, before a version is agreed.
    """

    version: Version
    escapes: dict[str, str] = field(default_factory=dict)
    unescapes: dict[str, str] = field(default_factory=dict)
    lenient_escapes: bool = False
    escape_raw_commands: bool = False
    crlf: bool = True
    bare_cr: bool = True
    nul_between: bool = False
    trim: bool = False
    unexpected_body: BodyPolicy = "refuse"
    utf8_errors: Literal["strict", "surrogateescape"] = "strict"
    draft: bool = False
    handshake: bool = False

    def escaped(self, command: str) -> bool:
        """Whether the headers of `command` are escaped in this grammar."""
        return bool(self.unescapes) and (command not in RAW_COMMANDS or self.escape_raw_commands)


@functools.cache
def grammar_of(version: Version, leniency: Leniency = Leniency.NONE) -> Grammar:
    """Return the grammar of `version` with the named deviations."""
    modern = version.has_heartbeats
    if version is Version.V1_2 or (version is Version.V1_0 and Leniency.ESCAPES_IN_1_0 in leniency):
        escapes = _ESCAPES_1_2
    else:
        escapes = _ESCAPES_1_1 if modern else {}
        if version is Version.V1_1 and Leniency.WRITE_CR_ESCAPE_IN_1_1 in leniency:
            escapes = _ESCAPES_1_2
    readable = _ESCAPES_1_2 if modern and Leniency.CR_ESCAPE_IN_1_1 in leniency else escapes
    return Grammar(
        version=version,
        escapes=escapes,
        unescapes={sequence: char for char, sequence in reversed(readable.items())},
        lenient_escapes=Leniency.UNDEFINED_ESCAPES in leniency,
        escape_raw_commands=Leniency.ESCAPED_CONNECT in leniency,
        crlf=version is not Version.V1_1 or Leniency.CRLF_IN_1_1 in leniency,
        bare_cr=version is not Version.V1_2,
        nul_between=Leniency.NUL_BETWEEN_FRAMES in leniency and version is not Version.DRAFT,
        trim=not modern,
        unexpected_body="refuse" if modern and Leniency.UNEXPECTED_BODY not in leniency else "drop",
        utf8_errors="surrogateescape" if Leniency.INVALID_UTF8 in leniency else "strict",
        draft=version is Version.DRAFT,
    )


@functools.cache
def handshake_grammar(leniency: Leniency = Leniency.NONE) -> Grammar:
    """Return the grammar of the first frame of each side, before a version is agreed.

    LF and CR LF both end a line, a header splits at its first colon, CONNECT and CONNECTED are not unescaped. An ERROR
    instead of CONNECTED is read leniently, since no version says which escapes it uses.
    """
    return Grammar(
        version=Version.V1_2,
        escapes=_ESCAPES_1_2,
        unescapes={sequence: char for char, sequence in _ESCAPES_1_2.items()},
        lenient_escapes=True,
        escape_raw_commands=Leniency.ESCAPED_CONNECT in leniency,
        nul_between=Leniency.NUL_BETWEEN_FRAMES in leniency,
        unexpected_body="keep",
        utf8_errors="surrogateescape" if Leniency.INVALID_UTF8 in leniency else "strict",
        handshake=True,
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Maxima for one frame of the peer; past one of them parsing fails with `FrameTooLarge`.

    Source: STOMP 1.2, Size Limits. The limits bound memory before a frame is whole.

    Attributes:
        max_headers: header lines in a frame.
        max_header_line: octets of one header line, without its line end.
        max_header_block: octets of all header lines of a frame, with their line ends.
        max_body: octets of the body.
        max_first_body: octets of the body of a peer's first frame, before which nobody knows who it is.
    """

    max_headers: int = 1_000
    max_header_line: int = 64 * 1024
    max_header_block: int = 1024 * 1024
    max_body: int = 128 * 1024 * 1024
    max_first_body: int = 64 * 1024

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigurationError(f"{limit.name} must be a whole number of 0 or more, not {value!r}")

    def body(self, *, first: bool) -> tuple[str, int]:
        """Return the name and the value of the limit for a body; `first` for that of a peer's first frame."""
        if first and self.max_first_body < self.max_body:
            return "max_first_body", self.max_first_body
        return "max_body", self.max_body


DEFAULT_LIMITS = Limits()
