"""The style of the listener example: one listener of the connection, a subscription without a handler."""

from __future__ import annotations

import threading

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.message import AckMode
from tests.support.options import chosen
from tests.support.peer import WITHIN

MESSAGES = 100_000 if chosen.long else 12_000
"""More than the inbox holds."""


class Counting(stompy.Listener):
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.complete = threading.Event()

    def on_message(self, message: stompy.Message) -> None:
        self.numbers.append(int(message.body) if message.body.isdigit() else -1)
        if message.ack_mode != "auto":
            message.ack()
        if len(self.numbers) == MESSAGES:
            self.complete.set()


@pytest.mark.parametrize("mode", ["auto", "client-individual"])
def test_a_listener_alone_gets_every_message_and_starves_nobody(mode: AckMode) -> None:
    listener, beside = Counting(), threading.Event()
    with Broker() as broker, stompy.connect(broker.url) as producer:
        with stompy.connect(broker.url, listeners=[listener]) as conn:
            subscription = conn.subscribe("/queue/l", ack=mode)
            with producer.batch():
                for number in range(MESSAGES):
                    producer.send("/queue/l", b"%d" % number)
            assert listener.complete.wait(4 * WITHIN), f"{len(listener.numbers)} of {MESSAGES}"
            conn.subscribe("/queue/beside", lambda message: beside.set())
            producer.send("/queue/beside", "x")
            listener.complete.clear()
            assert beside.wait(WITHIN)
            assert subscription.queued == 0
        assert listener.numbers[:MESSAGES] == list(range(MESSAGES))
        assert broker.depth("/queue/l") == 0
