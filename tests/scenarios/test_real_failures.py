"""Real brokers with their store on disk are killed, stopped and cut off, and nothing that was confirmed or put is lost.

Each broker runs where it can be had; STOMPY_REQUIRE_BROKERS makes its absence a failure.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.dialects.brokers import dialect_named
from stompy.testing.proxied import Direction, Ending
from stompy.testing.proxy import FaultProxy
from tests.support.conversation import Ways, converse, expected_endings, expected_messages
from tests.support.durable import KINDS, NEWEST, SURVIVES, Durable, durable_or_skip, make_queues
from tests.support.needs import each
from tests.support.options import chosen
from tests.support.peer import until
from tests.support.soak import Soak
from tests.support.soak_plan import Plan

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

SOON = 30.0
"""Seconds that something may take before the test fails."""

QUIET = 1.0
"""Seconds without a message after which no more are expected."""

A_PAUSE = 4.0
"""Seconds that a broker stands still; longer than its clients tolerate."""

LONG = chosen.long

MORE = 4 if LONG else 1
"""How many times as much a long run does."""

SPARSE = 1 if LONG else 23
"""Of the bytes of a conversation every how many-th is cut behind."""

VERSIONS = ["1.0", "1.1", "1.2"] if LONG else ["1.2"]

ON_EACH = pytest.mark.parametrize("a_broker", each(sorted(KINDS), group="failures"), indirect=True, scope="module")
ON_THE_NEWEST = pytest.mark.parametrize(
    "a_broker", each(sorted(KINDS if LONG else NEWEST), group="failures"), indirect=True, scope="module"
)


@pytest.fixture(scope="module")
def a_broker(request: pytest.FixtureRequest) -> Iterator[Durable]:
    durable = durable_or_skip(request.param)
    with durable.machine:
        yield durable


@pytest.fixture
def broker(a_broker: Durable) -> Durable:
    """The broker, which runs when the test begins, whatever the one before did to it."""
    a_broker.machine.start()
    return a_broker


@pytest.fixture
def queue() -> str:
    return f"/queue/{uuid.uuid4().hex}"


def consumed(broker: Durable, queue: str, count: int) -> list[stompy.Message]:
    """Take at least `count` messages from a queue, and what else there is."""
    messages: list[stompy.Message] = []
    with stompy.connect(broker.url, **broker.options) as conn:
        subscription = conn.subscribe(queue, ack="client-individual")
        while True:
            try:
                message = subscription.receive(timeout=SOON if len(messages) < count else QUIET)
            except stompy.ReceiveTimeoutError:
                return messages
            message.ack()
            messages.append(message)


def first_copies(messages: list[stompy.Message]) -> list[bytes]:
    """Return the bodies in their order, without those of a message whose id was there before."""
    seen: dict[str, bytes] = {}
    for message in messages:
        seen.setdefault(message.headers["stompy-dedupe-id"], message.body)
    return list(seen.values())


# The soak, with the broker killed and stopped.


@ON_EACH
def test_nothing_confirmed_is_lost(broker: Durable, queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    def killed() -> None:
        broker.machine.kill()
        broker.machine.start()

    def paused() -> None:
        broker.machine.pause()
        try:
            time.sleep(A_PAUSE)
        finally:
            broker.machine.unpause()

    plan = Plan(
        messages=4_000 * MORE,
        cuts=15 * MORE,
        restarts=1 * MORE,
        pauses=1 * MORE,
        window=50,
        prefetch=broker.ways.prefetch,
        timeout=200,
        destination=queue,
        headers=SURVIVES,
        # A silent broker ends a link, so that one that stands still is noticed; `send` waits for one that starts.
        options={**broker.options, "heartbeat": (1.0, 1.0), "timeouts": stompy.Timeouts(connect=5.0, send=200)},
    )
    make_queues(broker.machine, broker.url, queue, **broker.options)
    with FaultProxy(broker.url) as proxy:
        tally = Soak(plan, proxy, killed, paused).run()
    with capsys.disabled():
        print(f"\n--seed={plan.seed} {broker.machine.server} {tally}")
    assert tally.confirmed == tally.consumed == plan.messages
    assert (tally.cuts, tally.restarts, tally.pauses) == (plan.cuts, plan.restarts, plan.pauses)


@ON_THE_NEWEST
def test_a_confirmed_message_survives_a_kill_if_it_was_to_be_persistent(broker: Durable, queue: str) -> None:
    with stompy.connect(broker.url, **broker.options) as conn:
        conn.send(queue, b"transient", persistent=False, confirm=True)
        conn.send(queue, b"unsaid", confirm=True)
        conn.send(queue, b"persistent", persistent=True, confirm=True)
    broker.machine.kill()
    broker.machine.start()
    with stompy.connect(broker.url, **broker.options) as conn:
        assert messages_of(conn, queue, 1) == [b"persistent"]


def messages_of(conn: stompy.Connection, queue: str, count: int) -> list[bytes]:
    """Take at least `count` messages from a queue, and what else comes soon."""
    bodies: list[bytes] = []
    subscription = conn.subscribe(queue)
    with contextlib.suppress(stompy.ReceiveTimeoutError):
        while True:
            bodies.append(subscription.receive(timeout=SOON if len(bodies) < count else QUIET).body)
    return bodies


# The outbox.


@ON_THE_NEWEST
def test_an_outbox_delivers_in_order_when_the_broker_is_back(broker: Durable, queue: str, tmp_path: Path) -> None:
    broker.machine.kill()
    with stompy.Outbox(
        tmp_path / "a.outbox", broker.url, backoff=stompy.Backoff(first=0.01, longest=0.2), **broker.options
    ) as outbox:
        for number in range(200):
            outbox.put(queue, b"%d" % number)
        until(lambda: outbox.stats().last_error is not None)
        assert outbox.stats().waiting == 200
        broker.machine.start()
        outbox.flush(timeout=SOON)
    assert first_copies(consumed(broker, queue, 200)) == [b"%d" % number for number in range(200)]


@ON_EACH
def test_an_outbox_loses_nothing_when_the_broker_is_killed_under_it(
    broker: Durable, queue: str, tmp_path: Path
) -> None:
    count = 1_000 * (MORE + 1)
    make_queues(broker.machine, broker.url, queue, **broker.options)
    with stompy.Outbox(
        tmp_path / "a.outbox", broker.url, backoff=stompy.Backoff(first=0.01, longest=0.2), **broker.options
    ) as outbox:

        def put() -> None:
            for number in range(count):
                outbox.put(queue, b"%d" % number)

        putting = threading.Thread(target=put, name="putting")
        putting.start()
        for kill in range(1, MORE + 1):
            until(lambda kill=kill: outbox.stats().sent >= count * kill // (MORE + 1))  # type: ignore[misc]
            broker.machine.kill()
            broker.machine.start()
        putting.join(SOON)
        assert not putting.is_alive()
        outbox.flush(timeout=SOON)
        assert outbox.stats().dead_letters == 0
    assert first_copies(consumed(broker, queue, count)) == [b"%d" % number for number in range(count)]


@ON_THE_NEWEST
def test_an_outbox_waits_for_a_broker_that_stands_still(broker: Durable, queue: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        **broker.options,
        "heartbeat": (1.0, 0.2),
        "timeouts": stompy.Timeouts(connect=1.0, receipt=2.0),
    }
    with stompy.Outbox(
        tmp_path / "a.outbox", broker.url, backoff=stompy.Backoff(first=0.01, longest=0.2), **options
    ) as outbox:
        outbox.put(queue, b"before")
        outbox.flush(timeout=SOON)
        broker.machine.pause()
        try:
            for number in range(20):
                outbox.put(queue, b"%d" % number)
            until(lambda: outbox.stats().last_error is not None)
        finally:
            broker.machine.unpause()
        outbox.flush(timeout=SOON)
    assert first_copies(consumed(broker, queue, 21)) == [b"before", *(b"%d" % number for number in range(20))]


@ON_THE_NEWEST
def test_an_outbox_sets_aside_what_the_broker_refuses(broker: Durable, queue: str, tmp_path: Path) -> None:
    with stompy.Outbox(
        tmp_path / "a.outbox",
        broker.url,
        attempts=2,
        backoff=stompy.Backoff(first=0.01, longest=0.05),
        **broker.options,
    ) as outbox:
        refused: list[str] = []
        for number in range(20):
            outbox.put(queue, b"%d" % number)
            if number % 10 == 5:
                headers = broker.ways.poison[len(refused) % len(broker.ways.poison)]
                refused.append(outbox.put(queue, b"poison", headers=headers))
        outbox.flush(timeout=SOON)
        aside = list(outbox.dead_letters())
        assert [message.id for message in aside] == refused
        assert all(message.error_message for message in aside)
    assert first_copies(consumed(broker, queue, 20)) == [b"%d" % number for number in range(20)]


# The fault proxy.


@ON_THE_NEWEST
@pytest.mark.parametrize("ending", ["fin", "rst"])
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_ends_each_call_as_it_must(broker: Durable, version: str, direction: Direction, ending: Ending) -> None:
    place = 0
    while cut_and_check(broker, version, direction, ending, place):
        place += SPARSE


def cut_and_check(broker: Durable, version: str, direction: Direction, ending: Ending, place: int) -> bool:
    """Cut a conversation behind so many bytes; return whether that was before its end."""
    transacted = dialect_named(broker.ways.dialect).transacted_receipts
    ways = Ways(f"/queue/{uuid.uuid4().hex}", f"/queue/{uuid.uuid4().hex}", transacted)
    with FaultProxy(broker.url) as proxy:
        proxy.upcoming.cut_after(place, direction=direction, ending=ending)
        endings = converse(proxy, version, ways, **broker.options)
        (link,) = proxy.links
        until(lambda: not link.running)
        up, down = link.recorded("up"), link.recorded("down")
        was_cut = link.forwarded(direction) == place
    where = f"STOMP {version}, {ending} behind {place} bytes {direction}; up {up!r}; down {down!r}"
    expected = expected_endings(up, down, ways, cut=direction if was_cut else None)
    for call, came in endings.items():
        assert came in expected[call], f"{call} ended as {came!r}, not {set(expected[call])}; {where}"
    for queue, kept in expected_messages(up, down, ways).items():
        left = messages_left(broker, queue, len(kept))
        assert [message.body.decode() for message in left] == [one.body for one in kept], f"{queue}; {where}"
        for message, one in zip(left, kept, strict=True):
            assert message.redelivered or not one.seen, f"{one} came again without a flag; {where}"
    return was_cut


def messages_left(broker: Durable, queue: str, count: int) -> list[stompy.Message]:
    """Return what a new connection finds: at least `count` messages, and what else came before one that is last."""
    left: list[stompy.Message] = []
    last = False
    with stompy.connect(broker.url, heartbeat=(0, 0), **broker.options) as conn:
        conn.send(queue, b"the last", confirm=True)
        subscription = conn.subscribe(queue)
        while not last or len(left) < count:
            message = subscription.receive(timeout=SOON)
            if message.body == b"the last":
                last = True
            else:
                left.append(message)
    return left


def stalled(proxy: FaultProxy) -> None:
    proxy.stall("down")


def swallowed(proxy: FaultProxy) -> None:
    proxy.black_hole()
    proxy.cut("rst")


def refused(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut("fin")


@ON_THE_NEWEST
@pytest.mark.parametrize("fault", [stalled, swallowed, refused], ids=lambda fault: fault.__name__)
def test_a_connection_comes_back_when_the_network_does(
    broker: Durable, queue: str, fault: Callable[[FaultProxy], None]
) -> None:
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.01, longest=0.1))
    options: dict[str, Any] = {
        **broker.options,
        "heartbeat": (1.0, 0.2),
        "timeouts": stompy.Timeouts(connect=1.0),
        "reconnect": policy,
    }
    with FaultProxy(broker.url) as proxy, stompy.connect(proxy.url, **options) as conn:
        subscription = conn.subscribe(queue, ack="client-individual")
        conn.send(queue, b"before", confirm=True)
        subscription.receive(timeout=SOON).ack_async()
        fault(proxy)
        until(lambda: not conn.connected)
        proxy.heal()
        proxy.cut("rst")  # what was swallowed stays so
        until(lambda: conn.connected)
        conn.send(queue, b"after", confirm=True, timeout=SOON)
        while (message := subscription.receive(timeout=SOON)).body != b"after":
            assert message.redelivered
            message.ack()


@ON_THE_NEWEST
def test_a_chopped_and_slow_network_only_takes_longer(broker: Durable, queue: str) -> None:
    with FaultProxy(broker.url) as proxy:
        proxy.chop()
        proxy.delay(0.002)
        with stompy.connect(proxy.url, heartbeat=(0, 0), **broker.options) as conn:
            subscription = conn.subscribe(queue)
            body = bytes(range(256))
            conn.send(queue, body, confirm=True)
            assert subscription.receive(timeout=SOON).body == body
