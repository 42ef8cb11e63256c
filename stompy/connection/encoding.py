"""Encoding and decoding: bodies, header values, and the SEND and SUBSCRIBE frames in the broker's dialect. Any thread.

The head of a SEND is the same for all messages of one class of body and the same options to one destination, so it is
checked and encoded once per link and cached, and so is the last one with the caller's headers, whose names are cached
too. The receipt, the transaction and the body's length follow. Bodies: STOMP 1.2, Header content-type.
"""

from __future__ import annotations

import codecs
import functools
import json
import json.encoder
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from stompy.dialects.options import BROKER_OPTIONS, SendOptions, SubscribeOptions, check_send_options
from stompy.errors import BodyDecodeError, ConfigurationError, LocalProtocolError
from stompy.frames.encoder import LARGE_BODY, Encoded, encode_head, encode_lines, finish
from stompy.link.link import Link

Body = str | bytes | bytearray | memoryview | bool | int | float | Mapping[str, object] | list[Any] | tuple[Any, ...]
"""Text, bytes, or a value to encode as JSON, in which mappings must be `dict`."""

TEXT_TYPE = "text/plain;charset=utf-8"
JSON_TYPE = "application/json"

_NO_CHARSETS = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"))
"""Python codecs that are not charsets. The first two take hours for a long body, and the sender chooses."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# What `_JSON` makes for each body. It does not look for circles, for which it would have to note each container: one
# ends by a `RecursionError`. Other Pythons, such as PyPy, have none in C.
_make_pieces: Any = getattr(json.encoder, "c_make_encoder", lambda *_: lambda body, _: _JSON.encode(body))
_pieces: Callable[[object, int], Iterable[str]] = _make_pieces(
    None, _JSON.default, json.encoder.encode_basestring, None, ":", ",", False, False, False
)

OWN_HEADERS = {
    "destination": "the argument destination",
    "receipt": "confirm=True",
    "transaction": "connection.transaction()",
    "content-length": "content_length=",
    "content-type": "content_type=",
}
"""Headers that are set by arguments, and which."""


def encode_body(body: object, content_type: str | None) -> tuple[bytes, str | None]:
    """Return the bytes and the content type of a body.

    Args:
        body: `str` is encoded with the charset of the content type (UTF-8 by default), bytes are sent unchanged,
            anything else is encoded as JSON.
        content_type: `None` uses `text/plain;charset=utf-8` for text, none for bytes, `application/json` otherwise.

    Raises:
        LocalProtocolError: the content type is not a MIME type, its charset is unknown or cannot encode the text, or
            the body cannot be encoded as JSON.
    """
    encode, kind = encoding_of(type(body), content_type)
    try:
        return encode(body), kind
    except UnicodeError as error:
        raise LocalProtocolError(f"the text cannot be encoded in utf-8: {getattr(error, 'reason', error)}") from None


def encoding_of(kind: type, content_type: str | None) -> tuple[Callable[[Any], bytes], str | None]:
    """Return the encoder for bodies of a Python type, and their content type; raises as `encode_body` does.

    The encoder may also raise `UnicodeError`, as it is usually `str.encode`.
    """
    if content_type is not None:
        _check_type(content_type)
    if issubclass(kind, (bytes, bytearray, memoryview)):
        return bytes, content_type
    if issubclass(kind, str) and not (content_type is not None and _is_json(content_type)):
        content_type = content_type or TEXT_TYPE
        charset = charset_of(content_type)
        if charset is None:  # then receivers would treat it as binary
            charset, content_type = "utf-8", f"{content_type};charset=utf-8"
        utf8 = charset.lower() in ("utf-8", "utf8")
        return str.encode if utf8 else functools.partial(_encode_text, charset=charset), content_type
    if kind is type(None):
        raise LocalProtocolError(
            "a body cannot be None: send b'' for an empty body, or 'null' with content_type='application/json' for "
            "JSON's null"
        )
    content_type = content_type or JSON_TYPE
    charset = charset_of(content_type) or "utf-8"
    return _encode_json if charset == "utf-8" else functools.partial(_encode_json, charset=charset), content_type


def _encode_json(body: object, charset: str = "utf-8") -> bytes:
    try:
        text = body if isinstance(body, str) else "".join(_pieces(body, 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(
            f"a body of {type(body).__name__} cannot be encoded as JSON: {error}; send bytes, text or values of JSON"
        ) from None
    return text.encode() if charset == "utf-8" else _encode_text(text, charset)


def _check_type(content_type: str) -> None:
    kind, slash, subtype = content_type.split(";", 1)[0].partition("/")
    if not slash or not kind.strip() or not subtype.strip():
        raise LocalProtocolError(f"content type {content_type[:60]!r} is not a MIME type such as 'text/plain'")


def _encode_text(text: str, charset: str) -> bytes:
    try:
        return text.encode(charset)
    except LookupError:
        raise LocalProtocolError(f"unknown charset {charset[:40]!r} in the content type") from None
    except UnicodeError as error:
        raise LocalProtocolError(
            f"the text cannot be encoded in {charset}: {getattr(error, 'reason', error)}"
        ) from None


def charset_of(content_type: str) -> str | None:
    """Return the charset that a content type names or implies, or `None` for binary content.

    Without a charset, `text/` and JSON types are UTF-8, and all others are binary.
    """
    kind, *parameters = content_type.split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"') or None
    if kind.strip().lower().startswith("text/") or _is_json(content_type):
        return "utf-8"
    return None


def _is_json(content_type: str) -> bool:
    kind = content_type.split(";", 1)[0].strip().lower()
    return kind == JSON_TYPE or kind.endswith("+json")


def decode_text(body: bytes, content_type: str | None) -> str:
    """Return the text of a body, decoded with its declared charset.

    Without a content type, UTF-8 is used: STOMP 1.0 and ActiveMQ's text messages have none.

    Raises:
        BodyDecodeError: the body is not text in that charset, or its type is not text.
    """
    charset = "utf-8" if content_type is None else charset_of(content_type)
    if charset is None:
        raise BodyDecodeError(f"a body of type {content_type!r} is binary; use .body", body=body)
    if not _is_known(charset):
        raise _unknown_charset(charset, content_type, body)
    try:
        return body.decode(charset)
    except LookupError:  # a codec that is not for text
        raise _unknown_charset(charset, content_type, body) from None
    except UnicodeError as error:
        raise BodyDecodeError(f"the body is not valid {charset}: {error}", body=body) from None


def _is_known(charset: str) -> bool:
    try:
        # Python 3.15 warns of names that are not ASCII, of which no codec has one.
        return charset.isascii() and codecs.lookup(charset).name not in _NO_CHARSETS
    except (LookupError, ValueError):  # such as a name with a null byte
        return False


def _unknown_charset(charset: str, content_type: str | None, body: bytes) -> BodyDecodeError:
    shown = (content_type or "")[:100]
    return BodyDecodeError(f"unknown charset {charset[:40]!r} in content type {shown!r}", body=body)


def decode_json(body: bytes, content_type: str | None) -> Any:
    """Return the value in a JSON body, whatever its declared type.

    Raises:
        BodyDecodeError: the body is not JSON.
    """
    charset = (charset_of(content_type) if content_type else None) or "utf-8"
    try:
        if not _is_known(charset):
            raise LookupError(f"unknown charset {charset[:40]!r}")
        return json.loads(body.decode(charset))
    except (LookupError, ValueError, RecursionError) as error:
        raise BodyDecodeError(f"the body is not JSON: {error}", body=body) from None


def user_headers(headers: Mapping[str, object] | None) -> dict[str, str]:
    """Return a caller's headers as text: `True` becomes `"true"`, `False` `"false"`, an int its decimal digits.

    Raises:
        ConfigurationError: a header that is set by an argument.
        LocalProtocolError: a value of another type.
    """
    if not headers:
        return {}
    check_headers(headers)
    for name in OWN_HEADERS.keys() & set(headers):
        raise ConfigurationError(f"header {name!r} is set by {OWN_HEADERS[name]}, not by headers=")
    return {name: header_text(name, value) for name, value in headers.items()}


def check_headers(headers: object) -> None:
    """Check that headers are a mapping; the error does not show them.

    Raises:
        ConfigurationError: they are not.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError(
            f"headers must be a mapping, such as {{'type': 'order'}}, not a {type(headers).__name__}"
        )


