"""Encode frames; what a version cannot express is an error, and is never changed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stompy.errors import LocalProtocolError
from stompy.frames.escaping import escape
from stompy.frames.grammar import BODY_COMMANDS, CLIENT_COMMANDS, RAW_COMMANDS, SERVER_COMMANDS, Grammar, Version

HEARTBEAT = b"\n"
"""A heartbeat (STOMP 1.2, Heart-beating)."""

LARGE_BODY = 256 * 1024
"""Bytes; a body of at least this size is written by a system call of its own, which costs less than copying it."""

Encoded = bytes | tuple[bytes, bytes, bytes]
"""An encoded frame; with a large body, its three parts: command and headers, the body, the NUL."""

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
    """Return the bytes of a frame.

    Args:
        command: the command, such as `"SEND"`.
        headers: pairs of name and value, in the order to write; repeated names are allowed.
        body: the body.
        grammar: the rules of the version.
        content_length: whether to write a `content-length` header if there is a body; a body with a NUL always has it.
        crlf: whether to end lines with CR LF, which only 1.2 allows.

    Raises:
        LocalProtocolError: the version cannot express the frame: a body on a frame that must not have one, a line end
            or NUL in a header that the version cannot escape, an empty name, a wrong `content-length`.

    Source: STOMP 1.2, STOMP Frames, Value Encoding, Body.
    """
    pairs = list(headers)
    if grammar.draft:
        command = command.upper()
    if body and command in _BODYLESS:
        raise LocalProtocolError(f"a {command} frame must not have a body (Body)")
    given = [value for name, value in pairs if (name.lower() if grammar.draft else name) == "content-length"]
    if given and given[0] != str(len(body)):
        raise LocalProtocolError(f"content-length {given[0]!r} does not match a body of {len(body)} bytes")
    if crlf and grammar.version is not Version.V1_2:
        raise LocalProtocolError(f"STOMP {grammar.version} ends lines with LF only")
    if not given and has_length(body, content_length=content_length, grammar=grammar):
        pairs.append(("content-length", str(len(body))))
    head = encode_head(command, pairs, grammar=grammar)
    if crlf:
        head = head.replace(b"\n", b"\r\n")
    return b"".join((head, b"\r\n" if crlf else b"\n", body, b"\0"))


def has_length(body: bytes, *, content_length: bool, grammar: Grammar) -> bool:
    """Return whether a frame needs a `content-length` header; see `encode`."""
    return grammar.draft or bool(body and (content_length or b"\0" in body))


def finish(head: bytes, body: bytes, *, grammar: Grammar, content_length: bool = True) -> Encoded:
    """Return the frame for `head`, the output of `encode_head` and `encode_lines` without the content length."""
    if has_length(body, content_length=content_length, grammar=grammar):
        if len(body) >= LARGE_BODY:
            return b"%bcontent-length:%d\n\n" % (head, len(body)), body, b"\0"
        return b"%bcontent-length:%d\n\n%b\0" % (head, len(body), body)
    return b"%b\n%b\0" % (head, body)


def encode_head(command: str, headers: Iterable[tuple[str, str]], *, grammar: Grammar) -> bytes:
    """Return the command and the header lines of a frame, each with its line end; raises the errors of `encode`."""
    if command not in _KNOWN and not _COMMAND.fullmatch(command):
        raise LocalProtocolError(f"{command!r} cannot be a STOMP command")
    return b"%b\n%b" % (command.encode("ascii"), encode_lines(command, headers, grammar=grammar))


def encode_lines(command: str, headers: Iterable[tuple[str, str]], *, grammar: Grammar) -> bytes:
    """Return header lines of a frame, each with its line end; raises the errors of `encode`."""
    pairs = list(headers)
    if grammar.draft:
        pairs = [_draft_pair(name, value) for name, value in pairs]
    text = _simple_lines(pairs, command, grammar)
    if text is None:
        line = _escaped_line if grammar.escapes and grammar.escaped(command) else _raw_line
        text = "".join([line(command, name, value, grammar) + "\n" for name, value in pairs])
    try:
        return text.encode("utf-8", grammar.utf8_errors)
    except UnicodeEncodeError as error:
        reason = error.reason
    # Without the error itself as context: it holds the text of all headers.
    raise LocalProtocolError(f"a header of the {command} frame is not valid Unicode: {reason}")


def _simple_lines(pairs: list[tuple[str, str]], command: str, grammar: Grammar) -> str | None:
    """Return the lines, or `None` if one may not be valid or may need another escape than that of a colon."""
    # No f-string: it would format an enum member with a text value as its name.
    text = "".join([name + "\0" + value + "\n" for name, value in pairs])
    if (
        text.count("\0") != len(pairs)
        or text.count("\n") != len(pairs)
        or "\n\0" in text
        or text.startswith("\0")
        or "\\" in text
        or "\r" in text
    ):
        return None
    if ":" in text:
        if not (grammar.escapes and grammar.escaped(command)):
            return None
        text = text.replace(":", grammar.escapes[":"])
    return text.replace("\0", ":")


def _escaped_line(command: str, name: str, value: str, grammar: Grammar) -> str:
    if not name or "\0" in name or "\0" in value:
        raise _unwritable(command, name, "an empty name or a NUL")
    if value.endswith("\r") and grammar.crlf and "\r" not in grammar.escapes:
        raise _unwritable(command, name, "a CR before the line end")
    return escape(name, grammar.escapes) + ":" + escape(value, grammar.escapes)


def _raw_line(command: str, name: str, value: str, grammar: Grammar) -> str:
    """Return a line of a frame without escapes: CONNECT, STOMP, CONNECTED, and all frames of 1.0."""
    if not name or ":" in name:
        raise _unwritable(command, name, "an empty name or a colon in a name")
    # A CR before the LF would be read as part of the line end, and CONNECT is parsed before the version is negotiated.
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
            f"the 1.0-draft does not allow control characters or outer spaces in the value of header {name!r}"
        )
    return name, value


def _unwritable(command: str, name: str, what: str) -> LocalProtocolError:
    return LocalProtocolError(
        f"header {name!r} of a {command} frame contains {what}, which this version cannot express (Value Encoding)"
    )
