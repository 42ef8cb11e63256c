"""Time limits, rates, ends by number and time, transactions, duplicates, middleware, health."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stompy
import stompy.worker
from stompy.broker import Broker
from stompy.broker import broker as broker_module
from stompy.broker.rabbitmq import RABBITMQ
from stompy.worker.task import SqliteSeen
from tests.worker.conftest import WITHIN, Seen, left, orders_to_refused, wait_until

Make = Callable[..., stompy.Worker]


def send(broker: Broker, *bodies: Any, **arguments: Any) -> None:
    with stompy.connect(broker.url) as conn:
        for body in bodies:
            conn.send("/queue/a", body, confirm=True, **arguments)


def test_a_stuck_task_is_reported_and_its_place_freed(
    broker: Broker, make_worker: Make, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make_worker(concurrency=1)
    release = threading.Event()

    @worker.task("/queue/a", attempts=1, time_limit=0.2)
    def handle(message: stompy.Message) -> None:
        if message.text == "stuck":
            release.wait(WITHIN)
        seen.add(message.text)

    with worker:
        send(broker, "stuck", "next")
        assert seen.wait(1) == ["next"]
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
        assert worker.health().tasks["handle"].stuck == 1
        assert "release.wait(WITHIN)" in caplog.text
        release.set()
        wait_until(lambda: worker.health().tasks["handle"].stuck == 0)
    (dead,) = broker.browse("/queue/a.dead")
    assert dead.text == "stuck"
    assert dead.headers["stompy-error"] == "stompy.worker.task.TimeLimitExceededError"
    assert left(broker) == 0


def test_too_many_stuck_tasks_end_the_worker(broker: Broker, make_worker: Make) -> None:
    worker = make_worker(concurrency=1, max_stuck=1, timeouts=stompy.Timeouts(close=WITHIN))
    release = threading.Event()

    @worker.task("/queue/a", attempts=1, time_limit=0.1)
    def handle(message: stompy.Message) -> None:
        release.wait(WITHIN)

    send(broker, "1", "2", "3")
    codes: list[int] = []
    runner = threading.Thread(target=lambda: codes.append(worker.run()))
    runner.start()
    runner.join(WITHIN)
    release.set()
    assert codes == [stompy.WorkerExit.STUCK]
    dead = broker.depth("/queue/a.dead")
    assert dead >= 2  # the third may have begun
    assert dead + left(broker) == 3


def test_without_a_limit_any_number_of_tasks_may_be_stuck(broker: Broker, make_worker: Make) -> None:
    worker = make_worker(concurrency=1, max_stuck=None)
    release = threading.Event()

    @worker.task("/queue/a", attempts=1, time_limit=0.1)
    def handle(message: stompy.Message) -> None:
        release.wait(WITHIN)

    with worker:
        send(broker, *(str(number) for number in range(5)))
        wait_until(lambda: worker.health().tasks["handle"].stuck == 5)
        wait_until(lambda: broker.depth("/queue/a.dead") == 5)
        assert worker.health().state == "running"
        release.set()
        wait_until(lambda: worker.health().tasks["handle"].stuck == 0)


def test_a_task_that_gets_stuck_while_the_worker_stops_does_not_hold_it_up(broker: Broker, make_worker: Make) -> None:
    worker = make_worker(concurrency=1, timeouts=stompy.Timeouts(close=WITHIN))
    began, release = threading.Event(), threading.Event()

    @worker.task("/queue/a", attempts=1, time_limit=0.5)
    def handle(message: stompy.Message) -> None:
        began.set()
        release.wait(2 * WITHIN)

    with worker:
        send(broker, "1")
        assert began.wait(WITHIN)
        assert worker.close() is stompy.WorkerExit.OK
    release.set()
    assert broker.depth("/queue/a.dead") == 1


@pytest.mark.parametrize("count", [1, 7])
def test_a_worker_ends_after_so_many_messages(broker: Broker, make_worker: Make, seen: Seen, count: int) -> None:
    worker = make_worker(max_messages=count, concurrency=4)
    worker.add(seen.add, "/queue/a", name="t")
    send(broker, *map(str, range(10)))
    assert worker.run() == 0
    assert len(seen.items) == count
    assert broker.depth("/queue/a") == 10 - count


@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_last_messages_of_a_worker_have_all_their_attempts(
    broker: Broker, make_worker: Make, seen: Seen, concurrency: int
) -> None:
    worker = make_worker(max_messages=2, concurrency=concurrency)

    @worker.task(
        "/queue/a", key=lambda message: message.text, attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01)
    )
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add((message.text, context.attempt))
        raise ValueError("planned")

    send(broker, *"123")
    assert worker.run() == 0
    taken = {text for text, _ in seen.items}
    assert len(taken) == 2
    assert sorted(seen.items) == sorted((text, attempt) for text in taken for attempt in (1, 2))
    assert (broker.depth("/queue/a"), broker.depth("/queue/a.dead")) == (1, 2)


def test_the_last_message_of_a_worker_waits_for_the_rate_of_its_task(
    broker: Broker, make_worker: Make, seen: Seen
) -> None:
    worker = make_worker(max_messages=2)
    worker.add(lambda message: seen.add(message.text), "/queue/a", rate=1000)
    send(broker, *"123")
    assert worker.run() == 0
    assert (len(seen.items), broker.depth("/queue/a")) == (2, 1)


def test_a_task_that_hangs_does_not_keep_a_worker_from_ending_after_so_many_messages(
    broker: Broker, make_worker: Make, seen: Seen
) -> None:
    worker = make_worker(max_messages=2, concurrency=2, timeouts=stompy.Timeouts(close=0.1))
    release = threading.Event()

    @worker.task("/queue/a")
    def handle(message: stompy.Message) -> None:
        seen.add(message.text)
        if message.text == "hangs":
            send(broker, "2", "3")
            release.wait(WITHIN)

    send(broker, "hangs")
    assert worker.run() == stompy.WorkerExit.UNFINISHED
    release.set()
    assert sorted(seen.items) == ["2", "hangs"]
    assert broker.depth("/queue/a") == 2


def test_a_message_between_its_attempts_ends_with_its_worker(broker: Broker, make_worker: Make) -> None:
    worker = make_worker(max_messages=1, timeouts=stompy.Timeouts(close=0.1))

    @worker.task("/queue/a", key=lambda message: "", attempts=2, backoff=stompy.Backoff(first=3600.0, longest=3600.0))
    def handle(message: stompy.Message) -> None:
        raise ValueError("planned")

    send(broker, "1")
    assert worker.run() == stompy.WorkerExit.UNFINISHED
    assert broker.depth("/queue/a") == 1


def test_a_worker_ends_after_some_time(make_worker: Make) -> None:
    worker = make_worker(max_seconds=0.1)
    worker.add(print, "/queue/a")
    assert worker.run() == 0


def test_a_task_with_a_rate_runs(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()
    worker.add(lambda message: seen.add(message.text), "/queue/a", rate=1000)
    with worker:
        send(broker, *"123")
        seen.wait(3)


def test_a_transaction_sends_all_or_nothing(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()

    @worker.task("/queue/a", transactional=True, attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> str:
        context.send("/queue/b", message.body)
        seen.add(context.attempt)
        if message.text == "bad":
            raise ValueError
        return "reply"

    with worker:
        send(broker, "bad", "good", headers={"reply-to": "/queue/replies"})
        wait_until(lambda: broker.depth("/queue/a.dead") == 1 and broker.depth("/queue/b") == 1)
        wait_until(lambda: left(broker) == 0)
    assert [message.text for message in broker.browse("/queue/b")] == ["good"]
    assert [message.text for message in broker.browse("/queue/replies")] == ["reply"]


@pytest.mark.parametrize("like", [None, "activemq", "activemq5", "rabbitmq"])
def test_an_order_whose_output_is_refused_becomes_a_dead_letter(like: Any) -> None:
    with Broker(like=like) as broker:
        orders_to_refused(broker.url, "activemq" if like == "activemq5" else like or "stompy", "a")


@pytest.mark.parametrize("early", [b"", b"x" * 1_000_000], ids=["all at the commit", "early"])
def test_a_message_beside_one_that_is_refused_does_not_share_its_end(
    broker: Broker, make_worker: Make, seen: Seen, early: bytes
) -> None:
    worker = make_worker(concurrency=2, reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01)))
    rounds = itertools.count(1)

    @worker.task("/queue/a", transactional=True, attempts=1)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        if message.text == "bad":
            seen.wait(next(rounds))
            context.send("/queue/*", message.body)
            return
        context.send("/queue/b", early)
        seen.add(message.text)
        # The other ends the session of this one each time that it is refused.
        wait_until(lambda: message.session_ended or broker.depth("/queue/a.dead") > 0)
        context.send("/queue/b", message.body)

    send(broker, "bad", "good")
    with worker:
        wait_until(lambda: broker.depth("/queue/a.dead") > 0 and left(broker) == 0)
    assert [message.text for message in broker.browse("/queue/a.dead")] == ["bad"]
    assert [message.body for message in broker.browse("/queue/b")] == [early, b"good"]


def test_more_transactional_tasks_than_the_broker_has_transactions_are_refused(
    make_worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(broker_module._PROFILES, "rabbitmq", replace(RABBITMQ, server="RabbitMQ/4.4.0"))
    with Broker(like="rabbitmq") as broker:
        worker = make_worker(broker.url, concurrency=9)
        worker.add(print, "/queue/a", transactional=True)
        with pytest.raises(stompy.ConfigurationError, match="8 transactional tasks"):
            worker.start()


def test_a_stuck_transaction_sends_nothing(broker: Broker, make_worker: Make) -> None:
    worker = make_worker(concurrency=1)
    release, ended = threading.Event(), threading.Event()

    @worker.task("/queue/a", transactional=True, attempts=1, time_limit=0.2)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        context.send("/queue/b", message.body)
        release.wait(WITHIN)
        try:
            context.send("/queue/b", message.body)
        finally:
            ended.set()

    with worker:
        send(broker, "x")
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
        release.set()
        assert ended.wait(WITHIN)
    assert broker.depth("/queue/b") == left(broker) == 0


def test_a_broker_without_such_transactions_is_refused(make_worker: Make) -> None:
    with Broker(like="artemis") as broker:
        worker = make_worker(broker.url)
        worker.add(print, "/queue/a", transactional=True)
        with pytest.raises(stompy.ConfigurationError, match="Artemis"):
            worker.start()
        assert worker.run() == stompy.WorkerExit.USAGE


def test_a_message_seen_before_is_acknowledged_and_not_run(
    broker: Broker, make_worker: Make, seen: Seen, tmp_path: Path
) -> None:
    store = SqliteSeen(tmp_path / "seen.db")
    worker = make_worker(concurrency=1)

    @worker.task(
        "/queue/a",
        seen=store,
        identity=lambda message: message.headers["order"],
        attempts=2,
        backoff=lambda attempt: 0.0,
    )
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add(message.text)
        if context.attempt == 1 and message.text == "1":
            raise ValueError

    with worker:
        send(broker, "1", "1", headers={"order": 1})
        send(broker, "2", headers={"order": 2})
        wait_until(lambda: worker.health().tasks["handle"].counts.get("duplicate") == 1)
        wait_until(lambda: left(broker) == 0)
    assert sorted(seen.items) in (["1", "1", "2"], ["1", "1", "1", "2"])
    assert "1" in store
    store.close()
    again = SqliteSeen(tmp_path / "seen.db")
    assert "2" in again
    assert "3" not in again
    again.close()


def test_forgotten_ids_are_removed(tmp_path: Path) -> None:
    store = SqliteSeen(tmp_path / "seen.db", keep=0.0)
    for number in range(1_000):
        store.add(str(number))
    assert "0" not in store
    store.close()


def test_middleware_is_called_and_cannot_do_harm(broker: Broker, make_worker: Make) -> None:
    called = Seen()

    def noting(name: str) -> Callable[..., None]:
        def call(self: object, *arguments: Any) -> None:
            called.add(name)
            raise ValueError

        return call

    names = [name for name in vars(stompy.worker.Middleware) if not name.startswith("_")]
    harmful = type("Harmful", (stompy.worker.Middleware,), {name: noting(name) for name in names})
    worker = make_worker(middleware=[harmful()])

    @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message) -> None:
        if message.text == "bad":
            raise ValueError

    with worker:
        send(broker, "good", "bad")
        wait_until(lambda: broker.depth("/queue/a.dead") == 1 and left(broker) == 0)
        wait_until(lambda: len(called.items) == 9)
    assert called.items[0] == "started"
    assert called.items[-1] == "stopping"
    assert sorted(called.items[1:-1]) == sorted([*["before"] * 3, "after", *["failed"] * 2, "retried", "dead_lettered"])


def test_health_tells_the_state(broker: Broker, make_worker: Make) -> None:
    worker = make_worker()
    release = threading.Event()
    worker.add(lambda message: release.wait(WITHIN), "/queue/a", name="t")
    assert worker.health().state == "stopped"
    with worker:
        send(broker, *"12345")
        wait_until(lambda: worker.health().tasks["t"].running == 2)
        wait_until(lambda: worker.health().tasks["t"].queued == 2)
        assert worker.health().ready
        release.set()
        wait_until(lambda: worker.health().tasks["t"].counts == {"processed": 5})


def test_a_record_of_the_log_has_fields(broker: Broker, make_worker: Make, caplog: pytest.LogCaptureFixture) -> None:
    worker = make_worker()

    @worker.task("/queue/a", attempts=1)
    def handle(message: stompy.Message) -> None:
        raise ValueError("no")

    with worker:
        send(broker, "x")
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
    (record,) = [vars(record) for record in caplog.records if hasattr(record, "stompy_task")]
    assert (record["stompy_task"], record["stompy_attempt"]) == ("handle", 1)


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("end", ["return", "raise", "send"])
def test_a_task_past_its_time_limit_is_settled_once(
    each_broker: Broker, make_worker: Make, transactional: bool, end: str
) -> None:
    with stompy.connect(each_broker.url) as conn:
        if transactional and conn.dialect == "artemis":
            pytest.skip("Artemis has no transactional tasks")
    worker = make_worker(each_broker.url, concurrency=2, max_stuck=100)
    release = threading.Event()

    @worker.task("/queue/a", transactional=transactional, attempts=1, time_limit=0.1)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        release.wait(WITHIN)
        if end == "raise":
            raise ValueError
        if end == "send":
            context.send("/queue/b", message.body)

    with worker:
        with stompy.connect(each_broker.url) as conn:
            for number in range(4):
                conn.send("/queue/a", number, confirm=True)
        wait_until(lambda: each_broker.depth("/queue/a.dead") == 4)
        assert worker.health().tasks["handle"].stuck == 4
        release.set()
        counts = {"stuck": 4, "failed": 4, "dead_lettered": 4}
        wait_until(
            lambda: worker.health().tasks["handle"].stuck == 0 and worker.health().tasks["handle"].counts == counts
        )
    assert each_broker.depth("/queue/a.dead") == 4
    assert left(each_broker) == 0
