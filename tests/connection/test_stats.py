"""What a connection counts."""

from __future__ import annotations

import dataclasses

import pytest

from stompy.connection.connection import ConnectionStats
from tests.connection.conftest import Talking
from tests.support.peer import until


def test_it_counts_frames_bytes_and_what_waits(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    before = talk.conn.stats()
    assert (before.subscriptions, before.queued_messages, before.receipts_pending) == (1, 0, 0)
    talk.conn.send_async("/queue/a", b"xyz")
    talk.peer.deliver(b"12345", b"678", subscription=subscription.id)
    talk.peer.deliver(b"nobody's", subscription="unknown")
    until(lambda: talk.conn.stats().unrouted == 1)
    after = talk.conn.stats()
    assert after.frames_sent == before.frames_sent + 1
    assert after.bytes_sent > before.bytes_sent + 3
    assert after.frames_received == before.frames_received + 3
    assert after.bytes_received > before.bytes_received + 8
    assert (after.queued_messages, after.receipts_pending) == (2, 1)
    assert after.queued_bytes > 8 + 2 * len("destination:/queue/a")
    assert (after.reading_paused, after.times_paused, after.reconnects, after.late_replies) == (False, 0, 0, 0)
    assert after.silent_for >= 0
    first = subscription.receive()
    assert talk.conn.stats().queued_bytes == after.queued_bytes - first.size


def test_it_still_answers_after_the_end(talking: Talking) -> None:
    talk = talking()
    talk.close()
    assert isinstance(talk.conn.stats(), ConnectionStats)


def test_it_is_a_value(talking: Talking) -> None:
    stats = talking().conn.stats()
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.unrouted = 5  # type: ignore[misc]
