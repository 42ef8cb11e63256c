"""Kill -9 of a program at random moments in a handler, a loop or a block: no message that it received is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from tests.scenarios.killed_consumer import QUEUE, WAYS
from tests.support.peer import WITHIN, until
from tests.support.seed import SEED_SETTING
from tests.support.seed import chance as chance_of

TOP = Path(__file__).parent.parent.parent
MESSAGES = 3_000
"""For each life: more than a program handles in it on most machines."""
LONGEST_LIFE = 0.25
"""Seconds from the first message."""


def live_and_die(way: str, url: str, path: Path, chance: random.Random) -> None:
    """Run the program, and kill it at a moment of chance."""
    command = [sys.executable, "-m", "tests.scenarios.killed_consumer", way, url, str(chance.random()), str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)}
    ) as victim:
        assert victim.stdout is not None
        try:
            first = victim.stdout.readline()
            time.sleep(chance.uniform(0, LONGEST_LIFE))  # the moment of chance, nothing is waited for
        finally:
            victim.send_signal(signal.SIGKILL)
        assert first == b"first\n"


def rest_of(broker: Broker) -> set[str]:
    """Return what is still in the queue, or a dead letter."""
    until(lambda: broker.stats().sessions == 0)
    found: set[str] = set()
    with stompy.connect(broker.url) as conn:
        for queue in (QUEUE, "/queue/DLQ"):
            count = broker.depth(queue)
            subscription = conn.subscribe(queue, ack="auto")
            found.update(subscription.receive(timeout=WITHIN).text for _ in range(count))
    return found


def kill_often(way: str, path: Path, times: int) -> None:
    chance = chance_of(f"kills of {way}")
    with Broker() as broker:
        with stompy.connect(broker.url) as conn, conn.batch():
            for number in range(times * MESSAGES):
                conn.send(QUEUE, str(number))
        for _ in range(times):
            live_and_die(way, broker.url, path, chance)
            until(lambda: broker.stats().sessions == 0)
            if not broker.depth(QUEUE):
                break
        left = rest_of(broker)
    handled = set(path.read_text().split())
    assert handled, "no program lived long enough to handle anything"
    lost = {str(number) for number in range(times * MESSAGES)} - handled - left
    assert not lost, f"{len(lost)} messages are lost, such as {min(lost)} ({SEED_SETTING})"


@pytest.mark.parametrize("way", [way.__name__ for way in WAYS])
def test_nothing_that_was_received_is_lost_by_a_kill(tmp_path: Path, way: str) -> None:
    kill_often(way, tmp_path / "handled", 3)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", [way.__name__ for way in WAYS])
def test_nothing_that_was_received_is_lost_by_fifty_kills(tmp_path: Path, way: str) -> None:
    kill_often(way, tmp_path / "handled", 50)
