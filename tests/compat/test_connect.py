"""Connecting, sending, receiving and disconnecting by the names and with the meaning of stomp.py."""

from __future__ import annotations

from typing import Any

import pytest

import stompy.compat as stomp
from stompy.broker import Broker
from tests.compat.conftest import Connect, Recorder, host_of, within
from tests.support.peer import until

KINDS = [stomp.Connection10, stomp.Connection11, stomp.Connection12]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_goes_to_the_broker_and_back(connect: Connect, kind: Any) -> None:
    recorder = Recorder()
    connection = connect(kind, recorder)
    connection.subscribe("/queue/a", id=1, ack="auto")
    connection.send("/queue/a", "hällo", headers={"first": "a:b"}, second="c")
    until(lambda: recorder.named("message"))
    (frame,) = recorder.named("message")
    assert (frame.cmd, frame.body, frame.headers["first"], frame.headers["second"]) == ("MESSAGE", "hällo", "a:b", "c")


@pytest.mark.parametrize("kind", KINDS)
def test_disconnect_with_a_receipt_ends_the_session_before_it_returns(connect: Connect, kind: Any) -> None:
    recorder = Recorder()
    connection = connect(kind, recorder)
    until(lambda: recorder.named("connected"))  # `connect` may return before
    connection.disconnect(receipt="bye")
    assert not connection.is_connected()
    assert [name for name, _ in recorder.events] == [
        "connecting",
        "send",
        "connected",
        "send",
        "receipt",
        "disconnected",
        "receiver_loop_completed",
    ]


def test_disconnect_without_a_receipt_neither_waits_nor_raises(connect: Connect) -> None:
    recorder = Recorder()
    connection = connect(listener=recorder)
    connection.disconnect()
    connection.disconnect()
    within(recorder.over)
    connection.disconnect()
    assert len(recorder.named("disconnected")) == 1


def test_a_connection_can_be_opened_again(connect: Connect) -> None:
    connection = connect()
    for _ in range(5):
        connection.disconnect(receipt="bye")
        connection.connect(wait=True)
    connection.send("/queue/a", "still there")


def test_the_broker_s_reason_is_in_the_exception() -> None:
    with Broker(users={"guest": "guest"}) as broker:
        connection = stomp.Connection([host_of(broker)])
        with pytest.raises(stomp.exception.ConnectFailedException, match="refused"):
            connection.connect("guest", "wrong", wait=True)
        assert not connection.is_connected()
        connection.transport.stop()


def test_sending_without_a_connection_raises() -> None:
    with pytest.raises(stomp.exception.NotConnectedException):
        stomp.Connection().send("/queue/a", "x")
