"""A message as `stompy subscribe` prints it: its body, a JSON object that `stompy send` reads back, or a template."""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from collections.abc import Callable
from typing import Any

from stompy.cli.exits import Exit, Failure
from stompy.connection.message import DELIVERY_HEADERS, Message
from stompy.printable import printable_bytes

_FIELD = re.compile(rb"\{([^{}]+)\}")


def as_text(message: Message) -> bytes:
    """Return the bytes of the body and LF."""
    return message.body + b"\n"


def as_json(message: Message) -> bytes:
    """Return an object with `destination`, `headers`, and `body` or `body_base64`, as ASCII with LF.

    `body` is the text that the bytes are in UTF-8, of any declared type, so that encoding it again
    gives the same bytes; other bodies are in `body_base64`. Of a repeated header the first value counts (STOMP 1.2,
    Repeated Header Entries).
    """
    record: dict[str, object] = {"destination": message.destination, "headers": dict(message.headers)}
    try:
        record["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        record["body_base64"] = base64.b64encode(message.body).decode("ascii")
    # DEL is the one control character that JSON leaves alone.
    return json.dumps(record).replace("\x7f", "\\u007f").encode("ascii") + b"\n"


def of_json(line: bytes, number: int) -> tuple[bytes, str | None, dict[str, str]]:
    """Return the body, the content type and the headers in a line as `as_json` writes it.

    Headers that belong to the delivery, such as `message-id`, are left out; a persistent message stays one.

    Raises:
        Failure: it is no such object; names the line.
    """
    try:
        record: Any = json.loads(line)
        headers = {str(name): str(value) for name, value in record.get("headers", {}).items()}
        body = base64.b64decode(record["body_base64"], validate=True) if "body_base64" in record else record["body"]
        if not isinstance(body, (str, bytes)):
            body = json.dumps(body)
            headers.setdefault("content-type", "application/json")
    except (ValueError, binascii.Error, AttributeError, KeyError, TypeError) as error:
        raise Failure(f"line {number} is no JSON object with a 'body' as --format json prints it", Exit.DATA) from error
    own = {
        name: value
        for name, value in headers.items()
        if name not in DELIVERY_HEADERS or (name, value) == ("persistent", "true")
    }
    return body.encode() if isinstance(body, str) else body, headers.get("content-type"), own


def template(text: str) -> Callable[[Message], bytes]:
    """Return a function that formats messages by a template, and adds LF.

    It replaces `{body}`, `{destination}` and `{NAME}` of a header. A header that a message does not have is empty.
    """

    def render(message: Message) -> bytes:
        def value(field: re.Match[bytes]) -> bytes:
            name = field[1].decode()
            if name == "body":
                return message.body
            return message.headers.get(name, "").encode("utf-8", "backslashreplace")

        return _FIELD.sub(value, text.encode()) + b"\n"

    return render


def shown(render: Callable[[Message], bytes]) -> Callable[[Message], bytes]:
    """Return the same for a terminal, with control characters escaped."""

    def escaped(message: Message) -> bytes:
        encoding = sys.stdout.encoding or "utf-8"
        text = printable_bytes(render(message).removesuffix(b"\n"))
        return text.encode(encoding, "backslashreplace") + b"\n"

    return escaped


FORMATS: dict[str, Callable[[Message], bytes]] = {"text": as_text, "json": as_json}


def format_named(text: str) -> Callable[[Message], bytes]:
    """Return the format for the argument of `--format`.

    Raises:
        ValueError: it is neither a name nor a template.
    """
    if text not in FORMATS and not _FIELD.search(text.encode()):
        raise ValueError(text)
    return FORMATS.get(text) or template(text)
