"""Frames in, bytes out; what a version cannot express is refused, never changed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stompy.errors import LocalProtocolError
from stompy.frames.escaping import escape
from stompy.frames.frame import Frame
from stompy.frames.grammar import BODY_COMMANDS, CLIENT_COMMANDS, RAW_COMMANDS, SERVER_COMMANDS, Grammar, Version

HEARTBEAT = b"\n"
"""What is sent when there is nothing to say (STOMP 1.2, Heart-beating)."""

LARGE_BODY = 256 * 1024
"""Bytes of a body that is written by itself: to copy it behind its head costs more than a system call."""

Encoded = bytes | tuple[bytes, bytes, bytes]
"""A frame; one with a large body in parts: up to the body, the body, the NUL."""

_KNOWN = CLIENT_COMMANDS | SERVER_COMMANDS
_BODYLESS = _KNOWN - BODY_COMMANDS
_COMMAND = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_DRAFT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def encode(
    command: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
    *,
    grammar: Grammar,
    content_length: bool = True,
    crlf: bool = False,
) -> bytes:
    """Return the octets of one frame.

    Args:
        command: such as `"SEND"`.
        headers: pairs in the order to write; repeats are written as they come.
        body: octets, as they are.
        grammar: the rules of the version spoken.
        content_length: write the header of that name where there is a body; a body with a NUL has it in any case.
        crlf: end lines with CR LF, which only 1.2 allows.

    Raises:
        LocalProtocolError: the frame cannot be written by this grammar (a body where none may be, a line end or NUL in
            a header that the version cannot escape, an empty name, a wrong `content-length`).

    Source: STOMP 1.2, STOMP Frames, Value Encoding, Body.
    """
    pairs = list(headers)
    if grammar.draft:
        command = command.upper()
    if body and command in _BODYLESS:
        raise LocalProtocolError(f"a {command} frame must not have a body (Body)")
    given = [value for name, value in pairs if (name.lower() if grammar.draft else name) == "content-length"]
    if given and given[0] != str(len(body)):
        raise LocalProtocolError(f"content-length {given[0]!r} does not fit a body of {len(body)} octets")
    if crlf and grammar.version is not Version.V1_2:
        raise LocalProtocolError(f"STOMP {grammar.version} ends lines with LF only")
    if not given and has_length(body, content_length=content_length, grammar=grammar):
        pairs.append(("content-length", str(len(body))))
    head = encode_head(command, pairs, grammar=grammar)
    if crlf:
        head = head.replace(b"\n", b"\r\n")
    return b"".join((head, b"\r\n" if crlf else b"\n", body, b"\0"))


def has_length(body: bytes, *, content_length: bool, grammar: Grammar) -> bool:
    """Return whether a frame has to have a `content-length` header; see `encode`."""
    return grammar.draft or bool(body and (content_length or b"\0" in body))


def finish(head: bytes, body: bytes, *, grammar: Grammar, content_length: bool = True) -> Encoded:
    """Return a frame, given what `encode_head` and `encode_lines` made of all headers but its length."""
    if has_length(body, content_length=content_length, grammar=grammar):
        if len(body) >= LARGE_BODY:
            return b"%bcontent-length:%d\n\n" % (head, len(body)), body, b"\0"
        return b"%bcontent-length:%d\n\n%b\0" % (head, len(body), body)
    return b"%b\n%b\0" % (head, body)


def encode_head(command: str, headers: Iterable[tuple[str, str]], *, grammar: Grammar) -> bytes:
    """Return the command and the header lines of a frame, each with its line end; raises as `encode` does."""
    if command not in _KNOWN and not _COMMAND.fullmatch(command):
        raise LocalProtocolError(f"{command!r} cannot be a STOMP command")
    return b"%b\n%b" % (command.encode("ascii"), encode_lines(command, headers, grammar=grammar))


def encode_lines(command: str, headers: Iterable[tuple[str, str]], *, grammar: Grammar) -> bytes:
    """Return header lines of a frame, each with its line end; raises as `encode` does."""
    pairs = list(headers)
    if grammar.draft:
        pairs = [_draft_pair(name, value) for name, value in pairs]
    text = _plain_lines(pairs)
    if text is None:
        line = _escaped_line if grammar.escapes and grammar.escaped(command) else _raw_line
        text = "".join([line(command, name, value, grammar) + "\n" for name, value in pairs])
    try:
        return text.encode("utf-8", grammar.utf8_errors)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a header of the {command} frame is not valid Unicode: {error.reason}") from None


def encode_frame(frame: Frame, grammar: Grammar, *, content_length: bool = True) -> bytes:
    """Return the octets of `frame`; see `encode`."""
    return encode(frame.command, frame.headers.pairs, frame.body, grammar=grammar, content_length=content_length)


def _plain_lines(pairs: list[tuple[str, str]]) -> str | None:
    """Return the lines if nothing in them needs a second look, else `None`: one look at the text, not one a header."""
    # Not formatted: of an enum's member that would be its name, where its text is meant.
    text = "".join([name + ":" + value + "\n" for name, value in pairs])
    if (
        text.count(":") != len(pairs)
        or text.count("\n") != len(pairs)
        or "\n:" in text
        or text.startswith(":")
        or "\\" in text
        or "\r" in text
        or "\0" in text
    ):
        return None
    return text


def _escaped_line(command: str, name: str, value: str, grammar: Grammar) -> str:
    if not name or "\0" in name or "\0" in value:
        raise _unwritable(command, name, "an empty name or a NUL")
    if value.endswith("\r") and grammar.crlf and "\r" not in grammar.escapes:
        raise _unwritable(command, name, "a CR before the line end")
    return escape(name, grammar.escapes) + ":" + escape(value, grammar.escapes)


def _raw_line(command: str, name: str, value: str, grammar: Grammar) -> str:
    """Return a line of a frame without escapes: CONNECT, STOMP, CONNECTED, and all of 1.0."""
    if not name or ":" in name:
        raise _unwritable(command, name, "an empty name or a colon in a name")
    # A CR just before the LF would be taken for part of the line end, and CONNECT is read before a version is agreed.
    stray_cr = "\r" in name + value if command in RAW_COMMANDS else value.endswith("\r")
    if "\n" in name + value or "\0" in name + value or stray_cr:
        raise _unwritable(command, name, "a line end or a NUL")
    return name + ":" + value


def _draft_pair(name: str, value: str) -> tuple[str, str]:
    name = name.lower()
    if not _DRAFT_NAME.fullmatch(name):
        raise LocalProtocolError(f"the 1.0-draft does not allow the header name {name!r}")
    if _CONTROL.search(value) or value != value.strip(" "):
        raise LocalProtocolError(
            f"the 1.0-draft does not allow the value of header {name!r}: control characters or outer spaces"
        )
    return name, value


def _unwritable(command: str, name: str, what: str) -> LocalProtocolError:
    return LocalProtocolError(
        f"header {name!r} of a {command} frame holds {what}, which this version cannot write (Value Encoding)"
    )
