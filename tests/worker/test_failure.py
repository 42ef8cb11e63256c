"""What becomes of a message whose task fails, on the embedded broker and on its profiles of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import tenacity

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.testing.faults import Drop, FaultPlan
from stompy.testing.proxy import FaultProxy
from stompy.worker.failure import decide, queue_named
from stompy.worker.task import Task
from tests.worker.conftest import WITHIN, Seen, left, wait_until

Make = Callable[..., stompy.Worker]


def send(broker: Broker, *bodies: Any, **arguments: Any) -> None:
    with stompy.connect(broker.url) as conn:
        for body in bodies:
            conn.send("/queue/a", body, confirm=True, **arguments)


def receive(broker: Broker, queue: str) -> stompy.Message:
    with stompy.connect(broker.url) as conn:
        message = conn.subscribe(queue, ack="client-individual").receive(timeout=WITHIN)
        message.ack()
        conn.close()
        return message


def test_poison_is_tried_and_then_a_dead_letter_on_each_broker(
    each_broker: Broker, make_worker: Make, seen: Seen
) -> None:
    worker = make_worker(each_broker.url)

    @worker.task(
        "/queue/a", attempts=3, backoff=stompy.Backoff(first=0.02, longest=0.02), dead_letter="/queue/orders.dead"
    )
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add((message.text, context.attempt))
        if message.text == "poison":
            raise ValueError("bad: order\nx")

    with worker:
        send(each_broker, "poison", "good", headers={"customer": "c1"})
        wait_until(lambda: each_broker.depth("/queue/orders.dead") == 1)
        send(each_broker, "later")
        wait_until(lambda: ("later", 1) in seen.items)
    assert Counter(seen.items) == Counter([("poison", 1), ("poison", 2), ("poison", 3), ("good", 1), ("later", 1)])
    assert each_broker.depth("/queue/a") == left(each_broker, "/queue/a.parked") == 0
    dead = receive(each_broker, "/queue/orders.dead")
    assert dead.text == "poison"
    headers = dead.headers
    assert headers["customer"] == "c1"
    assert headers["stompy-original-destination"] == "/queue/a"
    assert headers["stompy-task"] == "handle"
    assert headers["stompy-reason"] == "failed 3 times"
    assert headers["stompy-error"] == "ValueError"
    assert headers["stompy-error-message"] == r"bad: order\nx"
    assert "test_failure.py" in headers["stompy-traceback"]
    assert headers["stompy-attempts"] == "3"
    assert headers["stompy-first-failure"] <= headers["stompy-last-failure"]
    assert headers["stompy-original-message-id"]


def test_a_rejected_message_is_a_dead_letter_at_once(each_broker: Broker, make_worker: Make) -> None:
    worker = make_worker(each_broker.url)

    @worker.task("/queue/a")
    def handle(message: stompy.Message) -> None:
        raise stompy.Reject("unknown customer")

    with worker:
        send(each_broker, "x")
        wait_until(lambda: each_broker.depth("/queue/a.dead") == 1)
    dead = receive(each_broker, "/queue/a.dead")
    assert dead.headers["stompy-reason"] == "rejected"
    assert dead.headers["stompy-error-message"] == "unknown customer"
    assert dead.headers["stompy-attempts"] == "1"


def test_a_deferred_message_comes_again_and_counts_no_attempt(
    each_broker: Broker, make_worker: Make, seen: Seen
) -> None:
    worker = make_worker(each_broker.url)

    @worker.task("/queue/a", attempts=1)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add(context.attempt)
        if len(seen.items) < 3:
            raise stompy.Defer(0.05)

    with worker:
        send(each_broker, "x")
        assert seen.wait(3) == [1, 1, 1]
        wait_until(lambda: left(each_broker) == 0)
    assert each_broker.depth("/queue/a.dead") == 0


def test_the_task_chooses_the_delay_of_a_retry(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()

    @worker.task("/queue/a", backoff=stompy.Backoff(first=3600, longest=3600))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add(context.attempt)
        if context.attempt == 1:
            raise stompy.Retry("the database is busy", delay=0)

    with worker:
        send(broker, "x")
        assert seen.wait(2) == [1, 2]


def test_retries_in_place_are_one_attempt(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()
    policy = tenacity.Retrying(stop=tenacity.stop_after_attempt(3))

    @worker.task("/queue/a", retry_in_place=policy, attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add(context.attempt)
        raise OSError("down")

    with worker:
        send(broker, "x")
        assert seen.wait(6) == [1, 1, 1, 2, 2, 2]
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
    (dead,) = broker.browse("/queue/a.dead")
    assert dead.headers["stompy-error"] == "OSError"


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
def test_what_is_no_exception_is_a_failure_too(broker: Broker, make_worker: Make, raised: type[BaseException]) -> None:
    worker = make_worker()

    @worker.task("/queue/a", attempts=1)
    def handle(message: stompy.Message) -> None:
        raise raised

    with worker:
        send(broker, "1", "2")
        wait_until(lambda: broker.depth("/queue/a.dead") == 2)


def test_a_reply_that_cannot_be_sent_is_a_failure_of_the_task(broker: Broker, make_worker: Make) -> None:
    worker = make_worker()
    worker.add(lambda message: object(), "/queue/a", name="t", attempts=1)
    with worker:
        send(broker, "x", headers={"reply-to": "/queue/answers"})
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)


def test_a_refused_reply_is_left_out_of_one_message_and_not_of_equal_ones(make_worker: Make) -> None:
    with Broker(limits=BrokerLimits(max_queues=2)) as broker:
        worker = make_worker(broker.url)
        worker.add(lambda message: "yes", "/queue/a", name="t")
        with stompy.connect(broker.url) as conn:
            conn.send("/queue/full", "x", confirm=True)
        with worker:
            send(broker, "x", headers={"reply-to": "/queue/answers"})
            wait_until(lambda: worker.health().tasks["t"].counts.get("processed") == 1)
            broker.purge("/queue/full")
            send(broker, "x", headers={"reply-to": "/queue/answers"})
            assert receive(broker, "/queue/answers").text == "yes"


def test_a_dead_letter_that_the_broker_refuses_is_tried_again(
    make_worker: Make, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(limits=BrokerLimits(max_queues=2)) as broker:
        worker = make_worker(broker.url)

        @worker.task("/queue/a", attempts=1)
        def handle(message: stompy.Message) -> None:
            seen.add(message.text)
            raise ValueError

        send(broker, "x")
        with stompy.connect(broker.url) as conn:
            conn.send("/queue/full", "x", confirm=True)
        with worker:
            seen.wait(2)
            broker.purge("/queue/full")
            wait_until(lambda: broker.depth("/queue/a.dead") == 1)
    assert "was not settled and is redelivered" in caplog.text


@pytest.mark.parametrize(
    ("like", "lost", "options"),
    [
        (None, Drop("COMMIT", nth=1, link=1), {}),
        (None, Drop("COMMIT", nth=1, link=1), {"transactional": True}),
        ("artemis", Drop("SEND", nth=1, link=1), {}),
        ("rabbitmq", Drop("SEND", nth=2, link=2), {}),
    ],
    ids=["a retry", "a transactional task", "without transactions", "a parked message"],
)
def test_what_the_broker_never_confirms_is_repeated_in_a_new_session(
    like: Any, lost: Drop, options: dict[str, Any], make_worker: Make
) -> None:
    with Broker(like=like) as broker, FaultProxy(broker.url, faults=FaultPlan(lost)) as proxy:
        worker = make_worker(
            proxy.url,
            timeouts=stompy.Timeouts(receipt=0.3),
            reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01)),
        )

        @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01), **options)
        def handle(message: stompy.Message) -> None:
            if not options:
                raise ValueError

        with worker:
            send(broker, "x")
            wait_until(lambda: options or broker.depth("/queue/a.dead") == 1)
            wait_until(lambda: left(broker) == left(broker, "/queue/a.parked") == 0)


def a_task(**options: Any) -> Task:
    return Task(print, ["/queue/a"], **options)


def test_delays_double_up_to_the_largest() -> None:
    task = a_task(attempts=10, backoff=stompy.Backoff(first=1, longest=5))
    for attempt, bound in enumerate((1, 2, 4, 5, 5), 1):
        delays = [decide(task, attempt, ValueError()).delay for _ in range(200)]
        assert bound / 2 < max(delays) <= bound


def test_attempts_count_the_first_and_none_is_no_limit() -> None:
    once, always = a_task(attempts=1), a_task(attempts=None)
    assert decide(once, 1, ValueError()).action == "dead-letter"
    assert decide(always, 10**6, ValueError()).action == "retry"


def test_a_function_chooses_the_delay() -> None:
    task = a_task(backoff=lambda attempt: attempt * 10)
    assert [decide(task, attempt, ValueError()).delay for attempt in (1, 2)] == [10, 20]


@pytest.mark.parametrize(
    ("destination", "queue"),
    [
        ("/queue/a", "/queue/a"),
        ("/topic/a.b", "/queue/a.b"),
        ("/exchange/e/key", "/queue/e.key"),
        ("orders", "/queue/orders"),
        ("/topic/a.*", "/queue/a._"),
    ],
)
def test_each_destination_has_a_queue_of_its_name(destination: str, queue: str) -> None:
    assert queue_named(destination) == queue


def test_a_broker_of_an_unknown_kind_parks_retries_too(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker(dialect="generic", concurrency=1)

    @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.02, longest=0.02))
    def handle(message: stompy.Message) -> None:
        seen.add(message.text)
        if message.text == "bad":
            raise ValueError

    send(broker, "bad", *map(str, range(20)))
    with worker:
        seen.wait(22)
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
    assert left(broker, "/queue/a") == left(broker, "/queue/a.parked") == 0


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_older_versions_can_express_a_dead_letter(broker: Broker, make_worker: Make, version: str) -> None:
    worker = make_worker(versions=version)

    @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message) -> None:
        raise ValueError("a: b\r\nc")

    with worker:
        send(broker, "x", headers={"name": "a:b"})
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
    assert receive(broker, "/queue/a.dead").headers["stompy-error-message"] == r"a: b\r\nc"


def test_parked_messages_outlive_their_worker(make_worker: Make, seen: Seen) -> None:
    with Broker(like="rabbitmq") as broker:
        for attempt in (1, 2):
            worker = make_worker(broker.url)

            @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.5, longest=0.5))
            def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
                seen.add(context.attempt)
                if context.attempt == 1:
                    raise ValueError

            with worker:
                if attempt == 1:
                    send(broker, "x")
                seen.wait(attempt)
                if attempt == 1:
                    wait_until(lambda: left(broker, "/queue/a.parked") == 1)
        assert seen.items == [1, 2]
