"""Frames in, bytes out; what a version cannot express is refused, never changed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stompy.errors import LocalProtocolError
from stompy.frames.escaping import escape
from stompy.frames.frame import Frame
from stompy.frames.grammar import BODY_COMMANDS, CLIENT_COMMANDS, RAW_COMMANDS, SERVER_COMMANDS, Grammar
from stompy.frames.version import Version

HEARTBEAT = b"\n"
"""What is sent when there is nothing to say (STOMP 1.2, Heart-beating)."""

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
        pairs = [_draft_pair(name, value) for name, value in pairs]
    _add_length(command, pairs, body, wanted=content_length, always=grammar.draft)
    text = _plain_head(command, pairs) or _careful_head(command, pairs, grammar)
    if crlf:
        if grammar.version is not Version.V1_2:
            raise LocalProtocolError(f"STOMP {grammar.version} ends lines with LF only")
        text = text.replace("\n", "\r\n")
    try:
        head = text.encode("utf-8", grammar.utf8_errors)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a header of the {command} frame is not valid Unicode: {error.reason}") from None
    return b"".join((head, b"\r\n\r\n" if crlf else b"\n\n", body, b"\0"))


def encode_frame(frame: Frame, grammar: Grammar, *, content_length: bool = True) -> bytes:
    """Return the octets of `frame`; see `encode`."""
    return encode(frame.command, frame.headers.pairs, frame.body, grammar=grammar, content_length=content_length)


def _add_length(command: str, pairs: list[tuple[str, str]], body: bytes, *, wanted: bool, always: bool) -> None:
    if body and command in _BODYLESS:
        raise LocalProtocolError(f"a {command} frame must not have a body (Body)")
    given = [value for name, value in pairs if name == "content-length"]
    if given:
        if given[0] != str(len(body)):
            raise LocalProtocolError(f"content-length {given[0]!r} does not fit a body of {len(body)} octets")
    elif (body and (wanted or b"\0" in body)) or always:
        pairs.append(("content-length", str(len(body))))


def _plain_head(command: str, pairs: list[tuple[str, str]]) -> str | None:
    """Return the head if nothing in it needs a second look, else `None`; one pass over the text, not one a header."""
    text = "\n".join([command, *[f"{name}:{value}" for name, value in pairs]])
    if (
        text.count(":") != len(pairs)
        or text.count("\n") != len(pairs)
        or "\n:" in text
        or "\\" in text
        or "\r" in text
        or "\0" in text
        or command not in _KNOWN
    ):
        return None
    return text


def _careful_head(command: str, pairs: list[tuple[str, str]], grammar: Grammar) -> str:
    if not _COMMAND.fullmatch(command):
        raise LocalProtocolError(f"{command!r} cannot be a STOMP command")
    line = _escaped_line if grammar.escapes and grammar.escaped(command) else _raw_line
    return "\n".join([command, *[line(command, name, value, grammar) for name, value in pairs]])


def _escaped_line(command: str, name: str, value: str, grammar: Grammar) -> str:
    if not name or "\0" in name or "\0" in value:
        raise _unwritable(command, name, "an empty name or a NUL")
    if value.endswith("\r") and grammar.crlf and "\r" not in grammar.escapes:
        raise _unwritable(command, name, "a CR before the line end")
    return f"{escape(name, grammar.escapes)}:{escape(value, grammar.escapes)}"


def _raw_line(command: str, name: str, value: str, grammar: Grammar) -> str:
    """Return a line of a frame without escapes: CONNECT, STOMP, CONNECTED, and all of 1.0."""
    if not name or ":" in name:
        raise _unwritable(command, name, "an empty name or a colon in a name")
    # A CR just before the LF would be taken for part of the line end, and CONNECT is read before a version is agreed.
    stray_cr = "\r" in name + value if command in RAW_COMMANDS else value.endswith("\r")
    if "\n" in name + value or "\0" in name + value or stray_cr:
        raise _unwritable(command, name, "a line end or a NUL")
    return f"{name}:{value}"


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
