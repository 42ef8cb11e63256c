"""Frames and helper functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stompy.compat.constants import *  # noqa: F403 - programs import them from here
from stompy.compat.constants import HDR_CONTENT_LENGTH, HDR_PASSCODE
from stompy.frames.frame import Headers, headers_from_head, headers_from_wire
from stompy.frames.grammar import Grammar, Version, grammar_of
from stompy.frames.parser import Parser
from stompy.protocol.unchecked import TOLERATED
from stompy.world import socket, threading, uuid

LOCALHOST_NAMES = ["localhost", "127.0.0.1", socket.gethostname()]
"""Names of this machine; found without a look-up."""

NULL = b"\x00"
ENC_NEWLINE = b"\n"
ENC_NULL = NULL
HEADER_LINE_RE = re.compile("(?P<key>[^:]+):(?P<value>.*)")
PREAMBLE_END_RE = re.compile(b"\n\r?\n")
LINE_END_RE = re.compile("\r?\n")
PASSCODE_RE = re.compile(r"passcode:[^'\"\\]*")

_GRAMMAR = grammar_of(Version.V1_2, TOLERATED)


class Frame:
    """A frame.

    Args:
        cmd: the command; `None` means a heartbeat.
        headers: of the frame; listeners may change them.
        body: text or bytes.
    """

    def __init__(self, cmd: str | None, headers: dict[str, Any] | None = None, body: Any = None) -> None:
        self.cmd = cmd
        self.headers: dict[str, Any] = {} if headers is None else headers
        self.original_headers = self.headers.copy()
        self.body = body

    def __str__(self) -> str:
        return f"{{cmd={self.cmd},headers=[{self.headers}],body={self.body}}}"


class _LazyHeaders:
    """Headers that are split when they are first read; `functools.cached_property` takes a lock before Python 3.12."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, message: ReceivedMessage, owner: type) -> dict[str, str]:
        head = message._head
        if isinstance(head, bytes):
            head = headers_from_head(head, message._grammar, "MESSAGE")
        value = dict(head.items())
        message.__dict__[self._name] = value
        return value


class ReceivedMessage(Frame):
    """A MESSAGE of the broker; its headers are split at first use, as many programs read none.

    Args:
        head: its headers as they arrived.
        grammar: of them.
        body: text or bytes.
    """

    headers = _LazyHeaders()
    original_headers = _LazyHeaders()

    def __init__(self, head: bytes | Headers, grammar: Grammar, body: Any) -> None:
        self.cmd = "MESSAGE"
        self.body = body
        self._head = head
        self._grammar = grammar


HEARTBEAT_FRAME = Frame("heartbeat")


def decode(byte_data: bytes | None, encoding: str = "utf-8") -> str | None:
    """Return bytes as text; invalid bytes are replaced."""
    return None if byte_data is None else byte_data.decode(encoding, "replace")


def encode(char_data: str | bytes, encoding: str = "utf-8") -> bytes:
    """Return text as bytes, and bytes as they are.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(char_data, str):
        return char_data.encode(encoding, "replace")
    if isinstance(char_data, bytes):
        return char_data
    raise TypeError(f"message should be a string or bytes, found {type(char_data)}")


def pack(pieces: Iterable[bytes] = ()) -> bytes:
    """Join bytes."""
    return b"".join(pieces)


def join(chars: Iterable[bytes] = ()) -> str:
    """Join bytes, and decode them."""
    return b"".join(chars).decode()


def is_eol_default(c: bytes) -> bool:
    """Return whether `c` is a line feed."""
    return c == b"\n"


def default_create_thread(callback: Callable[[], object]) -> threading.Thread:
    """Return a new daemon thread, started."""
    thread = threading.Thread(target=callback, daemon=True)
    thread.start()
    return thread


def is_localhost(host_and_port: tuple[str, int]) -> int:
    """Return 1 for an address of this machine, else 2."""
    return 1 if host_and_port[0] in LOCALHOST_NAMES else 2


def parse_headers(lines: Sequence[str], offset: int = 0) -> dict[str, str]:
    """Return the headers in `lines`, from the line `offset` on."""
    text = "".join([f"\n{line}" for line in lines[offset:] if line.find(":") > 0])
    return dict(headers_from_wire(text + "\n", _GRAMMAR, True).items())


def parse_frame(frame: bytes) -> Frame | None:
    """Return the frame of bytes without the final NUL; `None` for line ends only."""
    text = frame if PREAMBLE_END_RE.search(frame.lstrip(b"\r\n")) else frame + b"\n\n"
    found = Parser(_GRAMMAR).feed(text + NULL)
    return Frame(found[0].command, dict(found[0].headers), found[0].body) if found else None


def merge_headers(header_map_list: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return all headers in one dictionary; later ones win."""
    headers: dict[str, Any] = {}
    for headers_given in header_map_list:
        if headers_given:
            headers.update(headers_given)
    return headers


def clean_headers(headers: dict[str, Any]) -> dict[str, Any]:
    """Return the headers with the passcode hidden."""
    return {**headers, HDR_PASSCODE: "********"} if HDR_PASSCODE in headers else headers


def clean_lines(lines: object) -> str:
    """Return the lines of a frame as text, with the passcode hidden."""
    return PASSCODE_RE.sub("passcode:********", str(lines))


def calculate_heartbeats(shb: Iterable[str | int], chb: Iterable[int]) -> tuple[int, int]:
    """Return the intervals in milliseconds on which a server's and a client's `heart-beat` agree; 0 means none."""
    (server_sends, server_wants), (can, wants) = map(int, shb), chb
    send = max(can, server_wants) if can and server_wants else 0
    return send, max(wants, server_sends) if wants and server_sends else 0


def header_pairs(headers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return headers as text, without `content-length`.

    `None` is left out, a tuple becomes several lines, anything else is rendered by `str`.
    """
    pairs = []
    for name, value in headers.items():
        if name == HDR_CONTENT_LENGTH:
            continue
        if type(value) is str:
            pairs.append((name, value))
        elif isinstance(value, tuple):
            pairs += [(name, str(item)) for item in value]
        elif value is not None:
            pairs.append((name, str(value)))
    return pairs


def convert_frame(frame: Frame) -> list[bytes]:
    """Return a frame as a list of lines, without escapes."""
    body = encode(frame.body) if frame.body else b""
    if body and HDR_CONTENT_LENGTH in frame.headers:
        frame.headers[HDR_CONTENT_LENGTH] = len(body)
    lines = [encode(frame.cmd), ENC_NEWLINE] if frame.cmd else []
    pairs = header_pairs(frame.headers)
    if HDR_CONTENT_LENGTH in frame.headers:
        pairs.append((HDR_CONTENT_LENGTH, str(frame.headers[HDR_CONTENT_LENGTH])))
    lines += [encode(f"{name}:{value}\n") for name, value in sorted(pairs)]
    lines.append(ENC_NEWLINE)
    if body:
        lines.append(body)
    if frame.cmd:
        lines.append(ENC_NULL)
    return lines


def length(s: Any) -> int:
    """Return the length; 0 for `None`."""
    return 0 if s is None else len(s)


def get_uuid() -> str:
    """Return a new unique id."""
    return str(uuid.uuid4())


def get_errno(e: BaseException) -> Any:
    """Return the error number of an exception, or its first argument."""
    return getattr(e, "errno", None) or e.args[0]
