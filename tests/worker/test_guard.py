"""Whatever the code around a task raises, each message is settled or redelivered, and the worker goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenacity

import stompy
import stompy.worker
from stompy.broker import Broker
from stompy.frames.frame import Frame
from stompy.worker.slot import Slot
from tests.support.seed import SEED_SETTING, chance
from tests.worker.conftest import WITHIN, Seen, left, wait_until

Make = Callable[..., stompy.Worker]


class Untellable(Exception):
    """Cannot be turned into text."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class UntellableExit(BaseException):
    """The same, and its text ends the thread."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


RAISED: list[Callable[[], BaseException]] = [
    ValueError, Untellable, UntellableExit, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError,
    MemoryError, RecursionError, StopIteration, OSError, lambda: stompy.Defer(0.01), lambda: stompy.Reject("no"),
    lambda: stompy.Retry(delay=0.01), lambda: stompy.ConnectionLostError("x"), lambda: stompy.NotConnectedError("x"),
    lambda: stompy.AckError("x"), lambda: stompy.BrokerError("x", frame=Frame("ERROR")),
    lambda: stompy.ConfigurationError("x"),
]  # fmt: skip


class Raising(stompy.worker.Middleware):
    """Stands for every callable that a user gives to a worker; each of them raises now and then.

    Each kind of call raises a certain number of times, so that a message gets through in the end.
    """

    def __init__(self, *words: object, times: int) -> None:
        self._random = chance("guard", *words)
        self._left = dict.fromkeys(self.PLACES, times)
        self._lock = threading.Lock()
        self.raised: Counter[str] = Counter()
        self.seen: set[str] = set()

    PLACES = (
        "decode", "task", "backoff", "retry_in_place", "key", "identity", "contains", "add", "log", "reply",
        "before", "after", "failed", "retried", "deferred", "dead_lettered", "duplicate", "unsettled",
    )  # fmt: skip

    def maybe(self, place: str) -> None:
        with self._lock:
            if not self._left[place] or self._random.random() < 0.5:
                return
            self._left[place] -= 1
            self.raised[place] += 1
            error = self._random.choice(RAISED)()
        raise error

    # A store of ids.

    def __contains__(self, identity: str) -> bool:
        self.maybe("contains")
        return identity in self.seen

    def add(self, identity: str) -> None:
        self.maybe("add")
        self.seen.add(identity)

    # A middleware.

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in self.PLACES:
            raise AttributeError(name)
        return lambda *arguments: self.maybe(name)


class RaisingHandler(logging.Handler):
    """A handler of logging that raises."""

    def __init__(self, raise_one: Callable[[], None]) -> None:
        super().__init__()
        self._raise_one = raise_one

    def emit(self, record: logging.LogRecord) -> None:
        self._raise_one()


@pytest.fixture
def log_with() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Return what adds a handler to the worker's log, which is removed at the end."""
    added: list[logging.Handler] = []
    log = logging.getLogger("stompy.worker")

    def add(raise_one: Callable[[], None]) -> None:
        added.append(RaisingHandler(raise_one))
        log.addHandler(added[-1])

    yield add
    for handler in added:
        log.removeHandler(handler)


def send(url: str, *bodies: Any, **arguments: Any) -> None:
    with stompy.connect(url) as conn:
        for body in bodies:
            conn.send("/queue/a", body, confirm=True, **arguments)


def errors(worker: stompy.Worker) -> int:
    return sum(task.counts.get("errors", 0) for task in worker.health().tasks.values())


@pytest.mark.parametrize("raised", [Untellable, UntellableExit])
def test_an_exception_without_a_text_is_a_failure_like_any_other(
    broker: Broker, make_worker: Make, raised: type[BaseException]
) -> None:
    worker = make_worker()

    @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message) -> None:
        raise raised

    with worker:
        send(broker.url, *"1234")
        wait_until(lambda: broker.depth("/queue/a.dead") == 4)
        assert left(broker) == 0
    (dead, *_) = broker.browse("/queue/a.dead")
    assert dead.headers["stompy-error"].endswith(raised.__name__)


@pytest.mark.parametrize("raised", [OSError, SystemExit])
def test_a_store_that_fails_after_the_commit_ends_no_slot(
    broker: Broker, make_worker: Make, raised: type[BaseException]
) -> None:
    class Full:
        def __contains__(self, identity: str) -> bool:
            return False

        def add(self, identity: str) -> None:
            raise raised("the disk is full")

    worker = make_worker()
    worker.add(lambda message: None, "/queue/a", transactional=True, seen=Full())
    with worker:
        send(broker.url, *"1234")
        wait_until(lambda: errors(worker) == 4)
        wait_until(lambda: left(broker) == 0)
        health = worker.health()
        assert health.ready
        assert "the disk is full" in str(health.last_error)
    assert broker.depth("/queue/a.dead") == 0


@pytest.mark.parametrize("event", ["before", "after"])
def test_a_middleware_that_exits_ends_no_slot(broker: Broker, make_worker: Make, event: str) -> None:
    def leave(*arguments: object) -> None:
        raise SystemExit(1)

    worker = make_worker(middleware=[type("Middleware", (), {event: staticmethod(leave)})()])
    worker.add(lambda message: None, "/queue/a")
    with worker:
        send(broker.url, *"1234")
        wait_until(lambda: errors(worker) == 4)
        wait_until(lambda: left(broker) == 0)


def test_a_handler_of_logging_that_raises_ends_no_slot(
    broker: Broker, make_worker: Make, log_with: Callable[[Callable[[], None]], None]
) -> None:
    def leave() -> None:
        raise SystemExit(1)

    worker = make_worker()

    @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message) -> None:
        raise ValueError

    with worker:
        log_with(leave)
        send(broker.url, *"1234")
        wait_until(lambda: broker.depth("/queue/a.dead") == 4)
        assert left(broker) == 0
        assert errors(worker) >= 8


