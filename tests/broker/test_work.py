"""No client stops the others: the broker's lock is held for a piece of work at a time, whatever one client asks for.

What is done while it is held is counted: by the broker itself and, as that may forget something, by calls of Python.
"""

from __future__ import annotations

import functools
import gc
import queue
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.broker.work import PIECE
from tests.support.peer import WITHIN, until
from tests.support.seed import chance

MANY = 1_200
"""Messages of a queue, which are far more than a piece."""
MANY_MOVED = 10_000
"""So many that a collection would be due dozens of times, if moving made only one object more for each."""
MOST = 4 * PIECE
"""Messages, subscriptions and queues that are looked at in one turn."""
MOST_CALLS = 50_000
"""Calls in one turn; a piece is some hundred messages, with some dozens for each."""


class Calls:
    """Counts the calls of Python that a thread makes while it has the broker's turn."""

    def __init__(self) -> None:
        self.most = self.turns = 0
        self._counts = threading.local()

    def __call__(self, frame: FrameType, event: str, what: Any) -> None:
        counts, name = self._counts, frame.f_code.co_name
        if event == "return" and name == "_take_lock":
            counts.now = 0
        elif getattr(counts, "now", None) is None:
            return
        elif event == "call" and name == "release" and frame.f_back and frame.f_back.f_code.co_name == "_end_turn":
            self.most, self.turns = max(self.most, counts.now), self.turns + 1
            counts.now = None
        elif event == "call":
            counts.now += 1


@pytest.fixture
def calls() -> Iterator[Calls]:
    counted = Calls()
    threading.setprofile(counted)
    sys.setprofile(counted)
    yield counted
    sys.setprofile(None)
    threading.setprofile(None)


@pytest.fixture
def broker(calls: Calls) -> Iterator[Broker]:
    with Broker(heartbeat=(0, 0), limits=BrokerLimits(prefetch=MANY)) as running:
        yield running


def connect(broker: Broker, **options: Any) -> stompy.Connection:
    return stompy.connect(broker.url, heartbeat=(0, 0), **options)


def fill(broker: Broker, name: str, count: int = MANY, **options: Any) -> None:
    with connect(broker) as feeder:
        with feeder.batch():
            for number in range(count):
                feeder.send(name, str(number), **options)
        feeder.send("/queue/filled", b"", confirm=True)


