"""Many threads at a switch interval of a microsecond: no deadlock, nothing lost or doubled, no lock out of rank."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import stompy
from stompy.broker import Broker
from tests.support.peer import until
from tests.transport.conftest import Call, Calling
from tests.transport.conftest import calling as calling

# On a busy machine Python does little else than switch.
pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("quick_switches")]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_twenty_threads_wait_for_receipts_beside_handlers_that_send(broker: Broker, calling: Calling) -> None:
    with stompy.connect(broker.url, heartbeat=(5, 5)) as conn:
        echoed: list[bytes] = []
        answered: list[bytes] = []

        def echo(message: stompy.Message) -> None:
            conn.send("/queue/echo", message.body, confirm=len(echoed) % 10 == 0)
            echoed.append(message.body)

        conn.subscribe("/queue/in", echo)
        conn.subscribe("/queue/echo", lambda message: answered.append(message.body), own_thread=True)

        def produce(place: int) -> None:
            for number in range(30):
                conn.send("/queue/in", b"%d-%d" % (place, number), confirm=True)

        for call in [calling(partial(produce, place)) for place in range(20)]:
            call.result()
        until(lambda: len(answered) >= 600)
        expected = sorted(b"%d-%d" % (place, number) for place in range(20) for number in range(30))
        assert sorted(answered) == sorted(echoed) == expected
        assert conn.stats().receipts_pending == 0
        assert conn.stats().unrouted == 0


def test_both_windows_full_with_sends_from_handlers(broker: Broker, calling: Calling) -> None:
    body = b"x" * 60_000
    with stompy.connect(broker.url, limits=stompy.Limits(max_inbox_messages=5)) as conn:
        seen: list[int] = []

        def forward(message: stompy.Message) -> None:
            if message.headers.get("hops") != "1":
                conn.send("/queue/loop", message.body, headers={"hops": 1})
            seen.append(1)

        conn.subscribe("/queue/loop", forward)

        def produce() -> None:
            for _ in range(15):
                conn.send("/queue/loop", body)

        for call in [calling(produce) for _ in range(4)]:
            call.result()
        until(lambda: len(seen) >= 120)
        assert len(seen) == 120


def test_acks_from_four_threads_leave_nothing_behind(broker: Broker, calling: Calling) -> None:
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe("/queue/a", ack="client-individual", prefetch=50)
        for number in range(800):
            conn.send("/queue/a", b"%d" % number)
        seen: list[bytes] = []
        left = threading.Semaphore(800)

        def consume() -> None:
            while left.acquire(blocking=False):
                message = subscription.receive(timeout=20)
                seen.append(message.body)
                message.ack()

        for call in [calling(consume) for _ in range(4)]:
            call.result()
    assert sorted(seen) == sorted(b"%d" % number for number in range(800))
    until(lambda: broker.stats().sessions == 0)
    assert "/queue/a" not in broker.stats().queues
    assert broker.stats().redelivered == 0


def test_subscribing_and_unsubscribing_beside_a_flood(broker: Broker, calling: Calling) -> None:
    with stompy.connect(broker.url) as conn:
        done = threading.Event()

        def flood() -> None:
            while not done.is_set():
                conn.send_async("/topic/flood", "x")
                conn.flush(timeout=20)

        flooding = calling(flood)

        def come_and_go(own_thread: bool) -> None:
            for _ in range(15):
                heard = threading.Event()
                subscription = conn.subscribe("/topic/flood", lambda _: heard.set(), own_thread=own_thread)  # noqa: B023
                assert heard.wait(20)
                subscription.close()

        for call in [calling(partial(come_and_go, own)) for own in (True, False, True, False)]:
            call.result()
        done.set()
        flooding.result()
        assert conn.stats().subscriptions == 0


def sending(conn: stompy.Connection) -> None:
    while True:
        conn.send("/queue/a", b"x" * 1000, confirm=True)


def batching(conn: stompy.Connection) -> None:
    while True:
        with conn.batch():
            for _ in range(10):
                conn.send("/queue/a", b"x")
        conn.flush(timeout=None)  # so that the broker keeps up


def subscribing(conn: stompy.Connection) -> None:
    while True:
        conn.subscribe("/queue/b", lambda message: None, own_thread=True).close()


def receiving(conn: stompy.Connection) -> None:
    subscription = conn.subscribe("/queue/a", ack="client-individual")
    while True:
        subscription.receive(timeout=None).ack()


def iterating(conn: stompy.Connection) -> None:
    for message in conn.subscribe("/queue/a", ack="client-individual"):
        message.ack()
    raise stompy.NotConnectedError("the iteration ended with the connection, as it should")


def transacting(conn: stompy.Connection) -> None:
    while True:
        with conn.transaction() as transaction:
            transaction.send("/queue/a", b"x" * 1000)


def asking(conn: stompy.Connection) -> None:
    while True:
        conn.request("/queue/nobody", "?", timeout=None)


# With no limit of its own that a busy machine could reach: the end of the connection is to end it.
ENDLESS = stompy.Timeouts(receipt=1_000, send=1_000)
ACTIONS = [sending, batching, subscribing, receiving, iterating, transacting, asking]


def ends_well(call: Call) -> None:
    """Whether a call that was running when the connection closed ends with an error of ours that says so."""
    with pytest.raises((stompy.NotConnectedError, stompy.ConnectionLostError, stompy.AckError)):
        call.result()


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_a_close_ends_whatever_is_running(
    broker: Broker, calling: Calling, action: Callable[[stompy.Connection], None]
) -> None:
    for _ in range(8):
        conn = stompy.connect(broker.url, heartbeat=(5, 5), timeouts=ENDLESS)
        calls = [calling(partial(action, conn)) for _ in range(3)]
        conn.send("/queue/a", b"x", confirm=True)
        conn.close(timeout=20)
        for call in calls:
            ends_well(call)
    assert broker.stats().errors == 0


def test_a_close_ends_everything_at_once(broker: Broker, calling: Calling) -> None:
    choice = random.Random(7)
    for _ in range(5):
        conn = stompy.connect(
            broker.url, heartbeat=(5, 5), timeouts=ENDLESS, limits=stompy.Limits(max_inbox_messages=20)
        )
        calls = [calling(partial(action, conn)) for action in ACTIONS * 2]
        for _ in range(choice.randrange(5)):
            conn.send("/queue/a", b"x", confirm=True)
        closers = [calling(partial(conn.close, timeout=20)) for _ in range(3)]
        for closer in closers:
            closer.result()
        for call in calls:
            ends_well(call)
    assert broker.stats().errors == 0


def test_a_broker_that_goes_ends_whatever_is_running(calling: Calling) -> None:
    for _ in range(3):
        broker = Broker().start()
        conn = stompy.connect(broker.url, heartbeat=(5, 5), timeouts=ENDLESS)
        calls = [calling(partial(action, conn)) for action in ACTIONS]
        conn.send("/queue/a", b"x", confirm=True)
        broker.close()
        for call in calls:
            ends_well(call)
        conn.close()


def test_many_short_connections_leave_nothing(broker: Broker, calling: Calling) -> None:
    def visit() -> None:
        for number in range(4):
            with stompy.connect(broker.url, heartbeat=(5, 5)) as conn:
                conn.send("/queue/visits", b"%d" % number)

    for call in [calling(visit) for _ in range(8)]:
        call.result()
    until(lambda: broker.stats().sessions == 0)
    assert broker.depth("/queue/visits") == 32
    assert broker.stats().errors == 0
