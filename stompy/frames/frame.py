"""A STOMP frame and its headers: ordered, with repeated entries, of which the first one counts."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, TypeVar, overload

from stompy.frames.escaping import unescape

if TYPE_CHECKING:
    from stompy.frames.grammar import Grammar

_SECRET = re.compile("pass|pwd|secret|token|authorization|credential|cookie|api.?key", re.IGNORECASE)
"""A part of the names of headers whose values `repr` hides, such as `passcode` and brokers' own headers."""

T = TypeVar("T")

_ENTRY = re.compile(r"\n([^:\n]+):([^\n]*)")
_MAX_STARTS = 1000
_SHOWN_BODY, _SHOWN_TEXT, _SHOWN_HEADERS = 60, 100, 600
"""Bytes of a body, characters of a name or value, and characters of all headers in the `repr` of a frame."""
_MASK = "'***'"

Pairs = tuple[tuple[str, str], ...]

_new_object = object.__new__  # called for each message


class _Starts(dict[str, str | None]):
    """The start of a header line by the name; `None` if the text cannot be searched for it.

    A cache, which threads may write concurrently, always the same values.
    """

    def __missing__(self, name: str) -> str | None:
        # In the text these characters are escape sequences, or would match beyond the name.
        if ":" in name or "\\" in name or "\n" in name or "\r" in name:
            return None
        start = f"\n{name}:"
        if len(self) < _MAX_STARTS and len(name) < 100:
            self[name] = start
        return start


_STARTS = _Starts()