def header_text(name: str, value: object) -> str:
    """Return one header value as text; see `user_headers`."""
    if not isinstance(name, str):
        raise LocalProtocolError(f"a header name must be str, not {type(name).__name__}")
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:d}"
    raise LocalProtocolError(f"header {name!r} must be str, int or bool, not {type(value).__name__}; write str(...)")


def check_destination(destination: object) -> None:
    """Check that a destination is non-empty text.

    Raises:
        LocalProtocolError: it is not.
    """
    if not isinstance(destination, str) or not destination:
        raise LocalProtocolError(f"a destination must be non-empty text, not {destination!r}")


_MAX_CACHED = 1_000
"""Cached heads, and names of headers, per link; above this the cache is cleared."""

_MAX_BYTES = 1_000
"""Longer heads and names are not cached."""

_VARYING = frozenset(name for name, option in BROKER_OPTIONS.items() if option.varies)

_PLAIN = frozenset((str, int, bool, float, type(None)))
"""Classes whose equal values of the same class are the same text; a subclass may define equality otherwise."""

_Values = Mapping[str, object]

_Head = tuple[bytes, Callable[[Any], bytes], bool, tuple[frozenset[str], _Values, bytes]]
"""The first lines of a SEND, the encoder of its body, and whether it has a content length.

Then what a SEND with the caller's headers needs: the headers set by options, the last ones of the caller, all lines.
"""

