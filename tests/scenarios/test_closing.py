"""A connection may be closed from anywhere, at any time."""

from __future__ import annotations

import threading

import pytest

import stompy
from tests.connection.conftest import Events
from tests.scenarios.acts import SOON
from tests.scenarios.conftest import Connect

pytestmark = [pytest.mark.broker, pytest.mark.once, pytest.mark.scenario("closing from anywhere")]


def in_a_transaction(connection: stompy.Connection, queue: str) -> None:
    def block() -> None:
        with connection.transaction() as transaction:
            transaction.send(queue, "y")
            connection.close()

    with pytest.raises(stompy.NotConnectedError):
        block()


def in_a_batch(connection: stompy.Connection, queue: str) -> None:
    def block() -> None:
        with connection.batch():
            connection.send(queue, "y")
            connection.close()

    with pytest.raises(stompy.NotConnectedError):
        block()


def in_a_handler(connection: stompy.Connection, queue: str) -> None:
    connection.subscribe(queue, lambda message: connection.close())


def in_a_handler_of_its_own_thread(connection: stompy.Connection, queue: str) -> None:
    connection.subscribe(queue, lambda message: connection.close(), own_thread=True)


def in_a_listener(connection: stompy.Connection, queue: str) -> None:
    class Leaving(stompy.Listener):
        def on_message(self, message: stompy.Message) -> None:
            connection.close()

    connection.add_listener(Leaving())
    connection.subscribe(queue)


def in_a_receipt_callback(connection: stompy.Connection, queue: str) -> None:
    receipt = connection.send_async(queue, "y")
    assert receipt is not None
    receipt.add_done_callback(lambda _: connection.close())


def in_an_iteration(connection: stompy.Connection, queue: str) -> None:
    assert [connection.close() for _ in connection.subscribe(queue)] == [None]  # type: ignore[func-returns-value]


def under_somebody_who_receives(connection: stompy.Connection, queue: str) -> None:
    subscription = connection.subscribe(queue, ack="client")
    subscription.receive(timeout=SOON)
    leaving = threading.Thread(target=connection.close)
    leaving.start()
    with pytest.raises(stompy.NotConnectedError):
        subscription.receive(timeout=SOON)
    leaving.join(SOON)


def under_somebody_who_asks(connection: stompy.Connection, queue: str) -> None:
    asking, leaving = threading.Event(), threading.Thread(target=connection.close)
    connection.subscribe(f"{queue}.rpc", lambda message: asking.set())

    def leave() -> None:
        assert asking.wait(SOON)
        leaving.start()

    helper = threading.Thread(target=leave)
    helper.start()
    with pytest.raises(stompy.NotConnectedError):
        connection.request(f"{queue}.rpc", "?", timeout=SOON)
    helper.join(SOON)
    leaving.join(SOON)


def from_many_threads(connection: stompy.Connection, queue: str) -> None:
    threads = [threading.Thread(target=connection.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()


PLACES = [
    in_a_transaction,
    in_a_batch,
    in_a_handler,
    in_a_handler_of_its_own_thread,
    in_a_listener,
    in_a_receipt_callback,
    in_an_iteration,
    under_somebody_who_receives,
    under_somebody_who_asks,
    from_many_threads,
]


@pytest.mark.requirement("DIS-02", "DIS-03")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_connection_may_be_closed(connect: Connect, queue: str, place: object) -> None:
    heard = Events()
    connection = connect(listeners=[heard])
    connection.send(queue, "x", confirm=True)
    place(connection, queue)  # type: ignore[operator]
    assert heard.over.wait(SOON)
    assert not connection.connected
    connection.close()
    assert heard.names.count("disconnected") == 1
    assert heard.await_event("disconnected") is None
    assert len(heard.threads) == 1
    with pytest.raises(stompy.NotConnectedError):
        connection.send(queue, "y")
