"""What a SEND, SUBSCRIBE or UNSUBSCRIBE says: the caller's words, checked, in the broker's dialect. Any thread.

The head of a SEND is the same for each message of one kind to one destination, so it is checked and encoded once for
each link and kept; the caller's further headers, the receipt, the transaction and the length of the body follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stompy.connection.codec import OWN_HEADERS, encode_body, encoding_of, header_texts, user_headers
from stompy.dialects.options import SendOptions, SubscribeOptions
from stompy.errors import LocalProtocolError
from stompy.frames.encoder import LARGE_BODY, Encoded, encode_head, encode_lines, finish
from stompy.link.link import Link

_MOST_HEADS = 1_000
"""Heads that are kept for a link; a program that sends to more destinations begins anew."""

Head = tuple[bytes, Callable[[Any], bytes]]
"""The first lines of a SEND, and what encodes its body."""

_LONGEST_HEAD = 1_000
"""Bytes of a head that is kept."""

_NOTHING: Mapping[str, object] = {}


class SendEncoder:
    """Composes the SEND frames of one link.

    Args:
        link: where they go; the frames are in its version and its broker's dialect.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._heads: dict[tuple[str, str | None, type], Head] = {}
        dialect = link.dialect
        self._set_apart = OWN_HEADERS.union(
            (pitfall.header for pitfall in dialect.pitfalls if pitfall.command == "SEND"),
            (name for name, _ in dialect.routes.get("SEND", {}).values()),
        )
        """Headers that the caller may not give, or that something else depends on."""

    def send(
        self,
        destination: str,
        body: object,
        content_type: str | None,
        headers: Mapping[str, object] | None,
        options: SendOptions | None,
        content_length: bool,
        more: bytes = b"",
    ) -> Encoded:
        """Return a SEND; user headers come behind the protocol's own.

        Args:
            destination: as `Connection.send`, and so on to `options`.
            body: likewise.
            content_type: likewise.
            headers: likewise.
            options: likewise.
            content_length: whether that header is wanted.
            more: header lines for a receipt or a transaction.

        Raises:
            LocalProtocolError: the frame cannot be written.
            ConfigurationError: the broker has no way to do what was asked.
        """
        key = destination, content_type, type(body)
        try:
            head, encode = self._heads[key]
        except (KeyError, TypeError):
            head, encode = self._make_head(*key)
        if headers or options is not None:
            head = self._lengthen(head, key, headers or _NOTHING, options)
        try:
            data = encode(body)
        except UnicodeError:
            data, _ = encode_body(body, content_type)  # which says what is wrong
        if data and content_length and len(data) < LARGE_BODY:
            return b"%b%bcontent-length:%d\n\n%b\0" % (head, more, len(data), data)
        return finish(head + more, data, grammar=self.link.protocol.grammar, content_length=content_length)

    def _make_head(self, destination: str, content_type: str | None, kind: type) -> Head:
        check_destination(destination)
        encode, content_type_sent = encoding_of(kind, content_type)
        fields = headers_of_send(self.link, destination, content_type_sent, None, None)
        made = encode_head("SEND", fields.items(), grammar=self.link.protocol.grammar), encode
        if len(made[0]) > _LONGEST_HEAD:
            return made
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads[destination, content_type, kind] = made
        return made

    def _lengthen(
        self,
        head: bytes,
        key: tuple[str, str | None, type],
        headers: Mapping[str, object],
        options: SendOptions | None,
    ) -> bytes:
        """Return a head with further headers, of which one that is set apart needs all of it to be made anew."""
        link = self.link
        asked = {} if options is None else link.dialect.send_headers(options)
        if self._set_apart.isdisjoint(headers) and asked.keys().isdisjoint(headers):
            lines = [*header_texts(headers), *asked.items()]
            return head + encode_lines("SEND", lines, grammar=link.protocol.grammar)
        destination, content_type, kind = key
        _, content_type = encoding_of(kind, content_type)
        fields = headers_of_send(link, destination, content_type, headers, options)
        return encode_head("SEND", fields.items(), grammar=link.protocol.grammar)


def headers_of_send(
    link: Link,
    destination: str,
    content_type: str | None,
    headers: Mapping[str, object] | None,
    options: SendOptions | None,
) -> dict[str, str]:
    """Return the headers of a SEND; raises as `SendEncoder.send` does."""
    dialect = link.dialect
    fields = {"destination": destination, **dialect.defaults("SEND", destination)}
    if content_type is not None:
        fields["content-type"] = content_type
    if headers:
        fields.update(user_headers(headers))
        dialect.check_explicit_headers("SEND", fields)
    if options is not None:
        fields.update(dialect.send_headers(options))
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
    """Return what a SUBSCRIBE says beyond the specification.

    Raises:
        LocalProtocolError: the frame cannot be written.
        ConfigurationError: the broker has no way to do what was asked.
    """
    check_destination(destination)
    by_hand = user_headers(headers)
    dialect = link.dialect
    dialect.check_explicit_headers("SUBSCRIBE", by_hand)
    asked = dialect.subscribe_headers(
        options, destination=destination, ack=ack, client_id=client_id, version=link.version
    )
    return {**dialect.defaults("SUBSCRIBE", destination), **by_hand, **asked}


def check_destination(destination: object) -> None:
    """Refuse what cannot be a destination.

    Raises:
        LocalProtocolError: not text, or empty.
    """
    if not isinstance(destination, str) or not destination:
        raise LocalProtocolError(f"a destination is text of at least one character, not {destination!r}")
