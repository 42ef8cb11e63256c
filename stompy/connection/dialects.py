"""Headers that differ from broker to broker, chosen by the `server` header of CONNECTED."""

from __future__ import annotations

from stompy.errors import ConfigurationError

_PREFETCH = {
    "activemq": "activemq.prefetchSize",
    "rabbitmq": "prefetch-count",
    "stompy": "prefetch-count",
}


def prefetch_headers(server: str | None, count: int) -> dict[str, str]:
    """Return the SUBSCRIBE header that bounds unacknowledged messages.

    Args:
        server: the `server` header of CONNECTED.
        count: messages, at least 1.

    Raises:
        ConfigurationError: not a positive number, or the broker has no such setting that counts messages.
    """
    if not _is_count(count):
        raise ConfigurationError(f"prefetch must be a whole number of 1 or more, not {count!r}")
    product = (server or "").split("/", 1)[0].split(" ", 1)[0].lower()
    if product not in _PREFETCH:
        raise ConfigurationError(
            f"stompy does not know how broker {server!r} bounds prefetch; give its own header in headers="
        )
    return {_PREFETCH[product]: str(count)}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