@pytest.mark.parametrize(
    ("delay", "outcome"),
    [
        (float("inf"), "dead_lettered"),
        ("soon", "dead_lettered"),
        (float("nan"), "retried"),
        (-1, "retried"),
        (1e300, "retried"),
    ],
)
def test_whatever_a_backoff_returns_the_message_is_settled(
    each_broker: Broker, make_worker: Make, delay: Any, outcome: str
) -> None:
    worker = make_worker(each_broker.url)

    @worker.task("/queue/a", backoff=lambda attempt: delay)
    def handle(message: stompy.Message) -> None:
        raise ValueError

    with worker:
        send(each_broker.url, "1")
        wait_until(lambda: outcome in worker.health().tasks["handle"].counts)
        wait_until(lambda: left(each_broker) == 0)


def test_a_key_that_raises_when_compared_holds_no_message_up(broker: Broker, make_worker: Make, seen: Seen) -> None:
    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise SystemExit

    worker = make_worker()
    worker.add(lambda message: seen.add(message.text), "/queue/a", key=lambda message: Key())
    with worker:
        send(broker.url, *"1234")
        wait_until(lambda: len(seen.items) + broker.depth("/queue/a.dead") == 4)
        assert seen.items
        wait_until(lambda: left(broker) == 0)


@pytest.mark.parametrize("like", [None, "activemq", "artemis", "rabbitmq"])
@pytest.mark.parametrize("options", [{}, {"transactional": True}, {"keyed": True}], ids=["plain", "tx", "keyed"])
def test_whatever_is_raised_wherever_no_message_is_lost_and_no_slot_ends(
    make_worker: Make, seen: Seen, log_with: Callable[[Callable[[], None]], None], like: Any, options: dict[str, Any]
) -> None:
    if like == "artemis" and "transactional" in options:
        pytest.skip("Artemis has no transactional tasks")
    raising = Raising(like, options, times=12)

    def backoff(attempt: int) -> float:
        raising.maybe("backoff")
        return 0.01

    def decode(message: stompy.Message) -> str:
        raising.maybe("decode")
        return message.text

    def key(message: stompy.Message) -> str:
        raising.maybe("key")
        return message.text[-1]

    def identity(message: stompy.Message) -> str:
        raising.maybe("identity")
        return message.headers["order"]

    def before_call(state: tenacity.RetryCallState) -> None:
        raising.maybe("retry_in_place")

    with Broker(like=like) as broker:
        worker = make_worker(
            broker.url, middleware=[raising], reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01))
        )

        @worker.task(
            "/queue/a", attempts=3, backoff=backoff, decode=decode, seen=raising, identity=identity,
            retry_in_place=tenacity.Retrying(stop=tenacity.stop_after_attempt(1), before=before_call),
            key=key if "keyed" in options else None, transactional="transactional" in options,
        )  # fmt: skip
        def handle(text: str, context: stompy.TaskContext) -> object:
            raising.maybe("task")
            seen.add(text)
            return None if raising._random.random() < 0.5 else {"text": text}

        with worker:
            log_with(lambda: raising.maybe("log"))
            bodies = [str(number) for number in range(100)]
            with stompy.connect(broker.url) as conn:
                for body in bodies:
                    conn.send("/queue/a", body, headers={"order": body, "reply-to": "/queue/replies"}, confirm=True)

            def ended() -> set[str]:
                return {message.text for message in broker.browse("/queue/a.dead")} | set(seen.items)

            wait_until(lambda: ended() == set(bodies) and left(broker) == 0, within=60)
            wait_until(lambda: not any(depth.total for name, depth in broker.stats().queues.items() if "park" in name))
            before = worker.health()
            send(broker.url, *(f"after {number}" for number in range(4)), headers={"order": "x"})
            wait_until(lambda: left(broker) == 0)
            assert before.state == worker.health().state == "running"
            threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("stompy-worker-hand")]
            assert len(threads) == 2, SEED_SETTING
            assert raising.raised["task"], SEED_SETTING


def test_a_slot_that_ends_all_the_same_ends_the_worker(
    broker: Broker, make_worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(self: object) -> None:
        raise SystemExit

    monkeypatch.setattr(Slot, "_loop", bug)
    worker = make_worker()
    worker.add(print, "/queue/a")
    codes: list[int] = []
    runner = threading.Thread(target=lambda: codes.append(worker.run()))
    runner.start()
    runner.join(WITHIN)
    assert codes == [stompy.WorkerExit.FAILED]


@pytest.mark.parametrize("raised", [OSError, SystemExit])
def test_a_handler_of_logging_that_raises_for_every_record_stops_no_worker(
    each_broker: Broker, make_worker: Make, seen: Seen, raised: type[BaseException]
) -> None:
    def leave() -> None:
        raise raised

    worker = make_worker(each_broker.url, reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01)))

    @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        if message.text == "bad":
            raise ValueError
        seen.add(message.text)

    log, handler = logging.getLogger("stompy"), RaisingHandler(leave)
    log.addHandler(handler)
    try:
        with worker:
            send(each_broker.url, "bad", "1")
            seen.wait(1)
            for number in (2, 3):
                for connection in each_broker.connections():
                    each_broker.kill(connection)
                wait_until(lambda: worker.health().ready)
                send(each_broker.url, str(number))
                seen.wait(number)
            # RabbitMQ keeps two if the session ends between them.
            wait_until(lambda: each_broker.depth("/queue/a.dead") >= 1 and left(each_broker) == 0)
    finally:
        log.removeHandler(handler)
