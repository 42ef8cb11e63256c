"""Retries that wait in parking queues: each comes when it is due, whatever else waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.testing.worker import RunningWorker
from stompy.worker.failure import Copy
from stompy.worker.parking import parked
from tests.support.seed import SEED_SETTING, chance
from tests.worker.conftest import WITHIN, Seen, wait_until

PARKING = ("activemq", "activemq5", "rabbitmq")
"""Brokers that deliver nothing with a delay that outlives them."""


@pytest.fixture(params=PARKING)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(like=request.param) as broker:
        yield broker


@pytest.fixture
def run(broker: Broker) -> Iterator[Callable[..., RunningWorker]]:
    """Return what runs a worker on the broker, by the broker's clock, until the end of the test."""
    running: list[RunningWorker] = []

    def start(task: Callable[..., object], *, on: Broker = broker, url: str | None = None, **options: Any) -> Any:
        worker = stompy.Worker(url or on.url, concurrency=2, timeouts=stompy.Timeouts(close=WITHIN))
        worker.add(task, "/queue/a", name="t", **options)
        running.append(RunningWorker(worker, on))
        return running[-1]

    yield start
    for each in running:
        each.close()


def fill(broker: Broker, delays: list[float], start: int = 0, queue: str = "/queue/a") -> dict[str, float]:
    """Park messages as a worker does, each with its number as its body; return when each is due."""
    due = {}
    with stompy.connect(broker.url) as conn, conn.batch():
        for number, delay in enumerate(delays, start):
            now = broker.clock.now()
            copy = parked(Copy(queue, str(number), delay=delay), "/queue/a.parked", now)
            conn.send(copy.destination, copy.body, headers=copy.headers)
            due[str(number)] = now + delay
    return due


def waiting(broker: Broker) -> int:
    return sum(depth.total for name, depth in broker.stats().queues.items() if ".parked" in name)


def test_a_retry_comes_in_time_though_many_wait_for_longer(
    broker: Broker, run: Callable[..., RunningWorker], seen: Seen
) -> None:
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        if message.text == "long":
            raise stompy.Defer(300_000)
        if context.attempt == 1:
            raise stompy.Retry(delay=1_000)
        seen.add(message.text)

    running = run(handle)
    with stompy.connect(broker.url) as conn, conn.batch():
        for _ in range(1_200):
            conn.send("/queue/a", "long")
    running.wait_idle(timeout=60)
    with stompy.connect(broker.url) as conn:
        for number in range(20):
            conn.send("/queue/a", str(number), confirm=True)
    running.wait_idle()
    assert not seen.items
    broker.clock.advance(1_000)
    running.wait_idle()
    assert sorted(map(int, seen.items)) == list(range(20))
    assert waiting(broker) == 1_200
    broker.clock.advance(300_000)
    running.wait_idle(timeout=60)
    assert running.worker.health().tasks["t"].counts["deferred"] == 2_400


@pytest.mark.parametrize("broker", ["activemq"], indirect=True)
def test_a_retry_comes_in_time_though_100_000_wait(
    broker: Broker, run: Callable[..., RunningWorker], seen: Seen
) -> None:
    chances = chance("parking 100,000")
    # None is due while the test runs, however slowly.
    fill(broker, [2 ** chances.uniform(12, 20) for _ in range(100_000)])

    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        if context.attempt == 1:
            raise stompy.Retry(delay=1_000)
        seen.add(message.text)

    running = run(handle)
    with stompy.connect(broker.url) as conn:
        for number in range(20):
            conn.send("/queue/a", f"short {number}", confirm=True)
    wait_until(lambda: waiting(broker) == 100_020)
    broker.clock.advance(1_000)
    seen.wait(20)
    assert all(text.startswith("short") for text in seen.items), SEED_SETTING
    assert running.worker.health().parked <= 2_000


@pytest.mark.parametrize("spread", [(-4, 12), (4, 6)], ids=["wide", "one class"])
def test_each_comes_when_it_is_due(
    broker: Broker, run: Callable[..., RunningWorker], seen: Seen, spread: tuple[float, float]
) -> None:
    chances = chance("parking", spread)
    delays = [2 ** chances.uniform(*spread) for _ in range(2_000)]
    due = fill(broker, delays)
    taken: dict[str, float] = {}
    running = run(lambda message: taken.setdefault(message.text, broker.clock.now()))
    for step in range(30):
        broker.clock.advance(2 ** chances.uniform(spread[0] - 2, spread[1] - 1))
        now = broker.clock.now()
        running.wait_idle(timeout=30)
        late = [number for number, at in due.items() if at <= now - 0.001 and number not in taken]
        assert not late, (step, SEED_SETTING)
        if step == 10:  # the next one begins with what the first one left
            running.close()
            running = run(lambda message: taken.setdefault(message.text, broker.clock.now()))
    assert not [number for number, at in taken.items() if at < due[number] - 0.001], SEED_SETTING
    assert len(taken) > 200