def browse(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a")
    with connect(broker) as one:
        browsers = [one.subscribe("/queue/a", ack="auto", headers={"browser": "true"}) for _ in range(5)]
        for browser in browsers:
            bodies = [browser.receive(timeout=WITHIN).text for _ in range(MANY)]
            assert bodies == [str(number) for number in range(MANY)]
            assert browser.receive(timeout=WITHIN).headers["browser"] == "end"


def select(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a", headers={"kind": "1"})
    with connect(broker) as one:
        for number in range(40):
            selector = f"kind = '{number}' AND kind <> '{draw.random()}'"
            one.subscribe("/queue/a", ack="auto", headers={"selector": selector})
        one.send("/queue/a", b"last", headers={"kind": "1"}, confirm=True)
        until(lambda: not broker.depth("/queue/a"))


def fan_out(broker: Broker, draw: random.Random) -> None:
    with connect(broker) as one, connect(broker) as two:
        got: dict[int, list[str]] = {number: [] for number in range(1_000)}
        heard: queue.SimpleQueue[None] = queue.SimpleQueue()

        def keep(bodies: list[str], message: stompy.Message) -> None:
            bodies.append(message.text)
            heard.put(None)

        for number in got:
            one.subscribe("/topic/a", functools.partial(keep, got[number]), ack="auto")

        def publish(sender: stompy.Connection, name: str) -> None:
            for number in range(3):
                sender.send("/topic/a", f"{name}{number}", confirm=True)

        senders = [threading.Thread(target=publish, args=(sender, name)) for name, sender in (("a", one), ("b", two))]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        for _ in range(6 * len(got)):
            heard.get(timeout=WITHIN)  # looking at all of them again and again would take the time from the others
        assert all(bodies == got[0] for bodies in got.values())  # whoever sent them
        for name in "ab":
            assert [body for body in got[0] if body[0] == name] == [f"{name}{number}" for number in range(3)]


def manage(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a", headers={"original-destination": "/queue/c"})
    assert broker.move("/queue/a", "/queue/b") == MANY
    assert [message.text for message in broker.browse("/queue/b")] == [str(number) for number in range(MANY)]
    assert broker.retry("/queue/b") == MANY
    assert broker.purge("/queue/c") == MANY


def commit(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a")
    with connect(broker) as one:
        messages = one.subscribe("/queue/a", ack="client-individual")
        with one.transaction() as transaction:
            for _ in range(MANY):
                transaction.ack(messages.receive(timeout=WITHIN))
            for number in range(MANY):
                transaction.send("/queue/b", str(number))
        until(lambda: broker.depth("/queue/b") == MANY)
        assert not broker.stats().queues["/queue/a"].total
        assert [message.text for message in broker.browse("/queue/b")] == [str(number) for number in range(MANY)]


def abort(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a")
    with connect(broker) as one:
        messages = one.subscribe("/queue/a", ack="client-individual")
        transaction = one.transaction().__enter__()
        received = [messages.receive(timeout=WITHIN) for _ in range(MANY)]
        for message in received:
            transaction.ack(message)
        transaction.abort()
    until(lambda: broker.depth("/queue/a") == MANY)


def refuse(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a")
    with connect(broker) as one:
        messages = one.subscribe("/queue/a", ack="client")
        for _ in range(7):  # the last time they are dead letters
            received = [messages.receive(timeout=WITHIN) for _ in range(MANY)]
            assert [message.text for message in received] == [str(number) for number in range(MANY)]
            received[-1].nack()
        until(lambda: broker.depth("/queue/DLQ") == MANY)


def acknowledge(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a")
    with connect(broker) as one:
        messages = one.subscribe("/queue/a", ack="client")
        [messages.receive(timeout=WITHIN) for _ in range(MANY)][-1].ack()
        until(lambda: not broker.stats().queues["/queue/a"].total)


def vanish(broker: Broker, draw: random.Random) -> None:
    """End a session whose messages another one waits for, which gets them in their order."""
    fill(broker, "/queue/a")
    with connect(broker) as other:
        one = connect(broker)
        messages = one.subscribe("/queue/a", ack="client")
        for _ in range(MANY):
            messages.receive(timeout=WITHIN)
        returned = other.subscribe("/queue/a", ack="auto")
        fill(broker, "/queue/a", 10)
        (found,) = [each for each in broker.connections() if each.unacked == MANY]
        assert broker.kill(found)
        bodies = [returned.receive(timeout=WITHIN).text for _ in range(MANY + 10)]
        assert bodies[10:] == [str(number) for number in range(MANY)]
        one.close()


def leave(broker: Broker, draw: random.Random) -> None:
    with connect(broker) as one:
        for number in range(MANY):
            one.subscribe(draw.choice(("/queue/a", f"/queue/{number}", "/topic/a", "/topic/b.>")), ack="auto")
    until(lambda: not broker.stats().subscriptions)


def pattern(broker: Broker, draw: random.Random) -> None:
    with connect(broker) as one:
        for number in range(MANY):
            one.send(f"/queue/a.{number}", b"x")
        messages = one.subscribe("/queue/a.>", ack="client-individual")
        for _ in range(MANY):
            messages.receive(timeout=WITHIN).ack()
        messages.close()


def expire(broker: Broker, draw: random.Random) -> None:
    fill(broker, "/queue/a", expires=60)
    fill(broker, "/queue/b", delay=60)
    broker.clock.advance(61)
    until(lambda: broker.depth("/queue/a") == 0 and broker.depth("/queue/b") == MANY)


REQUESTS: tuple[Callable[[Broker, random.Random], None], ...] = (
    browse,
    select,
    fan_out,
    manage,
    commit,
    abort,
    refuse,
    acknowledge,
    vanish,
    leave,
    pattern,
    expire,
)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request_: request_.__name__)
def test_the_lock_is_held_for_a_piece_of_work_whatever_a_client_asks_for(
    broker: Broker, calls: Calls, request_: Callable[[Broker, random.Random], None]
) -> None:
    request_(broker, chance("work", request_.__name__))
    assert 0 < broker.stats().longest_turn <= MOST
    assert calls.turns
    assert calls.most <= MOST_CALLS


@pytest.mark.parametrize("alike", [True, False])
def test_moving_messages_lets_the_garbage_collector_rest(alike: bool) -> None:
    # It looks at everything that there is, with no thread running, whenever more was made than has ended.
    with Broker(heartbeat=(0, 0)) as broker, connect(broker) as client:
        with client.batch():
            for number in range(MANY_MOVED):
                client.send("/queue/a", b"x", headers=None if alike else {"number": str(number)})
        client.send("/queue/filled", b"", confirm=True)
        runs: list[str] = []

        def note(phase: str, info: dict[str, int]) -> None:
            runs.append(phase)

        gc.collect()
        gc.callbacks.append(note)
        try:
            assert broker.move("/queue/a", "/queue/b") == MANY_MOVED
            assert broker.move("/queue/b", "/queue/a") == MANY_MOVED
        finally:
            gc.callbacks.remove(note)
    assert runs.count("start") <= 4
