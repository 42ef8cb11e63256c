"""The snapshot that a broker gives of itself."""

from __future__ import annotations

import dataclasses

import pytest

from stompy.broker.settings import QueueDepth
from tests.broker.conftest import Served


def test_the_snapshot_counts_everything(served: Served) -> None:
    client = served.client()
    served.client()
    client.subscribe("/queue/a", "client-individual", prefetch_count="2")
    client.subscribe("/topic/a", id="t")
    client.send("/queue/a", *"123")
    client.send("/topic/a", "x")
    messages = [client.frame() for _ in range(3)]
    client.nack(messages[0])
    client.sure("BEGIN", {"transaction": "t"})
    stats = served.broker.stats()
    assert stats.queues == {"/queue/a": QueueDepth(ready=1, unacked=2, consumers=1)}
    assert stats.queues["/queue/a"].total == 3
    assert (stats.sessions, stats.sessions_total, stats.subscriptions) == (2, 2, 2)
    assert (stats.topics, stats.transactions) == ({"/topic/a": 1}, 1)
    assert stats.messages_out == 4
    assert (stats.redelivered, stats.dead_lettered, stats.discarded, stats.errors) == (1, 0, 0, 0)


def test_the_snapshot_does_not_change(served: Served) -> None:
    stats = served.broker.stats()
    served.client().send("/queue/a", "x")
    assert stats.queues == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.sessions = 7  # type: ignore[misc]
