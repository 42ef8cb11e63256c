"""Heartbeats: ours kept, theirs kept, ours missed; theirs missed is among the outages."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import stompy
from tests.scenarios.acts import SOON
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.support.candidates import Candidate
from tests.support.peer import until

PACE: dict[str, Any] = {"heartbeat": (2.0, 0.5), "timeouts": stompy.Timeouts(heartbeat_tolerance=2 * SOON)}
"""Of ours, ActiveMQ waits for none that is late: 0.8 s are left for a thread of a busy machine. Theirs may be late."""

pytestmark = [pytest.mark.broker, pytest.mark.scenario("heartbeats")]


def test_what_is_agreed_on(raw: Raw, candidate: Candidate, expect: Expect) -> None:
    frames = []
    for asked in ("100,100", "5000,0", "0,5000"):
        client = raw(connected=False)
        frames.append(client.connect(**candidate.connect_headers, heart_beat=asked))
    agreed = (frame.headers.get("heart-beat", "none") for frame in frames)
    expect("heart-beat-agreed", " ".join(agreed), *frames)


@pytest.mark.versions("1.1", "1.2")
def test_beats_of_both_sides_keep_a_silent_connection(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect(**PACE)
    ours, theirs = connection.heartbeat
    assert ours > 0
    assert theirs > 0
    start = connection.stats()
    # Four beats are more silence than any broker tolerates.
    until(lambda: connection.stats().bytes_received >= start.bytes_received + 5, "beats of the broker")
    until(lambda: connection.stats().bytes_sent >= start.bytes_sent + 4, "beats of ours")
    assert connection.stats().frames_received == start.frames_received
    connection.send(queue, "alive", confirm=True)
    expect("heartbeats-kept", True)


@pytest.mark.versions("1.0")
def test_stomp_1_0_has_no_beats(connect: Connect) -> None:
    assert connect(heartbeat=(0.1, 0.1)).heartbeat == (0.0, 0.0)


@pytest.mark.once
def test_a_client_that_misses_its_beats_is_dropped(raw: Raw, candidate: Candidate, expect: Expect) -> None:
    client = raw(connected=False)
    client.connect(**candidate.connect_headers, heart_beat="200,0")
    frames, _ = client.until(lambda frame: False)
    expect("heart-beat-missed", " ".join([*(frame.command for frame in frames), "closed"]), *frames)


@pytest.mark.once
def test_a_busy_handler_does_not_keep_beats_back(connect: Connect, queue: str) -> None:
    connection = connect(**PACE)
    running, may_end = threading.Event(), threading.Event()

    def work(_: stompy.Message) -> None:
        running.set()
        assert may_end.wait(SOON)

    connection.subscribe(queue, work)
    connection.send(queue, "x", confirm=True)
    assert running.wait(SOON)
    start = connection.stats()
    until(lambda: connection.stats().bytes_received >= start.bytes_received + 5, "beats of the broker")
    until(lambda: connection.stats().bytes_sent >= start.bytes_sent + 4, "beats of ours")
    may_end.set()
    connection.send(queue, "alive", confirm=True)