_Recent = tuple[type, str | None, _Values, bytes, Callable[[Any], bytes], bool, tuple[frozenset[str], _Values, bytes]]
"""The last SEND: the class of the body, its type, the options; and the head of these."""

_Key = TypeVar("_Key")
_Made = TypeVar("_Made")


_LENGTH_LINES: dict[int, bytes] = {}
"""What `_length_lines` has returned."""


def _length_lines(length: int) -> bytes:
    """Return the last header line and the empty line, by the length of the body; nothing if it is empty or large."""
    if not 0 < length < LARGE_BODY:
        return b""
    line = b"content-length:%d\n\n" % length
    if len(_LENGTH_LINES) < _MAX_CACHED:
        _LENGTH_LINES[length] = line
    return line


class SendEncoder:
    """Encodes the SEND frames of one link.

    Args:
        link: determines the version and the dialect.
        content_length: whether to add that header, by default.
    """

    def __init__(self, link: Link, *, content_length: bool = True) -> None:
        self.link = link
        self._content_length = content_length
        self._recent: dict[str, _Recent] = {}
        """By destination."""
        # With the class of each value, as `1 == True == 1.0`.
        self._heads: dict[tuple[object, ...], _Head] = {}
        self._names: dict[str, bytes] = {}
        """The starts of the lines of the caller's headers, as far as their values."""
        self._defaults = frozenset(name for name, _ in link.dialect.routes.get("SEND", {}).values())
        """Headers of the head that the caller may replace."""

    def send(
        self,
        destination: str,
        body: object,
        content_type: str | None,
        headers: Mapping[str, object] | None,
        options: _Values,
        extra: bytes = b"",
    ) -> Encoded:
        """Return a SEND frame; the arguments are those of `Connection.send`.

        Args:
            destination: see above.
            body: see above.
            content_type: the option of this name.
            headers: the option of this name.
            options: the others.
            extra: header lines for a receipt or a transaction.

        Raises:
            LocalProtocolError: the frame cannot be encoded.
            ConfigurationError: an option is wrong, given twice, or not supported by the broker; or a body seems to be
                in the place of the destination.
        """
        kind = type(body)
        # Values are known if they are the very objects: equal ones may be other text, such as `1 == True == 1.0`.
        try:
            last, of_type, given, head, encode, content_length, others = self._recent[destination]
            known = last is kind and of_type is content_type and type(destination) is str
            if options or given:
                known = known and len(options) == len(given)
                for name, value in options.items():
                    if given[name] is not value:
                        known = False
                        break
        except (KeyError, TypeError):
            known = False
        if not known:
            head, encode, content_length, others = self._head(destination, kind, content_type, options)
        if headers:
            taken, explicit, whole = others
            try:
                known = len(headers) == len(explicit)
                for name, value in headers.items():
                    if name not in explicit or explicit[name] is not value:
                        known = False
                        break
                if not known:
                    every = self.whole(content_type, options)
                    whole = self._with_headers(head, taken, destination, kind, headers, every)
                    if type(destination) is str and len(whole) <= _MAX_BYTES:
                        others = taken, dict(headers), whole
                        self._recent[destination] = kind, content_type, options, head, encode, content_length, others
                head = whole
            except (AttributeError, TypeError):
                check_headers(headers)
                raise
        data: Any = body
        if kind is not bytes:
            try:
                data = encode(body)
            except UnicodeError:
                data, _ = encode_body(body, content_type)  # raises the proper error
        try:
            length = _LENGTH_LINES[len(data)]
        except KeyError:
            length = _length_lines(len(data))
        if length and content_length:
            return b"".join((head, extra, length, data, b"\0"))
        if not data and self.link.dialect.slashed and not destination.startswith("/"):
            raise ConfigurationError(
                f"an empty message to {destination!r}: send takes the destination first, and those of"
                f" {self.link.dialect.product} begin with a slash: send('/queue/NAME', {destination!r})"
            )
        return finish(head + extra, data, grammar=self.link.protocol.grammar, content_length=content_length)

    @staticmethod
    def whole(content_type: str | None, options: _Values) -> SendOptions:
        """Return the options of a message, all but its headers."""
        return cast("SendOptions", options if content_type is None else {"content_type": content_type, **options})

    def _head(self, destination: str, kind: type, content_type: str | None, others: _Values) -> _Head:
        """Return a head, and remember it as the last one of its destination."""
        options = self.whole(content_type, others)
        key = (destination, type(destination), kind, *options.items(), *map(type, options.values()))
        try:
            made = self._heads[key]
        except (KeyError, TypeError):
            made = self._make_head(key, destination, kind, options)
        if type(destination) is str:
            _keep(self._recent, destination, (kind, content_type, others, *made), size=len(made[0]))
        return made

    def _make_head(self, key: tuple[object, ...], destination: str, kind: type, options: SendOptions) -> _Head:
        check_destination(destination)
        check_send_options(options)
        link = self.link
        grammar = link.protocol.grammar
        varying = {name: value for name, value in options.items() if value is not None and name in _VARYING}
        if varying:
            others = cast("SendOptions", {name: value for name, value in options.items() if name not in varying})
            key = (destination, type(destination), kind, *others.items(), *map(type, others.values()))
            made = self._heads.get(key) or self._make_head(key, destination, kind, others)
            head, encode, content_length, (taken, last, whole) = made
            head += encode_lines("SEND", link.dialect.send_headers(varying).items(), grammar=grammar)
            taken = taken.union(link.dialect.headers_of(varying).values())
            return head, encode, content_length, (taken, last, whole)
        encode, content_type = encoding_of(kind, options.get("content_type"))
        fields = headers_of_send(link, destination, content_type, None, options)
        explicit = options.get("content_length")
        made = (
            encode_head("SEND", fields.items(), grammar=grammar),
            encode,
            self._content_length if explicit is None else explicit,
            (frozenset(link.dialect.headers_of(options).values()), dict[str, object](), b""),
        )
        if type(destination) is str and _PLAIN.issuperset(map(type, options.values())):
            _keep(self._heads, key, made, size=len(made[0]))
        return made

    def _with_headers(
        self,
        head: bytes,
        taken: frozenset[str],
        destination: str,
        kind: type,
        headers: Mapping[str, object],
        options: SendOptions,
    ) -> bytes:
        """Return the head with the lines of the caller's headers."""
        lines, known = [head], self._names
        whole: object = taken and not taken.isdisjoint(headers)  # which raises
        for name, value in headers.items():
            start = known.get(name) if type(name) is str else None
            if start is None:
                line = self._first_line(name, value)
                whole = whole or not line
                lines.append(line)
            elif type(value) is str and value.isprintable() and ":" not in value and "\\" not in value:
                lines += start, value.encode(), b"\n"
            else:
                text = header_text(name, value)
                lines.append(encode_lines("SEND", [(name, text)], grammar=self.link.protocol.grammar))
        if whole:
            _, content_type = encoding_of(kind, options.get("content_type"))
            fields = headers_of_send(self.link, destination, content_type, headers, options)
            return encode_head("SEND", fields.items(), grammar=self.link.protocol.grammar)
        return b"".join(lines)

    def _first_line(self, name: str, value: object) -> bytes:
        """Return the line of a header of the caller's; nothing if it replaces a header of the head.

        The name is remembered, unless it needs a check each time.
        """
        fields = user_headers({name: value})
        dialect, grammar = self.link.dialect, self.link.protocol.grammar
        dialect.check_explicit_headers("SEND", fields)
        if name in self._defaults:
            return b""
        line = encode_lines("SEND", fields.items(), grammar=grammar)
        if type(name) is str and not grammar.draft and not dialect.has_pitfall("SEND", name):
            _keep(self._names, name, encode_lines("SEND", [(name, "")], grammar=grammar)[:-1], size=len(name))
        return line


