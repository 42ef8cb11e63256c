"""Workers on real brokers, where these can be had."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import stompy
from stompy.testing.brokers import RunningBroker
from stompy.testing.containers import broker_or_skip
from tests.support.durable import make_queues
from tests.support.needs import each
from tests.worker.conftest import WITHIN, Seen, Start, orders_to_refused, send, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=each(("activemq", "activemq5", "artemis", "rabbitmq3", "rabbitmq4")))
def real(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    with broker_or_skip(request.param, persistent=True) as broker:
        yield broker


def receive(url: str, queue: str, within: float = WITHIN) -> stompy.Message:
    with stompy.connect(url) as conn:
        message = conn.subscribe(queue, ack="client-individual").receive(timeout=within)
        message.ack_async().result()
        return message


def assert_empty(url: str, *queues: str) -> None:
    with stompy.connect(url) as conn:
        subscriptions = [conn.subscribe(queue, ack="client-individual") for queue in queues]
        for subscription in subscriptions:
            with pytest.raises(stompy.ReceiveTimeoutError):
                subscription.receive(timeout=0.5)


def test_each_failure_ends_as_it_should(real: RunningBroker, seen: Seen) -> None:
    worker = stompy.Worker(real.url(), concurrency=4, timeouts=stompy.Timeouts(close=WITHIN))

    @worker.task("/queue/orders", decode="json", attempts=3, backoff=stompy.Backoff(first=0.1, longest=0.2))
    def handle(order: dict[str, str], context: stompy.TaskContext) -> None:
        kind = order["kind"]
        seen.add((kind, context.attempt))
        if kind == "poison" or (kind == "flaky" and context.attempt == 1):
            raise ValueError(kind)
        if kind == "reject":
            raise stompy.Reject("no")
        if kind == "defer" and seen.items.count((kind, 1)) == 1:
            raise stompy.Defer(0.2)

    with worker, stompy.connect(real.url()) as conn:
        for kind in ("poison", "flaky", "good", "reject", "defer"):
            conn.send("/queue/orders", {"kind": kind}, headers={"customer": "a:b"}, persistent=True, confirm=True)
        seen.wait(9)
        wait_until(lambda: worker.health().tasks["handle"].counts.get("dead_lettered") == 2)
        wait_until(lambda: worker.health().tasks["handle"].counts.get("processed") == 3)
    assert Counter(seen.items) == Counter(
        {("poison", 1): 1, ("poison", 2): 1, ("poison", 3): 1, ("flaky", 1): 1, ("flaky", 2): 1}
        | {("good", 1): 1, ("reject", 1): 1, ("defer", 1): 2}
    )
    dead = {
        letter.json()["kind"]: letter.headers for letter in (receive(real.url(), "/queue/orders.dead") for _ in "12")
    }
    assert dead["poison"]["stompy-reason"] == "failed 3 times"
    assert dead["reject"]["stompy-reason"] == "rejected"
    for headers in dead.values():
        assert headers["customer"] == "a:b"
        assert headers["stompy-original-destination"] == "/queue/orders"
    assert_empty(real.url(), "/queue/orders", "/queue/orders.parked", "/queue/orders.dead")


def test_a_request_is_answered_and_one_without_a_requester_ends(real: RunningBroker, seen: Seen) -> None:
    worker = stompy.Worker(
        real.url(),
        timeouts=stompy.Timeouts(close=WITHIN),
        reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.1, longest=0.2)),
    )

    @worker.task("/queue/double", decode="json")
    def double(number: int) -> int:
        seen.add(number)
        return 2 * number

    with worker:
        with stompy.connect(real.url()) as gone, ThreadPoolExecutor(1) as caller:
            unanswered = caller.submit(gone.request, "/queue/nobody", 1, timeout=WITHIN)
            request = gone.subscribe("/queue/nobody").receive(timeout=WITHIN)
            gone.close()
            assert isinstance(unanswered.exception(WITHIN), stompy.NotConnectedError)
        with stompy.connect(real.url()) as conn:
            conn.send("/queue/double", 7, headers={"reply-to": request.headers["reply-to"]}, confirm=True)
            assert conn.request("/queue/double", 21, timeout=WITHIN).json() == 42
        wait_until(lambda: worker.health().tasks["double"].counts.get("processed") == 2)
    assert_empty(real.url(), "/queue/double")


def test_a_killed_session_loses_and_reorders_nothing(real: RunningBroker, seen: Seen) -> None:
    worker = stompy.Worker(
        real.url(),
        concurrency=4,
        timeouts=stompy.Timeouts(close=WITHIN),
        reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.1, longest=0.5)),
    )

    @worker.task(
        "/queue/keyed",
        decode="json",
        key=lambda message: message.headers["key"],
        backoff=stompy.Backoff(first=0.01, longest=0.01),
    )
    def handle(number: int, context: stompy.TaskContext) -> None:
        if number % 20 == 10 and context.attempt == 1:
            raise ValueError
        time.sleep(0.005)  # so that the broker is killed before the end
        seen.add((context.message.headers["key"], number))

    make_queues(real, real.url(), "/queue/keyed")
    with stompy.connect(real.url()) as conn:
        for number in range(300):
            conn.send_async("/queue/keyed", number, headers={"key": f"k{number % 3}"}, persistent=True)
        conn.flush()
    with worker:
        seen.wait(100)
        real.kill()
        real.start()
        wait_until(lambda: {number for _, number in seen.items} == set(range(300)))
    for key in ("k0", "k1", "k2"):
        first = list(dict.fromkeys(number for name, number in seen.items if name == key))
        assert first == sorted(first)
    assert_empty(real.url(), "/queue/keyed")


def test_dead_letters_outlive_a_crash_of_the_broker(real: RunningBroker) -> None:
    worker = stompy.Worker(real.url(), timeouts=stompy.Timeouts(close=WITHIN))

    @worker.task("/queue/crash", attempts=1)
    def handle(message: stompy.Message) -> None:
        raise ValueError

    make_queues(real, real.url(), "/queue/crash", "/queue/crash.dead")
    with stompy.connect(real.url()) as conn:
        for number in range(100):
            conn.send_async("/queue/crash", number, persistent=True)
        conn.flush()
    with worker:
        wait_until(lambda: worker.health().tasks["handle"].counts.get("dead_lettered") == 100)
        real.kill()
    real.start()
    with stompy.connect(real.url()) as conn:
        subscription = conn.subscribe("/queue/crash.dead", ack="client-individual")
        found = set()
        for _ in range(100):
            message = subscription.receive(timeout=WITHIN)
            found.add(message.json())
            message.ack()
        conn.flush()
    assert found == set(range(100))


@pytest.mark.timeout(300)
def test_an_order_whose_output_is_refused_becomes_a_dead_letter(real: RunningBroker) -> None:
    with stompy.connect(real.url()) as conn:
        dialect = conn.dialect
    if dialect != "artemis":  # which has no transactional tasks
        orders_to_refused(real.url(), dialect, "refused")


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_transactional_task_does_all_or_nothing(real: RunningBroker, outcome: str) -> None:
    worker = stompy.Worker(real.url(), timeouts=stompy.Timeouts(close=WITHIN))

    @worker.task(f"/queue/tx-{outcome}", transactional=True, attempts=1)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        context.send(f"/queue/tx-{outcome}.out", message.body)
        if outcome == "abort":
            raise ValueError

    with stompy.connect(real.url()) as conn:
        conn.send(f"/queue/tx-{outcome}", outcome, confirm=True)
        if conn.dialect == "artemis":
            with pytest.raises(stompy.ConfigurationError, match="transaction"):
                worker.start()
            return
    ended = ("out", "dead") if outcome == "commit" else ("dead", "out")
    with worker:
        assert receive(real.url(), f"/queue/tx-{outcome}.{ended[0]}").text == outcome
    assert_empty(real.url(), f"/queue/tx-{outcome}", f"/queue/tx-{outcome}.{ended[1]}")


def test_a_retry_comes_in_time_though_1_200_wait_for_longer(real: RunningBroker, seen: Seen) -> None:
    worker = stompy.Worker(real.url(), timeouts=stompy.Timeouts(close=WITHIN))

    @worker.task("/queue/waits")
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        if message.text == "long":
            raise stompy.Defer(300)
        if context.attempt == 1:
            raise stompy.Retry(delay=1)
        seen.add(message.text)

    with worker, stompy.connect(real.url()) as conn:
        for _ in range(1_200):
            conn.send_async("/queue/waits", "long", persistent=True)
        conn.flush()
        wait_until(lambda: worker.health().tasks["handle"].counts.get("deferred") == 1_200, within=90)
        for number in range(20):
            conn.send("/queue/waits", str(number), persistent=True, confirm=True)
        assert sorted(map(int, seen.wait(20))) == list(range(20))
        assert worker.health().tasks["handle"].counts["deferred"] == 1_200


@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "plain"])
def test_what_a_task_makes_of_persistent_messages_survives_a_restart(real: RunningBroker, transactional: bool) -> None:
    worker = stompy.Worker(real.url(), timeouts=stompy.Timeouts(close=WITHIN))
    queue = f"/queue/forward-{transactional}"

    @worker.task(queue, transactional=transactional)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> str:
        context.send(f"{queue}.out", message.body)
        return message.text

    with stompy.connect(real.url()) as conn:
        if transactional and conn.dialect == "artemis":
            return
        for number in range(300):
            conn.send_async(queue, number, headers={"reply-to": f"{queue}.replies"}, persistent=True)
        conn.flush()
    with worker:
        wait_until(lambda: worker.health().tasks["handle"].counts.get("processed") == 300, within=60)
    real.restart()
    with stompy.connect(real.url()) as conn:
        for end in ("out", "replies"):
            subscription = conn.subscribe(f"{queue}.{end}", ack="client-individual")
            found = set()
            for _ in range(300):
                message = subscription.receive(timeout=WITHIN)
                found.add(message.json())
                message.ack()
            assert found == set(range(300))
        conn.close()


def test_a_transactional_task_past_its_time_limit_is_settled_once(real: RunningBroker) -> None:
    worker = stompy.Worker(real.url(), concurrency=2, max_stuck=100, timeouts=stompy.Timeouts(close=WITHIN))
    release = threading.Event()

    @worker.task("/queue/overdue", transactional=True, attempts=1, time_limit=0.3)
    def handle(message: stompy.Message) -> None:
        release.wait(2 * WITHIN)

    with stompy.connect(real.url()) as conn:
        if conn.dialect == "artemis":
            return
        for number in range(4):
            conn.send("/queue/overdue", number, persistent=True, confirm=True)
    with worker:
        wait_until(lambda: worker.health().tasks["handle"].counts.get("dead_lettered") == 4)
        release.set()
        wait_until(lambda: worker.health().tasks["handle"].stuck == 0)
        assert worker.health().tasks["handle"].counts == {"stuck": 4, "failed": 4, "dead_lettered": 4}
    assert sorted(receive(real.url(), "/queue/overdue.dead").json() for _ in range(4)) == [0, 1, 2, 3]
    assert_empty(real.url(), "/queue/overdue", "/queue/overdue.dead")


@pytest.mark.parametrize(
    ("worker", "bodies", "dead"),
    [
        ("alone", ["once"] * 10, "once"),
        ("supervised", ["poison 8", *(f"beside 8 {number}" for number in range(7))], "poison 8"),
    ],
    ids=["equal messages", "messages that run together"],
)
def test_of_several_messages_one_crashes(
    real: RunningBroker, start: Start, noted: Callable[[], list[str]], worker: str, bodies: list[str], dead: str
) -> None:
    send(real.url(), *bodies)
    process = start(worker, "--processes", "1", url=real.url())
    assert receive(real.url(), "/queue/a.dead", 60).text == dead
    wait_until(lambda: sum(line.startswith("end") for line in noted()) == len(bodies) - 1, 60)
    process.terminate()
    assert process.wait(WITHIN) == 0
    assert_empty(real.url(), "/queue/a", "/queue/a.dead")


def test_a_delay_waits_behind_no_longer_one_of_its_parking_queue(real: RunningBroker, seen: Seen) -> None:
    worker = stompy.Worker(real.url(), timeouts=stompy.Timeouts(close=WITHIN))
    begun: set[str] = set()

    @worker.task("/queue/behind")
    def handle(message: stompy.Message) -> None:
        if message.text not in begun:
            begun.add(message.text)
            raise stompy.Defer(63 if message.text.startswith("long") else 17)
        seen.add(message.text)

    with worker, stompy.connect(real.url()) as conn:
        for kind, count in (("long", 600), ("short", 20)):
            for number in range(count):
                conn.send_async("/queue/behind", f"{kind} {number}", persistent=True)
            conn.flush(timeout=60)  # each is synced to a disk, beside those that the worker parks
        wait_until(lambda: len(seen.items) >= 20, within=70)
    assert all(text.startswith("short") for text in seen.items[:20])
