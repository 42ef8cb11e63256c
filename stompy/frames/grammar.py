"""The versions, the grammar of each as data, the known deviations of brokers, and the limits of a frame."""

from __future__ import annotations

import enum
import functools
from typing import Literal

from stompy.errors import ConfigurationError
from stompy.values import Value


class Version(enum.Enum):
    """A version of STOMP; the value is that of the `version` header.

    `DRAFT` is the early "1.0-draft", which cannot be negotiated: both sides must be configured for it.
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
        """Whether this version has heartbeats and escapes (1.1 and later)."""
        return self in (Version.V1_1, Version.V1_2)


_ORDER = {version: index for index, version in enumerate(Version)}

NEGOTIABLE = (Version.V1_0, Version.V1_1, Version.V1_2)
"""The versions that CONNECT can offer, in increasing order."""


def parse_version(text: str | Version) -> Version:
    """Return the version for a text such as `"1.2"`.

    Raises:
        ConfigurationError: there is no such version.
    """
    try:
        return Version(text)
    except ValueError:
        known = ", ".join(version.value for version in Version)
        raise ConfigurationError(f"unknown STOMP version {text!r}: stompy supports {known}") from None


BODY_COMMANDS = frozenset(("SEND", "MESSAGE", "ERROR"))
"""The commands whose frames may have a body (STOMP 1.2, Body)."""

RAW_COMMANDS = frozenset(("CONNECT", "STOMP", "CONNECTED"))
"""The commands whose headers are neither escaped nor unescaped (STOMP 1.2, Value Encoding)."""

CLIENT_COMMANDS = frozenset(
    ("CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT")
)
SERVER_COMMANDS = frozenset(("CONNECTED", "MESSAGE", "RECEIPT", "ERROR"))


class Leniency(enum.Flag):
    """Deviations from the specification that real brokers need; `NONE`, the default, is strict.

    Each one accepts more input; only `ESCAPED_CONNECT`, `ESCAPES_IN_1_0` and
    `WRITE_CR_ESCAPE_IN_1_1` also change the output.
    """

    NONE = 0
    UNDEFINED_ESCAPES = enum.auto()
    """Leave an undefined escape sequence unchanged instead of failing (as ActiveMQ does)."""
    CR_ESCAPE_IN_1_1 = enum.auto()
    r"""Decode `\r` in 1.1 too (Artemis and RabbitMQ write it)."""
    ESCAPES_IN_1_0 = enum.auto()
    """Escape and unescape 1.0 frames like 1.2 frames (as RabbitMQ does)."""
    CRLF_IN_1_1 = enum.auto()
    """Accept CR LF as the line end in 1.1 too (RabbitMQ)."""
    INVALID_UTF8 = enum.auto()
    """Keep header bytes that are not UTF-8 as surrogate escapes (RabbitMQ passes them on)."""
    UNEXPECTED_BODY = enum.auto()
    """Drop the body of a frame that must not have one in 1.1 and 1.2 too (ActiveMQ and RabbitMQ)."""
    ESCAPED_CONNECT = enum.auto()
    """Escape and unescape CONNECT, STOMP and CONNECTED like other frames (RabbitMQ; ActiveMQ only unescapes)."""
    WRITE_CR_ESCAPE_IN_1_1 = enum.auto()
    r"""Write and decode `\r` in 1.1 too (RabbitMQ closes the connection on a raw CR)."""
    NUL_BETWEEN_FRAMES = enum.auto()
    """Skip NULs between frames, and count them as line ends (ActiveMQ and RabbitMQ); not in the 1.0-draft."""
    LINES_WITHOUT_COLON = enum.auto()
    """Ignore a header line without a name or a colon (as ActiveMQ and Artemis do)."""
    LENGTH_OF_SEND_ALONE = enum.auto()
    """Ignore `content-length` in all frames of a client but SEND (as RabbitMQ does)."""
    ANY_COMMAND_LINE = enum.auto()
    """Take any first line of a frame without a CR for a command (as RabbitMQ does); one with spaces is unknown."""
    UNESCAPES_IN_1_0 = enum.auto()
    """Unescape colons and backslashes in 1.0 too, and escape none (as ActiveMQ does, with line ends too)."""
    NAMES_ALONE = enum.auto()
    """Take a header line without a colon for a header without a value (as ActiveMQ does)."""
    PADDED_COMMANDS = enum.auto()
    """Ignore spaces around a command, and a CR alone in the line that ends a head (as ActiveMQ does)."""
    LINES_AS_ARTEMIS = enum.auto()
    """Before 1.2 keep the last header of a name, and take a line without a colon for the value of the one before it;
    from 1.1 on leave further colons out of values, and ignore a backslash at the end of the last line."""
    LONGER_BODIES = enum.auto()
    """Drop what follows a body of its `content-length` up to a NUL, from 1.1 on; ignore a length of -1 (Artemis)."""


_ESCAPES_1_1 = {"\\": "\\\\", "\n": "\\n", ":": "\\c"}
_ESCAPES_1_2 = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c"}

BodyPolicy = Literal["refuse", "drop", "keep"]


class Grammar(Value):
    """The rules of a version for parser and encoder.

    Attributes:
        version: the version; `Version.V1_2` with `handshake` set before the version is negotiated.
        escapes: the escape sequence of each special character, for writing; empty if the version has no escapes.
        unescapes: the character of each escape sequence, for reading; may hold more sequences than `escapes`.
        lenient_escapes: whether undefined sequences stay unchanged.
        escape_raw_commands: whether CONNECT, STOMP and CONNECTED are escaped too.
        crlf: whether a CR before the LF is part of the line end, when reading.
        bare_cr: whether any other CR in a header is data; else the header is malformed.
        nul_between: whether NULs between frames are skipped like line ends.
        lenient_lines: whether header lines without a name or a colon are ignored.
        names_alone: whether header lines without a colon are headers without a value.
        length_of_send_alone: whether `content-length` is ignored in all frames of a client but SEND.
        any_command: whether any first line is a command.
        padded_commands: whether spaces around a command are ignored, and a CR in an empty line.
        lines_as_artemis: whether header lines are read as `Leniency.LINES_AS_ARTEMIS` says.
        longer_bodies: whether a body may be longer than its `content-length`, which may be -1.
        trim: whether spaces around values are removed.
        unexpected_body: what to do with the body of a frame that must not have one.
        utf8_errors: the error handler for the header text.
        draft: whether the rules of the 1.0-draft apply: names in any case, spaces removed, no control characters.
        handshake: whether this is the grammar of the frames before the version is negotiated.
    """

    version: Version
    escapes: dict[str, str]
    unescapes: dict[str, str]
    lenient_escapes: bool = False
    escape_raw_commands: bool = False
    crlf: bool = True
    bare_cr: bool = True
    nul_between: bool = False
    lenient_lines: bool = False
    names_alone: bool = False
    length_of_send_alone: bool = False
    any_command: bool = False
    padded_commands: bool = False
    lines_as_artemis: bool = False
    longer_bodies: bool = False
    trim: bool = False
    unexpected_body: BodyPolicy = "refuse"
    utf8_errors: Literal["strict", "surrogateescape"] = "strict"
    draft: bool = False
    handshake: bool = False

    def escaped(self, command: str) -> bool:
        """Return whether the headers of `command` are escaped."""
        return bool(self.unescapes) and (command not in RAW_COMMANDS or self.escape_raw_commands)


@functools.cache
def grammar_of(version: Version, leniency: Leniency = Leniency.NONE) -> Grammar:
    """Return the grammar of `version` with the given deviations."""
    modern = version.has_heartbeats
    if version is Version.V1_2 or (version is Version.V1_0 and Leniency.ESCAPES_IN_1_0 in leniency):
        escapes = _ESCAPES_1_2
    else:
        escapes = _ESCAPES_1_1 if modern else {}
        if version is Version.V1_1 and Leniency.WRITE_CR_ESCAPE_IN_1_1 in leniency:
            escapes = _ESCAPES_1_2
    readable = _ESCAPES_1_2 if modern and Leniency.CR_ESCAPE_IN_1_1 in leniency else escapes
    if version is Version.V1_0 and Leniency.UNESCAPES_IN_1_0 in leniency:
        readable = {char: sequence for char, sequence in _ESCAPES_1_1.items() if char != "\n"}
    return Grammar(
        version=version,
        escapes=escapes,
        unescapes={sequence: char for char, sequence in reversed(readable.items())},
        lenient_escapes=Leniency.UNDEFINED_ESCAPES in leniency,
        escape_raw_commands=Leniency.ESCAPED_CONNECT in leniency,
        crlf=version is not Version.V1_1 or Leniency.CRLF_IN_1_1 in leniency,
        bare_cr=version is not Version.V1_2,
        nul_between=Leniency.NUL_BETWEEN_FRAMES in leniency and version is not Version.DRAFT,
        lenient_lines=Leniency.LINES_WITHOUT_COLON in leniency,
        names_alone=Leniency.NAMES_ALONE in leniency,
        length_of_send_alone=Leniency.LENGTH_OF_SEND_ALONE in leniency,
        any_command=Leniency.ANY_COMMAND_LINE in leniency,
        padded_commands=Leniency.PADDED_COMMANDS in leniency,
        lines_as_artemis=Leniency.LINES_AS_ARTEMIS in leniency,
        longer_bodies=Leniency.LONGER_BODIES in leniency,
        trim=not modern,
        unexpected_body="refuse" if modern and Leniency.UNEXPECTED_BODY not in leniency else "drop",
        utf8_errors="surrogateescape" if Leniency.INVALID_UTF8 in leniency else "strict",
        draft=version is Version.DRAFT,
    )


@functools.cache
def handshake_grammar(leniency: Leniency = Leniency.NONE) -> Grammar:
    """Return the grammar of the first frame of each side, before the version is negotiated.

    LF and CR LF both end a line, and CONNECT and CONNECTED are not unescaped. An ERROR in reply to CONNECT is unescaped
    leniently, as its version is unknown.
    """
    return Grammar(
        version=Version.V1_2,
        escapes=_ESCAPES_1_2,
        unescapes={sequence: char for char, sequence in _ESCAPES_1_2.items()},
        lenient_escapes=True,
        escape_raw_commands=Leniency.ESCAPED_CONNECT in leniency,
        nul_between=Leniency.NUL_BETWEEN_FRAMES in leniency,
        length_of_send_alone=Leniency.LENGTH_OF_SEND_ALONE in leniency,
        any_command=Leniency.ANY_COMMAND_LINE in leniency,
        names_alone=Leniency.NAMES_ALONE in leniency,
        padded_commands=Leniency.PADDED_COMMANDS in leniency,
        lines_as_artemis=Leniency.LINES_AS_ARTEMIS in leniency,
        unexpected_body="keep",
        utf8_errors="surrogateescape" if Leniency.INVALID_UTF8 in leniency else "strict",
        handshake=True,
    )


class FrameLimits(Value):
    """The limits of a frame of the peer; a frame beyond one of them raises `FrameTooLargeError`.

    They also limit the memory for a frame that is not complete yet. Source: STOMP 1.2, Size FrameLimits.

    Attributes:
        max_headers: the number of header lines of a frame.
        max_header_line: bytes of one header line, without its line end.
        max_header_block: bytes of all header lines of a frame, with their line ends.
        max_body: bytes of the body.
        max_first_body: bytes of the body of the peer's first frame, as the peer is not authenticated yet.

    Raises:
        ConfigurationError: a limit is not a whole number of 0 or more.
    """

    max_headers: int = 1_000
    max_header_line: int = 64 * 1024
    max_header_block: int = 1024 * 1024
    max_body: int = 128 * 1024 * 1024
    max_first_body: int = 64 * 1024

    def __post_init__(self) -> None:
        for name in FrameLimits.__annotations__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigurationError(f"{name} must be a whole number of 0 or more, not {value!r}")


DEFAULT_LIMITS = FrameLimits()


def body_limit(limits: FrameLimits, *, first: bool) -> tuple[str, int]:
    """Return the name and the value of the limit for a body; `first` means that of the peer's first frame."""
    if first and limits.max_first_body < limits.max_body:
        return "max_first_body", limits.max_first_body
    return "max_body", limits.max_body
