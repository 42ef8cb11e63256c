"""Messages through real brokers, which are the limit there: how near a client comes to a raw socket.

A client sends messages to a queue on one connection and receives them on another, both in one process. The figure is
the time from the first to the last for each message; the ratio is to that of the raw socket in the same round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from benchmarks.rows import LIMIT, Row
from stompy.testing.containers import SOURCES, start_broker
from tests.support.local_brokers import LocalBroker

SOURCES["local"] = LocalBroker
KINDS = {"activemq": "ActiveMQ 6", "rabbitmq4": "RabbitMQ"}
COUNT = 10_000

Measure = Callable[[Row, Mapping[str, Any]], dict[str, Any]]


def row(kind: str) -> Row:
    """Return the row of a kind of broker."""
    title = f"through {KINDS[kind]}, wall time"
    return Row(kind, title, "through", COUNT, LIMIT, {"wall": True}, reference="raw socket")


def address(url: str) -> dict[str, Any]:
    """Return what a client must know of a broker."""
    parts = urlsplit(url)
    known: dict[str, Any] = {"url": url, "host": parts.hostname, "port": parts.port, "vhost": "/"}
    if parts.username:
        known.update(login=unquote(parts.username), passcode=unquote(parts.password or ""))
    return known


def measured(measure: Measure, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield what was measured through each broker.

    Raises:
        BrokerUnavailableError: none of that kind can be had here.
    """
    for kind in kinds:
        with start_broker(kind) as broker:
            yield (one := row(kind)), measure(one, address(broker.url()))
