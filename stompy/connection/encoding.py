"""Encoding SEND and SUBSCRIBE in the broker's dialect. Any thread.

The head of a SEND is the same for all messages of one content type to one destination, so it is checked and encoded
once per link and cached. The caller's headers, the receipt, the transaction and the body's length follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stompy.connection.codec import OWN_HEADERS, encode_body, encoding_of, header_texts, user_headers
from stompy.dialects.options import SendOptions, SubscribeOptions
from stompy.errors import LocalProtocolError
from stompy.frames.encoder import LARGE_BODY, Encoded, encode_head, encode_lines, finish
from stompy.link.link import Link

_MAX_HEADS = 1_000
"""Cached heads per link; above this the cache is cleared."""

Head = tuple[bytes, Callable[[Any], bytes]]
"""The first lines of a SEND, and the encoder of its body."""

_MAX_HEAD_BYTES = 1_000
"""Bytes; longer heads are not cached."""

_NO_HEADERS: Mapping[str, object] = {}


class SendEncoder:
    """Encodes the SEND frames of one link.

    Args:
        link: determines the version and the dialect.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._heads: dict[tuple[str, str | None, type], Head] = {}
        dialect = link.dialect
        self._reserved = OWN_HEADERS.union(
            (pitfall.header for pitfall in dialect.pitfalls if pitfall.command == "SEND"),
            (name for name, _ in dialect.routes.get("SEND", {}).values()),
        )
        """Headers that the caller may not set, or that need the whole head to be encoded anew."""

    def send(
        self,
        destination: str,
        body: object,
        content_type: str | None,
        headers: Mapping[str, object] | None,
        options: SendOptions | None,
        content_length: bool,
        extra: bytes = b"",
    ) -> Encoded:
        """Return a SEND frame; the arguments up to `options` are those of `Connection.send`.

        Args:
            destination: see above.
            body: see above.
            content_type: see above.
            headers: see above.
            options: see above.
            content_length: whether to add that header.
            extra: header lines for a receipt or a transaction.

        Raises:
            LocalProtocolError: the frame cannot be encoded.
            ConfigurationError: the broker does not support an option.
        """
        key = destination, content_type, type(body)
        try:
            head, encode = self._heads[key]
        except (KeyError, TypeError):
            head, encode = self._make_head(*key)
        if headers or options is not None:
            head = self._extend_head(head, key, headers or _NO_HEADERS, options)
        try:
            data = encode(body)
        except UnicodeError:
            data, _ = encode_body(body, content_type)  # raises the proper error
        if data and content_length and len(data) < LARGE_BODY:
            return b"%b%bcontent-length:%d\n\n%b\0" % (head, extra, len(data), data)
        return finish(head + extra, data, grammar=self.link.protocol.grammar, content_length=content_length)

    def _make_head(self, destination: str, content_type: str | None, kind: type) -> Head:
        check_destination(destination)
        encode, content_type_sent = encoding_of(kind, content_type)
        fields = headers_of_send(self.link, destination, content_type_sent, None, None)
        entry = encode_head("SEND", fields.items(), grammar=self.link.protocol.grammar), encode
        if len(entry[0]) > _MAX_HEAD_BYTES:
            return entry
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        self._heads[destination, content_type, kind] = entry
        return entry

    def _extend_head(
        self,
        head: bytes,
        key: tuple[str, str | None, type],
        headers: Mapping[str, object],
        options: SendOptions | None,
    ) -> bytes:
        """Add headers to a head; a reserved header needs the whole head to be encoded anew."""
        link = self.link
        option_headers = {} if options is None else link.dialect.send_headers(options)
        if self._reserved.isdisjoint(headers) and option_headers.keys().isdisjoint(headers):
            lines = [*header_texts(headers), *option_headers.items()]
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
    """Return the headers of a SUBSCRIBE, without `id`, `destination` and `ack`.

    Raises:
        LocalProtocolError: the frame cannot be encoded.
        ConfigurationError: the broker does not support an option.
    """
    check_destination(destination)
    explicit = user_headers(headers)
    dialect = link.dialect
    dialect.check_explicit_headers("SUBSCRIBE", explicit)
    option_headers = dialect.subscribe_headers(
        options, destination=destination, ack=ack, client_id=client_id, version=link.version
    )
    return {**dialect.defaults("SUBSCRIBE", destination), **explicit, **option_headers}


def check_destination(destination: object) -> None:
    """Check that a destination is non-empty text.

    Raises:
        LocalProtocolError: it is not.
    """
    if not isinstance(destination, str) or not destination:
        raise LocalProtocolError(f"a destination must be non-empty text, not {destination!r}")
