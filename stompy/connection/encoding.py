"""Encoding SEND and SUBSCRIBE in the broker's dialect. Any thread.

The head of a SEND is the same for all messages of one class of body and the same options to one destination, so it is
checked and encoded once per link and cached, and so are the names of the caller's headers. The caller's headers, the
receipt, the transaction and the body's length follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from stompy.connection.codec import (
    check_destination,
    check_headers,
    encode_body,
    encoding_of,
    header_text,
    user_headers,
)
from stompy.dialects.options import BROKER_OPTIONS, SendOptions, SubscribeOptions, check_send_options
from stompy.errors import ConfigurationError
from stompy.frames.encoder import LARGE_BODY, Encoded, encode_head, encode_lines, finish
from stompy.link.link import Link

_MAX_CACHED = 1_000
"""Cached heads, and names of headers, per link; above this the cache is cleared."""

_MAX_BYTES = 1_000
"""Longer heads and names are not cached."""

_VARYING = frozenset(name for name, option in BROKER_OPTIONS.items() if option.varies)

_PLAIN = frozenset((str, int, bool, float, type(None)))
"""Classes whose equal values of the same class are the same text; a subclass may define equality otherwise."""

_Head = tuple[bytes, Callable[[Any], bytes], bool, frozenset[str]]
"""The first lines of a SEND, the encoder of its body, whether it has a content length, the headers set by options."""


_Key = TypeVar("_Key")
_Made = TypeVar("_Made")


class SendEncoder:
    """Encodes the SEND frames of one link.

    Args:
        link: determines the version and the dialect.
        content_length: whether to add that header, by default.
    """

    def __init__(self, link: Link, *, content_length: bool = True) -> None:
        self.link = link
        self._content_length = content_length
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
        headers: Mapping[str, object] | None,
        options: SendOptions,
        extra: bytes = b"",
    ) -> Encoded:
        """Return a SEND frame; the arguments are those of `Connection.send`.

        Args:
            destination: see above.
            body: see above.
            headers: the option of this name.
            options: the others.
            extra: header lines for a receipt or a transaction.

        Raises:
            LocalProtocolError: the frame cannot be encoded.
            ConfigurationError: an option is wrong, given twice, or not supported by the broker; or a body seems to be
                in the place of the destination.
        """
        kind = type(body)
        key: tuple[object, ...] = destination, type(destination), kind
        if options:
            key = (*key, *options.items(), *map(type, options.values()))
        try:
            head, encode, content_length, taken = self._heads[key]
        except (KeyError, TypeError):
            head, encode, content_length, taken = self._make_head(key, destination, kind, options)
        if headers:
            try:
                head = self._with_headers(head, taken, destination, kind, headers, options)
            except (AttributeError, TypeError):
                check_headers(headers)
                raise
        try:
            data = encode(body)
        except UnicodeError:
            data, _ = encode_body(body, options.get("content_type"))  # raises the proper error
        if data and content_length and len(data) < LARGE_BODY:
            return b"%b%bcontent-length:%d\n\n%b\0" % (head, extra, len(data), data)
        if not data and self.link.dialect.slashed and not destination.startswith("/"):
            raise ConfigurationError(
                f"an empty message to {destination!r}: send takes the destination first, and those of"
                f" {self.link.dialect.product} begin with a slash: send('/queue/NAME', {destination!r})"
            )
        return finish(head + extra, data, grammar=self.link.protocol.grammar, content_length=content_length)

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
            head, encode, content_length, taken = made
            head += encode_lines("SEND", link.dialect.send_headers(varying).items(), grammar=grammar)
            return head, encode, content_length, taken.union(link.dialect.headers_of(varying).values())
        encode, content_type = encoding_of(kind, options.get("content_type"))
        fields = headers_of_send(link, destination, content_type, None, options)
        explicit = options.get("content_length")
        made = (
            encode_head("SEND", fields.items(), grammar=grammar),
            encode,
            self._content_length if explicit is None else explicit,
            frozenset(link.dialect.headers_of(options).values()),
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
        """Return the line of a header of the caller's; nothing for one that replaces a header of the head.

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
