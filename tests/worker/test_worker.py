"""Tasks: how they are added, called, acknowledged and answered."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import stompy
from stompy.broker import Broker
from stompy.dialects.options import SEND_OPTIONS
from stompy.testing.proxy import FaultProxy
from tests.support.ports import reserved_port
from tests.transport.conftest import GIVE_UP, Calling
from tests.transport.conftest import calling as calling
from tests.worker.conftest import WITHIN, Seen, left, wait_until

Make = Callable[..., stompy.Worker]


def send(broker: Broker, destination: str, *bodies: Any, **arguments: Any) -> None:
    with stompy.connect(broker.url) as conn:
        for body in bodies:
            conn.send(destination, body, confirm=True, **arguments)


def test_a_task_is_called_and_its_message_acknowledged(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()

    @worker.task("/queue/a", "/queue/b")
    def handle(message: stompy.Message) -> None:
        seen.add((message.destination, message.text))

    with worker:
        send(broker, "/queue/a", "1")
        send(broker, "/queue/b", "2")
        assert sorted(seen.wait(2)) == [("/queue/a", "1"), ("/queue/b", "2")]
    assert broker.depth("/queue/a") == broker.depth("/queue/b") == 0


def test_a_listener_class_is_a_task(broker: Broker, make_worker: Make) -> None:
    worker = make_worker()

    class Orders(stompy.TaskListener):
        destination = ("/queue/a", "/queue/b")
        attempts = 1
        decode = "json"

        def __init__(self) -> None:
            self.seen = Seen()

        def on_message(self, message: Any) -> None:
            self.seen.add(message["n"])
            if message["n"] == 2:
                raise ValueError

    orders = Orders()
    assert worker.add(orders).name == "Orders"
    with worker:
        send(broker, "/queue/a", {"n": 1}, {"n": 2})
        send(broker, "/queue/b", {"n": 3})
        assert sorted(orders.seen.wait(3)) == [1, 2, 3]
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)


def test_a_misspelt_option_of_a_listener_class_fails_where_it_is_written() -> None:
    with pytest.raises(stompy.ConfigurationError, match="no option 'attemps'; did you mean 'attempts'"):
        type("Orders", (stompy.TaskListener,), {"attemps": 5})

    class Others(stompy.TaskListener):
        destination = "/queue/a"
        orders: ClassVar[dict[str, str]] = {}
        _names = ()

        def decoded(self) -> None: ...


@pytest.mark.parametrize("wrong", [b"/queue/a", 5, ""])
def test_a_destination_of_a_task_is_text(make_worker: Make, wrong: Any) -> None:
    with pytest.raises(stompy.ConfigurationError, match="text"):
        make_worker().add(print, wrong)


@pytest.mark.parametrize("option", ["concurrency", "prefetch"])
def test_what_comes_from_elsewhere_by_default_is_default_and_not_none(make_worker: Make, option: str) -> None:
    worker = make_worker()
    assert getattr(worker.add(print, "/queue/a"), option) is stompy.DEFAULT
    wrong: Any = {option: None}
    with pytest.raises(stompy.ConfigurationError, match=f"{option} must be a whole number"):
        worker.add(print, "/queue/b", **wrong)


def test_a_returned_value_is_the_reply(broker: Broker, make_worker: Make) -> None:
    worker = make_worker()
    worker.add(lambda message: {"double": 2 * message.json()}, "/queue/double")
    with worker, stompy.connect(broker.url) as conn:
        assert conn.request("/queue/double", 21, timeout=WITHIN).json() == {"double": 42}


def test_a_reply_to_nobody_does_not_come_again_and_again(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()

    @worker.task("/queue/a", decode="json")
    def answer(value: int) -> int:
        seen.add(value)
        return value

    with worker:
        send(broker, "/queue/a", 1, headers={"reply-to": "/remote-temp-queue/nobody"})
        send(broker, "/queue/a", 2, headers={"reply-to": "/queue/answers"})
        wait_until(lambda: broker.depth("/queue/answers") == 1 and left(broker) == 0)


@pytest.mark.parametrize(
    ("decode", "body", "expected"),
    [
        (None, "x", "x"),
        ("json", {"n": 1}, {"n": 1}),
        ("arguments", {"message": "m"}, "m"),
        (lambda message: message.text.upper(), "x", "X"),
    ],
)
def test_the_argument_is_what_decode_makes_of_the_message(
    broker: Broker, make_worker: Make, seen: Seen, decode: Any, body: Any, expected: Any
) -> None:
    worker = make_worker()
    worker.add(lambda message: seen.add(getattr(message, "text", message)), "/queue/a", decode=decode)
    with worker:
        send(broker, "/queue/a", body)
        assert seen.wait(1) == [expected]


@pytest.mark.parametrize("decode", ["json", "arguments"])
def test_a_body_that_does_not_decode_is_a_failure_of_the_task(broker: Broker, make_worker: Make, decode: Any) -> None:
    worker = make_worker()
    worker.add(lambda n: None, "/queue/a", name="t", decode=decode, attempts=1)
    with worker:
        send(broker, "/queue/a", "[no")
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
    (dead,) = broker.browse("/queue/a.dead")
    assert dead.headers["stompy-error"] == "stompy.errors.BodyDecodeError"


def test_arguments_that_do_not_fit_are_a_failure_of_the_task(broker: Broker, make_worker: Make) -> None:
    worker = make_worker()

    @worker.task("/queue/a", decode="arguments", attempts=1)
    def ship(order: int, *, express: bool = False) -> None: ...

    with worker:
        send(broker, "/queue/a", {"order": 1, "express": True})
        send(broker, "/queue/a", {"ordre": 1}, [1])
        wait_until(lambda: broker.depth("/queue/a.dead") == 2)


def test_the_context_says_which_attempt_it_is(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()

    @worker.task("/queue/a", backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add((context.task, context.attempt))
        if context.attempt < 3:
            raise ValueError
        context.send("/queue/b", "done")

    with worker:
        send(broker, "/queue/a", "x")
        assert seen.wait(3) == [("handle", 1), ("handle", 2), ("handle", 3)]
        wait_until(lambda: broker.depth("/queue/b") == 1)


def test_threads_run_messages_side_by_side(broker: Broker, make_worker: Make) -> None:
    worker = make_worker()
    together = threading.Barrier(3, timeout=WITHIN)
    worker.add(lambda message: together.wait(), "/queue/a", name="meet", concurrency=3, attempts=1)
    with worker:
        send(broker, "/queue/a", *"123")
        wait_until(lambda: left(broker) == 0)
    assert broker.depth("/queue/a.dead") == 0


def test_a_long_task_after_many_short_ones_keeps_nobody_waiting(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker(concurrency=4)
    release = threading.Event()

    @worker.task("/queue/a", prefetch=1_000)
    def handle(message: stompy.Message) -> None:
        if message.text == "long":
            assert release.wait(WITHIN)
        seen.add(message.text)

    with worker, stompy.connect(broker.url) as conn:
        for number in range(300):
            conn.send("/queue/a", "long" if number in (150, 200, 250) else str(number))
        seen.wait(297)  # in the fourth thread
        assert "long" not in seen.items
        release.set()
        assert seen.wait(300).count("long") == 3


def test_messages_of_a_key_run_one_at_a_time_and_in_order(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker(concurrency=4)
    busy: dict[str, int] = {}

    @worker.task(
        "/queue/a", key=lambda message: message.headers["customer"], backoff=stompy.Backoff(first=0.01, longest=0.01)
    )
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        customer, number = message.headers["customer"], message.json()
        assert busy.setdefault(customer, 0) == 0
        busy[customer] = 1
        try:
            if number % 5 == 0 and context.attempt < 2:
                raise ValueError
            seen.add((customer, number))
        finally:
            busy[customer] = 0

    with stompy.connect(broker.url) as conn:
        for number in range(40):
            conn.send("/queue/a", number, headers={"customer": f"c{number % 3}"})
        conn.flush()
    with worker:
        done = seen.wait(40)
    for customer in ("c0", "c1", "c2"):
        numbers = [number for name, number in done if name == customer]
        assert numbers == sorted(numbers)
    assert left(broker) == 0


@pytest.mark.parametrize("like", [None, "activemq", "activemq5"])
def test_one_worker_at_a_time_has_an_ordered_queue(like: Any, make_worker: Make, seen: Seen) -> None:
    with Broker(like=like) as broker:
        first, second = make_worker(broker.url), make_worker(broker.url)
        first.add(lambda message: seen.add("first"), "/queue/a", name="ordered", key=lambda message: 1)
        second.add(lambda message: seen.add("second"), "/queue/a", name="ordered", key=lambda message: 1)
        with stompy.connect(broker.url) as conn:
            with first:
                second.start()
                for number in range(20):
                    conn.send("/queue/a", number, confirm=True)
                assert set(seen.wait(20)) == {"first"}
            conn.send("/queue/a", 20, confirm=True)
            assert seen.wait(21)[20] == "second"
            second.close()


def test_attempts_of_an_ordered_task_begin_anew_in_a_new_session(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker(reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01)))

    @worker.task("/queue/a", key=lambda message: 1, attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add(context.attempt)
        if len(seen.items) == 1:
            for connection in broker.connections():
                broker.kill(connection)
            wait_until(lambda: message.session_ended)
        raise ValueError

    with stompy.connect(broker.url) as conn:
        conn.send("/queue/a", "x", confirm=True)
    with worker:
        wait_until(lambda: broker.depth("/queue/a.dead") == 1)
    assert seen.items == [1, 1, 2]


KEYS: dict[str, Any] = {
    "header": "customer",
    "function": lambda message: message.headers["customer"],
    "unhashable": lambda message: message.headers.get("customer") or [],
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_message_without_its_key_is_a_dead_letter_and_the_others_stay_in_order(
    broker: Broker, make_worker: Make, seen: Seen, kind: str
) -> None:
    worker = make_worker(concurrency=4)
    worker.add(lambda message: seen.add(message.text), "/queue/a", key=KEYS[kind], attempts=5)
    with worker:
        for number in range(20):
            headers = {} if number % 5 == 4 else {"customer": "c"}
            send(broker, "/queue/a", str(number), headers=headers)
        wait_until(lambda: broker.depth("/queue/a.dead") == 4)
        assert seen.wait(16) == [str(number) for number in range(20) if number % 5 != 4]
    (dead, *_) = broker.browse("/queue/a.dead")
    assert "its key failed" in dead.headers["stompy-error-message"]
    assert worker.run_once("/queue/a", "x").outcome == "dead-letter"


@pytest.mark.parametrize("key", [3, ("customer",), b"customer"])
def test_a_key_that_is_neither_a_name_nor_a_function_is_refused(make_worker: Make, key: Any) -> None:
    with pytest.raises(stompy.ConfigurationError, match=r"key must be text .* a function"):
        make_worker().add(print, "/queue/a", key=key)


def test_a_topic_task_retries_without_sending_to_other_subscribers(
    broker: Broker, make_worker: Make, seen: Seen
) -> None:
    worker = make_worker()

    @worker.task("/topic/news", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        seen.add(context.attempt)
        raise ValueError

    with worker, stompy.connect(broker.url) as conn:
        others = conn.subscribe("/topic/news")
        conn.send("/topic/news", "x", confirm=True)
        assert seen.wait(2) == [1, 2]
        wait_until(lambda: broker.depth("/queue/news.dead") == 1)
        others.receive(timeout=WITHIN)
        with pytest.raises(stompy.ReceiveTimeoutError):
            others.receive(timeout=0)
    (dead,) = broker.browse("/queue/news.dead")
    assert dead.headers["stompy-original-destination"] == "/topic/news"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 0}, "attempts"),
        ({"concurrency": 0}, "concurrency"),
        ({"time_limit": 0}, "time_limit"),
        ({"backoff": (1, 2)}, "backoff"),
        ({"decode": "xml"}, "decode"),
        ({"retry_in_place": 3}, "tenacity.Retrying"),
        ({"atempts": 3}, "no option 'atempts'; did you mean 'attempts'"),
    ],
)
def test_an_invalid_option_is_refused_at_once(make_worker: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(stompy.ConfigurationError, match=message):
        make_worker().add(print, "/queue/a", **options)


@pytest.mark.parametrize(
    ("name", "meant"), [("recieve", ""), ("heartbeet", "heartbeat"), ("concurency", "concurrency"), ("listeners", "")]
)
def test_an_unknown_option_of_a_worker_is_refused_where_it_is_written(name: str, meant: str) -> None:
    hint = f"; did you mean {meant!r}" if meant else ""
    with pytest.raises(stompy.ConfigurationError, match=re.escape(f"a worker has no option {name!r}{hint}")):
        stompy.Worker("stomp://127.0.0.1:1", **{name: 3})  # type: ignore[arg-type]


def test_invalid_tasks_are_refused_at_once(make_worker: Make) -> None:
    worker = make_worker()

    async def task(message: stompy.Message) -> None: ...

    with pytest.raises(stompy.ConfigurationError, match="async"):
        worker.add(task, "/queue/a")
    with pytest.raises(stompy.ConfigurationError, match="arguments"):
        worker.add(dict, "/queue/a", decode="arguments")
    with pytest.raises(stompy.ConfigurationError, match="destination"):
        worker.add(print)
    with pytest.raises(stompy.ConfigurationError, match="dead_letter"):
        worker.add(print, "/queue/a.>")
    worker.add(print, "/queue/a")
    with pytest.raises(stompy.ConfigurationError, match="two tasks"):
        worker.add(print, "/queue/b")
    with pytest.raises(stompy.ConfigurationError, match="no tasks"):
        make_worker().start()


def test_a_worker_starts_once(make_worker: Make) -> None:
    worker = make_worker()
    worker.add(print, "/queue/a")
    with worker:
        with pytest.raises(stompy.ConcurrencyError):
            worker.start()
        with pytest.raises(stompy.ConcurrencyError):
            worker.add(print, "/queue/b")
    with worker:
        pass


def test_an_unknown_broker_is_waited_for(make_worker: Make, seen: Seen) -> None:
    worker = make_worker("stomp://127.0.0.1:1", timeouts=stompy.Timeouts(start=0.1))
    worker.add(print, "/queue/a")
    with pytest.raises(stompy.ConnectError):
        worker.start()


def test_a_worker_may_make_one_attempt(make_worker: Make, caplog: pytest.LogCaptureFixture) -> None:
    worker = make_worker("stomp://127.0.0.1:1", timeouts=stompy.Timeouts(start=0))
    worker.add(print, "/queue/a")
    with caplog.at_level("WARNING", "stompy.worker"), pytest.raises(stompy.ConnectError):
        worker.start()
    assert "attempt" not in caplog.text


def test_a_worker_with_timeouts_of_its_own_still_waits_for_its_broker(make_worker: Make, calling: Calling) -> None:
    with reserved_port() as port:
        worker = make_worker(f"stomp://127.0.0.1:{port}", timeouts=stompy.Timeouts(send=5, close=WITHIN))
        worker.add(print, "/queue/a")
        starting = calling(worker.start)
        starting.until_blocked()
        with Broker(port=port):
            starting.result()
            worker.close()
    assert worker.closed


def test_tasks_go_on_while_acknowledgements_wait_to_be_written(
    broker: Broker, make_worker: Make, seen: Seen, calling: Calling
) -> None:
    with FaultProxy(broker.url) as proxy:
        worker = make_worker(proxy.url, concurrency=2)

        @worker.task("/queue/a", prefetch=20)
        def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
            seen.add(context.connection)

        with worker:
            send(broker, "/queue/a", "first")
            (connection,) = seen.wait(1)
            wait_until(lambda: left(broker) == 0)
            proxy.stall("up")
            stuck = calling(lambda: connection.send("/topic/nobody", bytes(1 << 25)))
            stuck.until_blocked()
            send(broker, "/queue/a", *map(str, range(10)))
            seen.wait(11)
            assert left(broker) == 10
            proxy.resume("up")
            stuck.result()
            wait_until(lambda: left(broker) == 0)


def test_messages_whose_acknowledgements_were_not_written_in_time_are_delivered_again(
    broker: Broker, make_worker: Make, seen: Seen, calling: Calling
) -> None:
    with FaultProxy(broker.url) as proxy:
        worker = make_worker(
            proxy.url,
            concurrency=3,
            timeouts=stompy.Timeouts(send=0.1),
            reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01)),
        )

        @worker.task("/queue/a", prefetch=20)
        def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
            seen.add(context.connection)

        with worker:
            send(broker, "/queue/a", "first")
            (connection,) = seen.wait(1)
            wait_until(lambda: left(broker) == 0)
            proxy.stall("up")
            stuck = calling(lambda: connection.send("/topic/nobody", bytes(1 << 25), timeout=GIVE_UP))
            stuck.until_blocked()
            send(broker, "/queue/a", *map(str, range(10)))
            wait_until(lambda: "unsettled" in worker.health().tasks["handle"].counts)
            proxy.resume("up")
            wait_until(lambda: left(broker) == 0)
            with contextlib.suppress(stompy.ConnectionLostError):
                stuck.result()


OPTIONS: dict[str, Any] = {
    "content_type": "text/x", "headers": {"a": "b"}, "content_length": False, "persistent": True, "priority": 7,
    "expires": 3_600, "delay": 0.01, "group": "g", "dedupe_id": "d",
}  # fmt: skip


OF_EACH = (
    "message-id", "ack", "timestamp", "receipt", "transaction", "expires", "destination", "subscription",
    "scheduledJobId",
)  # fmt: skip
"""Headers that differ with each message."""


@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "plain"])
def test_a_task_sends_with_every_option_of_a_connection(
    each_broker: Broker, make_worker: Make, transactional: bool
) -> None:
    assert set(OPTIONS) == set(SEND_OPTIONS)
    worker = make_worker(each_broker.url)

    @worker.task("/queue/a", transactional=transactional, attempts=1)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        context.send("/queue/b", "x", **{message.text: OPTIONS[message.text]})

    with stompy.connect(each_broker.url) as conn:
        if transactional and conn.dialect == "artemis":
            pytest.skip("Artemis has no transactional tasks")
        direct = conn.subscribe("/queue/c", ack="client-individual")
        by_task = conn.subscribe("/queue/b", ack="client-individual")
        compared = set()
        with worker:
            for name, value in OPTIONS.items():
                with contextlib.suppress(stompy.ConfigurationError):  # this broker does not support it
                    conn.send("/queue/c", "x", **{name: value}, confirm=True)
                    conn.send("/queue/a", name, confirm=True)
                    expected, found = direct.receive(timeout=WITHIN), by_task.receive(timeout=WITHIN)
                    assert {key: value for key, value in found.headers.items() if key not in OF_EACH} == {
                        key: value for key, value in expected.headers.items() if key not in OF_EACH
                    }
                    compared.add(name)
        assert {"content_type", "headers", "content_length", "persistent", "priority", "expires"} <= compared


@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "plain"])
@pytest.mark.parametrize("persistent", [True, None])
def test_what_a_task_sends_is_as_persistent_as_its_message(
    each_broker: Broker, make_worker: Make, transactional: bool, persistent: bool | None
) -> None:
    worker = make_worker(each_broker.url)

    @worker.task("/queue/a", transactional=transactional, attempts=1)
    def handle(message: stompy.Message, context: stompy.TaskContext) -> str:
        context.send("/queue/b", "x")
        if message.text == "bad":
            raise ValueError
        return "reply"

    with stompy.connect(each_broker.url) as conn:
        if transactional and conn.dialect == "artemis":
            pytest.skip("Artemis has no transactional tasks")
        with worker:
            for text in ("good", "bad"):
                conn.send("/queue/a", text, headers={"reply-to": "/queue/replies"}, persistent=persistent, confirm=True)
            for queue, expected in (("/queue/b", persistent), ("/queue/replies", persistent), ("/queue/a.dead", True)):
                received = conn.subscribe(queue, ack="client-individual").receive(timeout=WITHIN)
                assert (received.headers.get("persistent") == "true") is bool(expected), queue


def test_a_task_can_wait_until_what_it_sent_is_confirmed(broker: Broker, make_worker: Make, seen: Seen) -> None:
    worker = make_worker()

    @worker.task("/queue/a")
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        context.send("/queue/b", "x", confirm=True, timeout=WITHIN)
        seen.add(broker.depth("/queue/b"))

    with worker:
        send(broker, "/queue/a", "1")
        assert seen.wait(1) == [1]