def test_messages_behind_a_full_window_move_up_in_time(
    broker: Broker, run: Callable[..., RunningWorker], seen: Seen
) -> None:
    fill(broker, [63.0 * 64] * 3_000)
    fill(broker, [17.0 * 64] * 20, start=3_000)
    running = run(lambda message: seen.add(int(message.text)))
    for _ in range(18):  # as time passes, far more than the test takes
        broker.clock.advance(64)
        running.wait_idle(timeout=60)
    assert sorted(seen.items) == list(range(3_000, 3_020))


def test_several_workers_share_what_waits(broker: Broker, run: Callable[..., RunningWorker], seen: Seen) -> None:
    fill(broker, [20.0 + number / 100 for number in range(2_000)])
    workers = [run(lambda message: seen.add(int(message.text))) for _ in range(3)]
    broker.clock.advance(60)
    for running in workers:
        running.wait_idle(timeout=60)
    seen.wait(2_000)
    assert sorted(seen.items) == list(range(2_000))
    assert waiting(broker) == 0


def test_a_message_that_cannot_go_back_holds_no_other_one_up(
    broker: Broker, run: Callable[..., RunningWorker], seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, [1.0], queue="/nowhere/at all")
    fill(broker, [2.0] * 10, start=1)
    fill(broker, [3.0], start=11, queue="/nowhere/at all")
    fill(broker, [4.0] * 10, start=12)
    run(lambda message: seen.add(int(message.text)))
    broker.clock.advance(10)
    seen.wait(20)


def test_a_broker_of_an_unknown_kind_parks_by_the_clock_too(seen: Seen, run: Callable[..., RunningWorker]) -> None:
    with Broker() as broker:

        def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
            seen.add(context.attempt)
            if context.attempt == 1:
                raise stompy.Retry(delay=3_600)

        worker = stompy.Worker(broker.url, dialect="generic")
        worker.add(handle, "/queue/a", name="t")
        running = RunningWorker(worker, broker)
        try:
            with stompy.connect(broker.url) as conn:
                conn.send("/queue/a", "x", confirm=True)
            running.wait_idle()
            broker.clock.advance(3_600)
            running.wait_idle()
        finally:
            running.close()
    assert seen.items == [1, 2]


def test_a_retry_of_an_ordered_task_comes_by_the_clock_too(
    broker: Broker, run: Callable[..., RunningWorker], seen: Seen
) -> None:
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add(context.attempt)
        if context.attempt == 1:
            raise stompy.Retry(delay=3_600)

    running = run(handle, key=lambda message: 1)
    with stompy.connect(broker.url) as conn:
        conn.send("/queue/a", "x", confirm=True)
    seen.wait(1)
    wait_until(lambda: running.worker.health().tasks["t"].counts.get("retried") == 1)
    broker.clock.advance(3_600)
    assert seen.wait(2) == [1, 2]


@pytest.mark.parametrize("destination", ["/queue/orders.>", "/queue/orders.*"])
def test_a_subscription_to_many_queues_does_not_take_what_is_parked(destination: str, seen: Seen) -> None:
    with Broker(like="activemq") as broker:
        worker = stompy.Worker(broker.url, concurrency=1, timeouts=stompy.Timeouts(close=WITHIN))

        @worker.task(destination, dead_letter="/topic/dead", backoff=lambda attempt: 3_600)
        def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
            seen.add((message.text, context.attempt))
            if message.text == "bad":
                raise ValueError

        running = RunningWorker(worker, broker)
        try:
            with stompy.connect(broker.url) as conn:
                conn.send("/queue/orders.eu", "bad", confirm=True)
                wait_until(lambda: worker.health().tasks["handle"].counts.get("retried") == 1)
                conn.send("/queue/orders.eu", "good", confirm=True)
            seen.wait(2)
            wait_until(lambda: sum(depth.total for depth in broker.stats().queues.values()) == 1)
            assert seen.items == [("bad", 1), ("good", 1)]
            broker.clock.advance(3_601)
            assert seen.wait(3)[2] == ("bad", 2)
        finally:
            running.close()


@pytest.mark.parametrize("destination", ["/queue/>", "/queue/*.eu"])
def test_a_subscription_that_would_take_what_is_parked_is_refused(broker: Broker, destination: str) -> None:
    worker = stompy.Worker(broker.url)
    worker.add(print, destination, dead_letter="/topic/dead")
    with pytest.raises(stompy.ConfigurationError, match="retries"):
        worker.start()
