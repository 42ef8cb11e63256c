"""What a signal leaves behind that strikes in the middle of a call: everything as if the call had not been made."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import stompy
from stompy import locks
from stompy.broker import Broker
from tests.support.options import chosen as options
from tests.support.peer import WITHIN, until
from tests.support.seed import SEED_SETTING, chance
from tests.support.strikes import Strike

QUICK = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))
HANDING_OVER = (" receive", " __iter__", " _next_of_loop")
SAMPLE = 40
"""Places that are struck of each call in the usual run; all of them where the suite is run in a long run."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what a strike right behind the making of a socket leaves to the collector, before another test has to."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Room:
    """A broker, a connection to try, and another thread: a lock left held would not stop the thread that holds it."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        self.broker = broker
        self.options = {"reconnect": QUICK, "heartbeat": (0, 0), "timeouts": stompy.Timeouts(send=5.0), **options}
        self.elsewhere = concurrent.futures.ThreadPoolExecutor(1, "test-elsewhere")
        self.connection = self.connect()
        self.inbox = self.connection.subscribe("/queue/inbox", ack="client-individual")
        self.helper = stompy.connect(broker.url, reconnect=QUICK, heartbeat=(0, 0))
        self.helper.subscribe("/queue/service", self._answer)
        self.taken: stompy.Message | None = None
        self.transaction: stompy.Transaction | None = None
        self.other: stompy.Subscription | None = None
        self.health = self.helper.subscribe("/queue/health")

    def connect(self) -> stompy.Connection:
        return stompy.connect(self.broker.url, **self.options)

    def _answer(self, request: stompy.Message) -> None:
        self.helper.send(request.headers["reply-to"], headers={"correlation-id": request.headers["correlation-id"]})

    def fill(self) -> None:
        """Have one message in the inbox."""
        self.taken = None
        self.helper.send("/queue/inbox", "m", confirm=True)
        until(lambda: self.inbox.queued)

    def settle(self) -> None:
        """Acknowledge the message that was taken, unless it is, or its link is over."""
        message = self.taken
        if message is not None and not message.session_ended and message.settled is None:
            message.ack_async()

    def abort(self) -> None:
        """Abort the transaction: a signal as the block ends may leave it open, as nothing in Python could prevent."""
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            with contextlib.suppress(stompy.StompError):
                transaction.abort()

    def check(self) -> None:
        """Use the connection, also from another thread, and look that nothing is held or counted any more."""
        self.abort()
        self.connection.send("/queue/health", "here")
        assert self.health.receive(timeout=5.0).text == "here"
        self.elsewhere.submit(self._check).result(WITHIN)

    def _check(self) -> None:
        connection = self.connection
        if self.other is not None:
            self.other.close()
        connection.send("/queue/health", "well", confirm=True, timeout=5.0)
        assert self.health.receive(timeout=5.0).text == "well"
        while self.inbox.queued:
            with contextlib.suppress(stompy.AckError):  # of a link that is over
                self.inbox.receive(timeout=0).ack()
        until(lambda: connection.stats().receipts_pending == 0, within=5.0)
        stats = connection.stats()
        assert (stats.subscriptions - self._replies(connection), stats.unconfirmed) == (1, 0)
        assert (stats.queued_messages, stats.queued_bytes) == (0, 0)
        link = connection._links.link
        assert not link.flow.holders
        until(lambda: self.broker.stats().transactions == 0, within=5.0)
        assert self.broker.stats().errors == 0
        request = connection.request("/queue/service", timeout=5.0)
        assert request is not None

    def _replies(self, connection: stompy.Connection) -> int:
        return sum(one.destination.startswith("/temp-queue/") for one in connection._subscriptions.all())

    def close(self) -> None:
        self.connection.close()
        self.helper.close()
        self.elsewhere.shutdown()


@pytest.fixture
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(locks, "checked", False)  # as in a program: the checked ones are written in Python
    with Broker() as broker:
        room = Room(broker, **getattr(request, "param", {}))
        yield room
        room.close()


def send(room: Room) -> None:
    room.connection.send("/queue/a", "body")


def send_receipt(room: Room) -> None:
    room.connection.send_async("/queue/a", {"a": 1})


def confirm(room: Room) -> None:
    room.connection.send("/queue/a", "body", confirm=True)


def flush(room: Room) -> None:
    room.connection.send_async("/queue/a", "body")
    room.connection.flush()


def batch(room: Room) -> None:
    with room.connection.batch():
        room.connection.send_async("/queue/a", "1")
        room.connection.send("/queue/a", "2")


def subscribe(room: Room) -> None:
    room.other = None
    room.other = room.connection.subscribe("/queue/b")


def subscribe_handler(room: Room) -> None:
    room.other = None
    room.other = room.connection.subscribe("/queue/b", print, own_thread=True)


def request(room: Room) -> None:
    room.connection.request("/queue/service")


def transaction(room: Room) -> None:
    with room.connection.transaction() as room.transaction:
        room.transaction.send("/queue/a", "1")
        room.transaction.send("/queue/a", "2")


def abort(room: Room) -> None:
    room.transaction = room.connection.transaction()
    with room.transaction:
        room.transaction.send("/queue/a", "1")
        room.transaction.abort()


def stats(room: Room) -> None:
    room.connection.stats()


CALLS = [send, send_receipt, confirm, flush, batch, subscribe, subscribe_handler, request, transaction, abort, stats]


def chosen(places: int) -> list[int]:
    """Return the places to strike: all of them in a long run, else some."""
    if options.long:
        return list(range(places))
    print(SEED_SETTING)
    return sorted(chance("strikes", places).sample(range(places), min(SAMPLE, places)))


def sweep(
    room: Room,
    work: Callable[[], object],
    after: Callable[[Strike], None] = lambda strike: None,
    *,
    prepare: Callable[[], object] = lambda: None,
) -> None:
    """Strike at the places of a call, all or some of them, and look after each."""
    count = Strike(None)
    prepare()
    count.run(work)
    after(count)
    room.check()
    for place in chosen(count.places):
        prepare()
        strike = Strike(place)
        strike.run(work)
        try:
            assert strike.raised is None or type(strike.raised) is KeyboardInterrupt
            after(strike)
            room.check()
        except BaseException as error:
            raise AssertionError(f"struck at {strike.where}, place {place}") from error


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_call_that_is_struck_leaves_the_connection_usable(room: Room, call: Callable[[Room], None]) -> None:
    sweep(room, lambda: call(room))


@pytest.mark.parametrize("room", [{"reconnect": replace(QUICK, resend_unconfirmed=True)}], indirect=True)
@pytest.mark.parametrize("call", [confirm, batch], ids=lambda call: call.__name__)
def test_so_does_one_whose_send_is_kept(room: Room, call: Callable[[Room], None]) -> None:
    sweep(room, lambda: call(room))


def receive(room: Room) -> None:
    room.taken = room.inbox.receive(timeout=WITHIN)


def iterate(room: Room) -> None:
    for message in room.inbox:
        room.taken = message
        break


# A generator that is closed as it is dropped has nobody to raise to.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", [receive, iterate], ids=lambda call: call.__name__)
def test_a_receive_that_is_struck_leaves_its_message_in_the_inbox(room: Room, call: Callable[[Room], None]) -> None:
    """But for the very moment of handing it over, which no library could guard: then the broker has it still."""

    def look(strike: Strike) -> None:
        handing_over = strike.where.endswith(HANDING_OVER)
        assert room.taken is not None or room.inbox.queued == 1 or handing_over
        room.settle()

    sweep(room, lambda: call(room), look, prepare=room.fill)


@pytest.mark.parametrize("command", ["ack", "nack"])
def test_a_message_whose_ack_is_struck_is_settled_or_can_be(room: Room, command: str) -> None:
    def prepare() -> None:
        room.fill()
        room.taken = room.inbox.receive(timeout=WITHIN)

    def work() -> None:
        assert room.taken is not None
        getattr(room.taken, command)()

    sweep(room, work, lambda strike: room.settle(), prepare=prepare)


def test_a_transaction_that_is_struck_leaves_its_messages_to_be_settled(room: Room) -> None:
    def prepare() -> None:
        room.fill()
        room.taken = room.inbox.receive(timeout=WITHIN)
        room.transaction = None

    def work() -> None:
        assert room.taken is not None
        with room.connection.transaction() as room.transaction:
            room.transaction.ack(room.taken)
            room.transaction.send("/queue/a", "1")

    def look(strike: Strike) -> None:
        room.abort()
        room.settle()

    sweep(room, work, look, prepare=prepare)


def test_a_disconnect_that_is_struck_can_be_made_again(room: Room) -> None:
    made: list[stompy.Connection] = []

    def look(strike: Strike) -> None:
        room.elsewhere.submit(made[-1].close).result(WITHIN)
        assert not made[-1].connected
        name = made[-1]._links._name
        until(lambda: not [one for one in threading.enumerate() if f"-{name}-" in one.name])

    sweep(
        room,
        lambda: made[-1].close(),
        look,
        prepare=lambda: made.append(room.connect()),
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_threads_that_send_and_are_struck_by_real_signals_go_on_sending(room: Room) -> None:
    """Two threads send without a pause, and the main thread is struck by a timer again and again."""
    over = threading.Event()
    draw = chance("interrupts")
    sent = 0

    def send_on() -> int:
        count = 0
        while not over.is_set():
            with contextlib.suppress(stompy.ConnectionLostError):  # of the link that a half-sent frame ended
                room.connection.send("/queue/a", "other")
                count += 1
        return count

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    other = room.elsewhere.submit(send_on)
    try:
        for _ in range(60):
            try:
                # Again a second later: what is raised in a `__del__` is printed by Python, and reaches nobody.
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0005, 0.005), 1.0)
                while True:
                    with contextlib.suppress(stompy.ConnectionLostError):
                        room.connection.send("/queue/a", "mine")
                        sent += 1
            except KeyboardInterrupt:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        over.set()
    assert other.result(WITHIN) > 0
    assert sent > 0
    room.check()


def test_a_signal_handler_may_disconnect_in_the_middle_of_a_send(room: Room) -> None:
    """It returns when its timeout is over at the latest, and the connection is closed."""
    made: list[stompy.Connection] = []

    def handle() -> BaseException:
        made[-1].close(timeout=0.05)  # its threads may wait for a lock of the very send
        return KeyboardInterrupt()

    def work() -> None:
        made[-1].send_async("/queue/a", "body")

    places = Strike(None)
    made.append(room.connect())
    places.run(work)
    made[-1].close()
    for place in chosen(places.places):
        made.append(room.connect())
        strike = Strike(place, handle)
        strike.run(work)
        assert not made[-1].connected, strike.where
        room.elsewhere.submit(made[-1].close).result(WITHIN)
