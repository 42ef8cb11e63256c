"""What SEND, SUBSCRIBE and UNSUBSCRIBE say: the caller's words, checked, in the broker's dialect. Any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stompy.connection.codec import encode_body, user_headers
from stompy.connection.dialects.dialect import Dialect
from stompy.connection.dialects.options import SendOptions, SubscribeOptions
from stompy.connection.subscription import Subscription
from stompy.errors import LocalProtocolError
from stompy.frames.version import Version


class Speaking(Protocol):
    """The connection's core, as far as its broker's ways go."""

    @property
    def dialect(self) -> Dialect:
        """The broker's ways."""
        ...

    @property
    def version(self) -> Version:
        """The version spoken."""
        ...

    @property
    def client_id(self) -> str | None:
        """Who the broker was told that we are."""
        ...


class Composer:
    """Composes the frames of one connection.

    Args:
        core: knows the dialect.
    """

    def __init__(self, core: Speaking) -> None:
        self._core = core

    def send(
        self,
        destination: str,
        body: object,
        *,
        content_type: str | None,
        headers: Mapping[str, object] | None,
        options: SendOptions | None = None,
    ) -> tuple[dict[str, str], bytes]:
        """Return headers and octets of a SEND; user headers come behind the protocol's own.

        Raises:
            LocalProtocolError: the frame cannot be written.
            ConfigurationError: the broker has no way to do what was asked.
        """
        check_destination(destination)
        octets, kind = encode_body(body, content_type)
        dialect = self._core.dialect
        fields = {"destination": destination}
        if dialect.routes:
            fields.update(dialect.defaults("SEND", destination))
        if kind is not None:
            fields["content-type"] = kind
        if headers:
            fields.update(user_headers(headers))
            dialect.check_by_hand("SEND", fields)
        if options is not None:
            fields.update(dialect.send_headers(options))
        return fields, octets

    def subscribe(
        self, destination: str, ack: str, *, options: SubscribeOptions, headers: Mapping[str, object] | None
    ) -> dict[str, str]:
        """Return what a SUBSCRIBE says beyond the specification.

        Raises:
            LocalProtocolError: the frame cannot be written.
            ConfigurationError: the broker has no way to do what was asked.
        """
        check_destination(destination)
        by_hand = user_headers(headers)
        dialect = self._core.dialect
        dialect.check_by_hand("SUBSCRIBE", by_hand)
        asked = dialect.subscribe_headers(
            options, destination=destination, ack=ack, client_id=self._core.client_id, version=self._core.version
        )
        return {**dialect.defaults("SUBSCRIBE", destination), **by_hand, **asked}

    def unsubscribe(self, subscription: Subscription, *, delete: bool) -> list[dict[str, str]]:
        """Return the headers of the UNSUBSCRIBE frames that end a subscription.

        Raises:
            ConfigurationError: there is nothing durable to delete, or no way to.
        """
        core = self._core
        return core.dialect.unsubscribe_headers(
            subscription.id, subscription.options, delete=delete, client_id=core.client_id, version=core.version
        )


def check_destination(destination: object) -> None:
    """Refuse what cannot be a destination.

    Raises:
        LocalProtocolError: not text, or empty.
    """
    if not isinstance(destination, str) or not destination:
        raise LocalProtocolError(f"a destination is text of at least one character, not {destination!r}")