def _keep(cache: dict[_Key, _Made], key: _Key, made: _Made, *, size: int) -> None:
    if size > _MAX_BYTES:
        return
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = made


def headers_of_send(
    link: Link,
    destination: str,
    content_type: str | None,
    headers: Mapping[str, object] | None,
    options: SendOptions,
) -> dict[str, str]:
    """Return the headers of a SEND; raises as `SendEncoder.send` does."""
    dialect = link.dialect
    fields = {"destination": destination, **dialect.defaults("SEND", destination)}
    if content_type is not None:
        fields["content-type"] = content_type
    fields.update(dialect.send_headers(options, headers or ()))
    if headers:
        explicit = user_headers(headers)
        dialect.check_explicit_headers("SEND", explicit)
        fields.update(explicit)
    return fields


def headers_of_subscribe(
    link: Link,
    destination: str,
    ack: str,
    *,
    options: SubscribeOptions,
    headers: Mapping[str, object] | None,
    client_id: str | None,
) -> dict[str, str]:
    """Return the headers of a SUBSCRIBE, without `id`, `destination` and `ack`.

    Raises:
        LocalProtocolError: the frame cannot be encoded.
        ConfigurationError: the broker does not support an option, or one is given twice.
    """
    check_destination(destination)
    explicit = user_headers(headers)
    dialect = link.dialect
    dialect.check_explicit_headers("SUBSCRIBE", explicit)
    option_headers = dialect.subscribe_headers(
        options, destination=destination, ack=ack, client_id=client_id, version=link.version
    )
    for header in explicit.keys() & {"id", "ack", *option_headers}:
        of_header = {"id": "id", "ack": "ack", **{dialect.headers.get(option): option for option in options.asked()}}
        raise ConfigurationError(
            f"{of_header.get(header, 'durable')}= and header {header!r} in headers= are the same for"
            f" {dialect.product}: give one of them"
        )
    return {**dialect.defaults("SUBSCRIBE", destination), **explicit, **option_headers}
