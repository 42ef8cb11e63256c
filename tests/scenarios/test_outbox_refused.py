"""Destinations that the broker refuses, among others: each has its order and its refusals for itself."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.testing.brokers import RunningBroker
from stompy.testing.containers import broker_or_skip
from tests.support.needs import each
from tests.support.peer import until
from tests.support.seed import SEED_SETTING, chance

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

TOP = Path(__file__).parent.parent.parent
GOOD = [f"/queue/outbox-{number}" for number in range(3)]
NEVER = "/nonsense/x"
"""No RabbitMQ ever takes it, and it says so."""
NOT_NOW = "/exchange/nope/x"
"""Somebody might declare the exchange at any time."""
WITHIN = 60.0


@pytest.fixture(scope="module", params=each(("like-rabbitmq", "rabbitmq3", "rabbitmq4")))
def refusing(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    with broker_or_skip(request.param) as broker:
        yield broker


def received(url: str, queue: str, awaited: list[str]) -> list[str]:
    """Take the messages of a queue until those have come that are awaited; return them in their order."""
    found: dict[str, None] = {}
    with stompy.connect(url) as conn:
        subscription = conn.subscribe(queue)
        while not found.keys() >= set(awaited):
            found[subscription.receive(timeout=WITHIN).text] = None
        with contextlib.suppress(stompy.ReceiveTimeoutError):  # copies of the last ones
            while True:
                subscription.receive(timeout=0.2)
    return list(found)


@pytest.mark.parametrize(("refused", "most"), [(NEVER, 6), (NOT_NOW, 12)])
def test_a_message_does_not_wait_for_those_of_a_refused_destination(
    refusing: RunningBroker, refused: str, most: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stompy.outbox")
    with stompy.Outbox(tmp_path / "a", refusing.url()) as outbox:
        for number in range(100):
            outbox.put(refused, str(number))
        outbox.put(GOOD[0], "innocent")
        assert received(refusing.url(), GOOD[0], ["innocent"]) == ["innocent"]
        sessions = sum("forwarding stopped" in record.getMessage() for record in caplog.records)
        assert sessions <= most
        if refused == NEVER:
            outbox.flush(timeout=WITHIN)
            assert [letter.body for letter in outbox.dead_letters()] == [str(number).encode() for number in range(100)]
            assert sum("forwarding stopped" in record.getMessage() for record in caplog.records) <= most


def test_a_destination_that_is_taken_again_has_lost_and_reordered_nothing(tmp_path: Path) -> None:
    with (
        Broker(limits=BrokerLimits(max_queue_messages=10)) as broker,
        stompy.connect(broker.url) as conn,
        stompy.Outbox(
            tmp_path / "a", broker.url, attempts=None, backoff=stompy.Backoff(first=0.01, longest=0.1)
        ) as outbox,
    ):
        for number in range(50):
            outbox.put("/queue/full", str(number))
            outbox.put(f"/queue/other-{number % 7}", str(number))
        until(lambda: outbox.stats().waiting == 40)  # the full queue's; the others have not waited for it
        subscription = conn.subscribe("/queue/full")
        outbox.flush(timeout=WITHIN)
        found: dict[str, None] = {}
        while len(found) < 50:
            found[subscription.receive(timeout=WITHIN).text] = None
        assert outbox.dead_letters() == []
    assert list(found) == [str(number) for number in range(50)]


VICTIM = textwrap.dedent(
    """
    import random, sys
    import stompy

    path, url, seed, first, last = sys.argv[1:6]
    chance = random.Random(seed)
    with stompy.Outbox(path, url, backoff=stompy.Backoff(first=0.01, longest=0.05), attempts=2, batch=20) as outbox:
        for number in range(int(first), int(last)):
            destination = chance.choice(sys.argv[6:])
            print(destination, number, flush=True)
            outbox.put(destination, str(number))
            print("done", flush=True)
        outbox.flush(timeout=150)
    """
)


def life(arguments: list[str], *, puts: int | None) -> list[str]:
    """Run a victim, kill it after so many puts, or let it end; return the lines that it wrote."""
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    ) as victim:
        assert victim.stdout is not None
        assert victim.stderr is not None
        lines = []
        try:
            for line in victim.stdout:
                if not line.endswith("\n"):
                    break  # it was killed while it wrote this one
                lines.append(line)
                if lines.count("done\n") == puts:
                    victim.send_signal(signal.SIGKILL)
            error = victim.stderr.read()
        finally:
            victim.kill()
    assert victim.returncode == (0 if puts is None else -signal.SIGKILL), error
    return lines


def test_between_kills_each_destination_keeps_its_messages_and_their_order(
    refusing: RunningBroker, tmp_path: Path
) -> None:
    drawn = chance("refused destinations", refusing.kind)
    destinations = [*GOOD, NEVER, NOT_NOW, "/queue/", "/exchange/nope/y"]
    path = str(tmp_path / "a")
    put: dict[str, list[str]] = {name: [] for name in destinations}
    unsure: set[str] = set()
    for turn in range(5):
        puts = drawn.randrange(1, 100) if turn < 4 else None
        first = turn * 1_000
        arguments = [path, refusing.url(), str(drawn.random()), str(first), str(first + (1_000 if puts else 50))]
        lines = life([*arguments, *destinations], puts=puts)
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            if line != "done\n":
                name, number = line.split()
                put[name].append(number)
                unsure |= {number} if after != "done\n" else set()
    with stompy.Outbox(path, "stomp://127.0.0.1:1") as outbox:
        dead = outbox.dead_letters()
        assert outbox.stats().waiting == 0
    for name in destinations:
        came = [letter.body.decode() for letter in dead if letter.destination == name]
        sure = [number for number in put[name] if number not in unsure]
        if name in GOOD:
            assert came == [], SEED_SETTING
            came = received(refusing.url(), name, sure)
        assert [number for number in came if number not in unsure] == sure, SEED_SETTING
