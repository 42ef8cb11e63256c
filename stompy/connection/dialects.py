"""What differs from broker to broker, chosen by the `server` header of CONNECTED."""

from __future__ import annotations

import time
from dataclasses import dataclass

from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency

DEDUPE_HEADER = "stompy-dedupe-id"
"""SEND header that is the same each time a message is sent again, for consumers to know a duplicate by."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The headers by which one broker is asked for what the specification leaves open; `None` where it cannot do it.

    Attributes:
        product: the broker's name.
        prefetch: SUBSCRIBE header that bounds unacknowledged messages.
        persistent: SEND header, `true` or `false`.
        transient: whether `persistent:false` may be sent (RabbitMQ makes a queue of another kind of it).
        priority: SEND header.
        expires: SEND header with the moment of expiry in milliseconds since the epoch.
        expires_in: SEND header with the time to live in milliseconds.
        leniency: what it needs to be borne with.
        subscribes_temporary: a temporary queue is subscribed to (RabbitMQ does it by itself).
        dedupe: SEND header by whose value the broker itself drops a duplicate.
    """

    product: str
    prefetch: str | None = None
    persistent: str | None = None
    transient: bool = True
    priority: str | None = None
    expires: str | None = None
    expires_in: str | None = None
    leniency: Leniency = Leniency.NONE
    subscribes_temporary: bool = True
    dedupe: str | None = None

    def dedupe_headers(self, identity: str) -> dict[str, str]:
        """Return the SEND headers of a message that may have to be sent again."""
        return {name: identity for name in (DEDUPE_HEADER, self.dedupe) if name is not None}

    def prefetch_headers(self, count: int) -> dict[str, str]:
        """Return the SUBSCRIBE header for at most `count` unacknowledged messages.

        Raises:
            ConfigurationError: not 1 or more, or the broker has no setting that counts messages.
        """
        if not _is_count(count) or count < 1:
            raise ConfigurationError(f"prefetch must be a whole number of 1 or more, not {count!r}")
        return {self._need(self.prefetch, "a prefetch by messages"): str(count)}

    def send_headers(
        self, *, persistent: bool | None = None, priority: int | None = None, expires: float | None = None
    ) -> dict[str, str]:
        """Return the SEND headers for what was asked.

        Args:
            persistent: whether the message survives a restart of the broker.
            priority: 0 to 9.
            expires: seconds to live.

        Raises:
            ConfigurationError: a value out of range, or the broker cannot do it.
        """
        fields = {}
        if persistent is not None:
            name = self._need(self.persistent, "persistence by message")
            if persistent or self.transient:
                fields[name] = "true" if persistent else "false"
        if priority is not None:
            if not _is_count(priority) or not 0 <= priority <= 9:
                raise ConfigurationError(f"priority must be a whole number from 0 to 9, not {priority!r}")
            fields[self._need(self.priority, "priorities")] = str(priority)
        if expires is not None:
            fields.update(self._expiry(expires))
        return fields

    def _expiry(self, seconds: float) -> dict[str, str]:
        if not 0 < seconds < 1e9:
            raise ConfigurationError(f"expires must be a positive number of seconds, not {seconds!r}")
        if self.expires_in is not None:
            return {self.expires_in: str(max(1, round(seconds * 1000)))}
        # The broker compares with its own clock, so this is the one place where ours is the wall clock.
        return {self._need(self.expires, "expiry"): str(round((time.time() + seconds) * 1000))}

    def _need(self, header: str | None, what: str) -> str:
        if header is None:
            raise ConfigurationError(f"stompy knows no way to ask broker {self.product!r} for {what}; see headers=")
        return header


_ACTIVEMQ = Dialect(
    "ActiveMQ", prefetch="activemq.prefetchSize", persistent="persistent", priority="priority", expires="expires"
)
_ARTEMIS = Dialect("Artemis", persistent="persistent", priority="priority", expires="expires", dedupe="_AMQ_DUPL_ID")
_RABBITMQ = Dialect(
    "RabbitMQ",
    prefetch="prefetch-count",
    persistent="persistent",
    transient=False,
    priority="priority",
    expires_in="expiration",
    # It escapes in every version, also what the version has no escape for, and passes on octets that are not UTF-8.
    leniency=Leniency.ESCAPES_IN_1_0 | Leniency.CR_ESCAPE_IN_1_1 | Leniency.INVALID_UTF8,
    subscribes_temporary=False,
)
_EMBEDDED = Dialect("stompy-broker", prefetch="prefetch-count")


def dialect_of(server: str | None) -> Dialect:
    """Return the dialect of the broker that calls itself `server`; for an unknown one, a dialect without extras."""
    name = (server or "").lower()
    if "artemis" in name:
        return _ARTEMIS
    for dialect in (_ACTIVEMQ, _RABBITMQ, _EMBEDDED):
        if name.startswith(dialect.product.lower()):
            return dialect
    return Dialect(server or "unknown")


def leniency_of(server: str | None) -> Leniency:
    """Return what the broker that calls itself `server` needs to be borne with."""
    return dialect_of(server).leniency


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
