"""Hostile servers: every attack ends in a named error, in its time and within its memory."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import stompy
from stompy.connection.subscription import Subscription
from stompy.connection.subscriptions import ActiveSubscription
from tests.hostile.script import WITHIN, Actor, Step, bounded
from tests.hostile.servers import ATTACKS, Attack
from tests.support.grouped import grouped
from tests.support.peer import until


class Hanging(stompy.Listener):
    """A listener that takes its time with the first receipt."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.called = threading.Event()

    def on_receipt(self, frame: stompy.Frame) -> None:
        self.called.set()
        self.go_on.wait(WITHIN)


class Victim:
    """A user of the connection; each method is what one may do with it."""

    def __init__(self, conn: stompy.Connection, attack: Attack) -> None:
        self._conn = conn
        self._attack = attack
        self._active = ActiveSubscription(conn._subscriptions, id="1", destination="/queue/a", ack="auto")
        self._subscription = Subscription(self._active)
        conn._subscriptions.add(self._active, timeout=0, announce=False)

    def act(self) -> None:
        getattr(self, self._attack.act)()

    def connect(self) -> None:
        self.receive()  # what came with CONNECTED may be seen now only

    def receive(self) -> None:
        while True:
            try:
                self._subscription.receive(timeout=self._attack.seconds)
            except stompy.ReceiveTimeoutError as late:
                pytest.fail(f"the link did not end: {late}")

    def receive_soon(self) -> None:
        self._subscription.receive(timeout=0.3)

    def text(self) -> None:
        self._subscription.receive(timeout=self._attack.seconds).text  # noqa: B018

    def json(self) -> None:
        self._subscription.receive(timeout=self._attack.seconds).json()

    def confirm(self) -> None:
        self._conn.send("/queue/a", "x", confirm=True)

    def many(self) -> None:
        for _ in range(1000):
            self._conn.send_async("/queue/a", "x")

    def subscribe(self) -> None:
        self._conn.subscribe("/queue/b")

    def request(self) -> None:
        self._conn._subscriptions.forget(self._active)
        self._conn.request("/queue/a", "x", timeout=0.3)

    def transaction(self) -> None:
        with self._conn.transaction() as transaction:
            transaction.send("/queue/a", "x")

    def disconnect(self) -> None:
        self._conn.close()

    def send_much(self) -> None:
        while True:
            self._conn.send("/queue/a", b"x" * 1_000_000)

    def hang_in_a_listener(self) -> None:
        hanging = Hanging()
        self._conn.add_listener(hanging)
        assert hanging.called.wait(WITHIN)
        until(lambda: self._conn.stats().reading_paused, "the gate shuts")
        hanging.go_on.set()


@contextlib.contextmanager
def serving(script: tuple[Step, ...]) -> Iterator[tuple[str, list[Actor]]]:
    """Return the address of a server that plays a script to the one who comes, and who plays it."""
    listener = socket.create_server(("127.0.0.1", 0))
    actors: list[Actor] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            actors.append(Actor(sock, script))
            actors[0].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"stomp://127.0.0.1:{listener.getsockname()[1]}", actors
    finally:
        acceptor.join(WITHIN)
        for actor in actors:
            actor.leave()
        listener.close()


def attacked(attack: Attack, url: str, actors: list[Actor]) -> None:
    options: dict[str, Any] = {"heartbeat": (0, 0), "connect": attack.seconds, "close": 1.0, **attack.options}
    conn = stompy.connect(url, **grouped(options, timeouts=stompy.Timeouts, limits=stompy.Limits))
    try:
        victim = Victim(conn, attack)
        actors[0].ready.set()
        victim.act()
    finally:
        conn._closing.abandon()
        conn.close(timeout=WITHIN)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_hostile_server_meets_a_named_error_in_time_and_within_memory(attack: Attack) -> None:
    with serving(attack.script) as (url, actors), bounded(attack.memory):
        if attack.error is None:
            attacked(attack, url, actors)
            return
        with pytest.raises(attack.error) as caught:
            attacked(attack, url, actors)
    assert attack.words in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_there_are_enough_attacks_and_no_two_alike() -> None:
    assert len(ATTACKS) >= 60
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
