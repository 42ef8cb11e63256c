"""Handlers that raise while links are cut: whatever races, each message is handled or a dead letter in the end."""

from __future__ import annotations

import threading

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.message import AckMode
from stompy.testing.proxy import FaultProxy
from tests.support.peer import until
from tests.support.seed import chance

MESSAGES = 100


@pytest.mark.parametrize("own_thread", [False, True])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_no_message_is_lost_whatever_is_cut_as_a_handler_raises(version: str, ack: AckMode, own_thread: bool) -> None:
    draw = chance("handlers that raise", version, ack, own_thread)
    wanted = {str(number) for number in range(MESSAGES)}
    handled, dead, failed = set[str](), set[str](), list[str]()

    def handler(message: stompy.Message) -> None:
        if draw.random() < 0.03:
            proxy.cut(draw.choice(["fin", "rst"]))
        if draw.random() < 0.2:
            failed.append(message.text)
            raise ZeroDivisionError
        if draw.random() < 0.03:
            proxy.cut(draw.choice(["fin", "rst"]))
        message.ack()
        handled.add(message.text)

    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))
    with Broker(attempts=2) as broker, stompy.connect(broker.url, heartbeat=(0, 0)) as other:
        for number in wanted:
            other.send("/queue/a", number)
        other.subscribe("/queue/DLQ", lambda message: dead.add(message.text))
        with (
            FaultProxy(broker.url) as proxy,
            stompy.connect(proxy.url, reconnect=policy, heartbeat=(0, 0), versions=version) as conn,
        ):
            conn.subscribe("/queue/a", handler, ack=ack, prefetch=20, own_thread=own_thread)

            def over() -> bool:
                if version == "1.0":  # has no NACK: what raised comes again with the next link
                    threading.Event().wait(0.05)
                    proxy.cut()
                return handled | dead == wanted

            until(over)
            assert failed