class Headers(Mapping[str, str]):
    """An immutable, ordered mapping of header names to values; a repeated name has its first value.

    `pairs` has every entry, including repeated ones, in the order on the wire (STOMP 1.2, Repeated Header Entries).
    Headers from the wire are only split when they are first accessed, as most programs read few of them or none.

    Args:
        entries: a mapping, or pairs of name and value.
    """

    __slots__ = ("_escaped", "_first", "_grammar", "_pairs", "_text")

    def __init__(self, entries: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        self._pairs: Pairs | None = tuple((name, value) for name, value in pairs)
        self._first: dict[str, str] | None = None
        self._text: str | None = None
        self._grammar: Grammar
        self._escaped: bool

    @property
    def pairs(self) -> Pairs:
        """Every entry in order, including repeated ones."""
        if self._pairs is None:
            assert self._text is not None
            self._pairs = _split(self._text, self._grammar, self._escaped)
        return self._pairs

    @property
    def size(self) -> int:
        """The approximate size in bytes: the characters of names and values, and one for each separator."""
        if self._text is not None:
            return len(self._text)
        return sum(len(name) + len(value) + 2 for name, value in self.pairs)

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, default: str | T, /) -> str | T: ...

    def get(self, name: str, default: str | T | None = None, /) -> str | T | None:
        """Return the first value of `name`, or `default`, without splitting the other headers if possible."""
        text, start_of_line = self._text, _STARTS[name]
        if text is None or start_of_line is None or self._first is not None:
            return self._mapping().get(name, default)
        _, found, rest = text.partition(start_of_line)  # which costs less than `find` and a slice
        if not found:
            return default
        value = rest.partition("\n")[0]
        if self._grammar.trim:
            value = value.strip(" ")
        if "\\" in value and self._escaped:
            # Without any other sequence, as it usually is, this is what `unescape` does.
            plain = value.replace("\\c", ":")
            return plain if "\\" not in plain else _unescaped(value, self._grammar)
        return value

    def getall(self, name: str) -> tuple[str, ...]:
        """Return every value of `name` in order; empty if there is none."""
        return tuple(value for key, value in self.pairs if key == name)

    def _mapping(self) -> dict[str, str]:
        if self._first is None:
            first = None
            if self._pairs is None and not self._grammar.trim:
                assert self._text is not None
                first = _simple_mapping(self._text, self._escaped)
            if first is None:
                first = {}
                for name, value in self.pairs:
                    first.setdefault(name, value)
            self._first = first
        return self._first

    # The three methods that `Mapping` provides are ten times slower.

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._mapping().keys()

    def values(self) -> ValuesView[str]:
        """Return the first value of each name."""
        return self._mapping().values()

    def items(self) -> ItemsView[str, str]:
        """Return the names and the first value of each."""
        return self._mapping().items()

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping())

    def __len__(self) -> int:
        return len(self._mapping())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self.pairs == other.pairs
        if isinstance(other, Mapping):
            return self._mapping() == dict(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __reduce__(self) -> tuple[type[Headers], tuple[Pairs]]:
        return (Headers, (self.pairs,))

    def __repr__(self) -> str:
        shown, room = [], _SHOWN_HEADERS
        for name, value in self.items():
            shown.append(f"{show_text(name)}: {_MASK if is_secret(name) else show_text(value)}")
            room -= len(shown[-1])
            if room < 0:
                shown[-1] = f"… ({len(self)} headers)"
                break
        return f"Headers({{{', '.join(shown)}}})"


def _split(text: str, grammar: Grammar, escaped: bool) -> Pairs:
    if not grammar.trim:
        fields = _simple_fields(text, escaped)
        if fields is not None:
            each = iter(fields)
            return tuple(zip(each, each, strict=True))
    pairs: list[tuple[str, str]] = _ENTRY.findall(text)
    if grammar.draft:
        return tuple([(name.lower(), value.strip(" ")) for name, value in pairs])
    if grammar.trim:
        pairs = [(name, value.strip(" ")) for name, value in pairs]
    if escaped:
        pairs = [
            (_unescaped(name, grammar), _unescaped(value, grammar)) if "\\" in value or "\\" in name else (name, value)
            for name, value in pairs
        ]
    return tuple(pairs)


def _simple_fields(text: str, escaped: bool) -> list[str] | None:
    """Return names and values in turn; `None` if a value holds a colon or an escape sequence for another character."""
    lines = text.count("\n") - 1
    text = text[1:-1].replace(":", "\n")  # between names and values, and between lines
    if escaped and "\\" in text:
        text = text.replace("\\c", ":")
        if "\\" in text:
            return None
    fields = text.split("\n")
    return fields if len(fields) == 2 * lines else None


def headers_from_wire(text: str, grammar: Grammar, escaped: bool) -> Headers:
    r"""Return headers from text that the parser has checked.

    Args:
        text: header lines between line ends, such as `"\nname:value\nname:value\n"`, or only `"\n"`.
        grammar: the rules of the version.
        escaped: whether names and values hold escape sequences.
    """
    headers = Headers.__new__(Headers)
    headers._pairs = headers._first = None
    headers._text = text
    headers._grammar = grammar
    headers._escaped = escaped
    if grammar.draft:  # names are in any case there, so they cannot be searched in the text
        headers._pairs, headers._text = _split(text, grammar, escaped), None
    return headers


def headers_from_head(head: bytes, grammar: Grammar, command: str) -> Headers:
    """Return headers from the checked lines of a learned head, which start with LF."""
    text = head.decode() if grammar.utf8_errors == "strict" else head.decode("utf-8", grammar.utf8_errors)
    if "\r" in text and grammar.crlf:
        text = text.replace("\r\n", "\n")
    headers = _new_object(Headers)
    headers._pairs = headers._first = None
    headers._text = text
    headers._grammar = grammar
    # A MESSAGE is escaped where anything is, so it needs no call.
    headers._escaped = bool(grammar.unescapes) if command == "MESSAGE" else grammar.escaped(command)
    return headers


def table_of(rows: Sequence[bytes | Headers], grammar: Grammar) -> tuple[list[str], list[tuple[str, ...]]] | None:
    """Return the names of the headers of several MESSAGE frames, and the values of each frame.

    One pattern splits them, at a fraction of the cost of a mapping for each. `None` if the frames differ in their
    names, if a name is repeated or escaped, if any text is not ASCII or has an escape sequence for another character
    than a colon, or if lines end with CR LF.

    Args:
        rows: the headers, or learned heads as for `headers_from_head`; at least one.
        grammar: the rules of the version.
    """
    # A byte beyond ASCII stays a character beyond it.
    texts = [row.decode("latin-1") if isinstance(row, bytes) else row._text or "" for row in rows]
    whole = "".join(texts)
    names = [name for name, _ in _ENTRY.findall(texts[0])]
    escaped = "\\" in whole
    unusual = not whole.isascii() or "\r" in whole or (escaped and whole.count("\\") > whole.count("\\c"))
    if unusual or grammar.trim or not all(texts) or len(set(names)) < len(names) or "\\" in "".join(names):
        return None
    pattern = "".join([f"\n{re.escape(name)}:([^\n]*)" for name in names]) + "\n"
    found = [match.groups() for match in map(re.compile(pattern).fullmatch, texts) if match]
    if escaped and grammar.unescapes:
        found = [tuple([value.replace("\\c", ":") for value in values]) for values in found]
    return (names, found) if len(found) == len(texts) else None


def trimmed(headers: Headers) -> Headers:
    """Return a copy without the spaces around values, with which 1.0 peers pad them."""
    return Headers((name, value.strip(" ")) for name, value in headers.pairs)


def text_on_the_wire(headers: Headers) -> str | None:
    """Return the header lines as they arrived, each between line ends; `None` if they are not known."""
    return headers._text


def _simple_mapping(text: str, escaped: bool) -> dict[str, str] | None:
    """Return the headers; `None` as `_simple_fields` does, or if a name is repeated."""
    fields = _simple_fields(text, escaped)
    if fields is None:
        return None
    mapping = dict(zip(fields[::2], fields[1::2], strict=True))
    return mapping if 2 * len(mapping) == len(fields) else None


def _unescaped(part: str, grammar: Grammar) -> str:
    return unescape(part, grammar.unescapes, lenient=grammar.lenient_escapes)


class Frame:
    """A command, its headers and its body.

    Treat it as immutable. Only `stompy.protocol` changes the first frame of a session while accepting it, as this frame
    determines the version, and thereby whether to trim its values and drop its body.

    Args:
        command: the command, such as `"SEND"`.
        headers: `Headers`, a mapping, or pairs.
        body: bytes, without the NUL that ends the frame.
    """

    __slots__ = ("body", "command", "headers")

    def __init__(
        self, command: str, headers: Headers | Mapping[str, str] | Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> None:
        self.command = command
        self.headers = headers if type(headers) is Headers else Headers(headers)
        self.body = body

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        return (self.command, self.headers, self.body) == (other.command, other.headers, other.body)

    def __hash__(self) -> int:
        return hash((self.command, self.headers, self.body))

    def __repr__(self) -> str:
        return f"<Frame {self.command} {self.headers!r} {show_body(self.body)}>"


def is_secret(name: str) -> bool:
    """Whether the values of a header are not to be shown, by its name."""
    return _SECRET.search(name) is not None


def show_text(text: str) -> str:
    """Return a short text for logs and errors: the first characters and the length."""
    shown = repr(text[:_SHOWN_TEXT])
    if len(text) <= _SHOWN_TEXT and len(shown) <= 2 * _SHOWN_TEXT:
        return shown
    return f"{shown[:_SHOWN_TEXT]}… ({len(text)} characters)"


def show_body(body: bytes) -> str:
    """Return a short text for logs and errors: the first bytes and the length."""
    if len(body) <= _SHOWN_BODY:
        return repr(body)
    return f"{body[:_SHOWN_BODY]!r}… ({len(body)} bytes)"
