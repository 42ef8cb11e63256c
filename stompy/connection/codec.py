"""Encoding and decoding of bodies and header values (STOMP 1.2, Header content-type)."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stompy.errors import BodyDecodeError, ConfigurationError, LocalProtocolError

Body = str | bytes | bytearray | memoryview | bool | int | float | Mapping[str, object] | list[Any] | tuple[Any, ...]
"""Text, bytes, or a value to encode as JSON, in which mappings must be `dict`."""

TEXT_TYPE = "text/plain;charset=utf-8"
JSON_TYPE = "application/json"

_NO_CHARSETS = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"))
"""Python codecs that are not charsets. The first two take hours for a long body, and the sender chooses."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

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
        charset = (charset_of(content_type) if content_type else None) or "utf-8"
        utf8 = charset.lower() in ("utf-8", "utf8")
        encode = str.encode if utf8 else partial(_encode_text, charset=charset)
        return encode, _with_charset(content_type or TEXT_TYPE)
    if kind is type(None):
        raise LocalProtocolError(
            "a body cannot be None: send b'' for an empty body, or 'null' with content_type='application/json' for "
            "JSON's null"
        )
    content_type = content_type or JSON_TYPE
    return partial(_encode_json, charset=charset_of(content_type) or "utf-8"), content_type


def _encode_json(body: object, charset: str) -> bytes:
    try:
        text = body if isinstance(body, str) else _JSON.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(
            f"a body of {type(body).__name__} cannot be encoded as JSON: {error}; send bytes, text or values of JSON"
        ) from None
    return _encode_text(text, charset)


def _with_charset(content_type: str) -> str:
    # Receivers treat a type other than text as binary unless it has a charset.
    return content_type if charset_of(content_type) is not None else content_type + ";charset=utf-8"


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
    try:
        known = codecs.lookup(charset).name not in _NO_CHARSETS
    except (LookupError, ValueError):  # such as a name with a null byte
        known = False
    if not known:
        raise _unknown_charset(charset, content_type, body)
    try:
        return body.decode(charset)
    except LookupError:  # a codec that is not for text
        raise _unknown_charset(charset, content_type, body) from None
    except UnicodeError as error:
        raise BodyDecodeError(f"the body is not valid {charset}: {error}", body=body) from None


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
        if codecs.lookup(charset).name in _NO_CHARSETS:
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
    return dict(header_texts(headers))


def check_headers(headers: object) -> None:
    """Check that headers are a mapping; the error does not show them.

    Raises:
        ConfigurationError: they are not.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError(
            f"headers must be a mapping, such as {{'type': 'order'}}, not a {type(headers).__name__}"
        )


def header_texts(headers: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return names and values as text; see `user_headers`."""
    return [
        (name, value if isinstance(value, str) and isinstance(name, str) else header_text(name, value))
        for name, value in headers.items()
    ]


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
