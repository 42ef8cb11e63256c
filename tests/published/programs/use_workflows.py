from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest
import workflows
from workflows.transport.stomp_transport import StompTransport


@pytest.fixture
def transport(place: SimpleNamespace):
    made = StompTransport()
    StompTransport.config = {"--stomp-host": place.host, "--stomp-port": place.port, "--stomp-prfx": place.name}
    assert made.connect()
    yield made
    made.disconnect()


Got = "queue.Queue[tuple[dict[str, str], object]]"


def test_a_queue_with_acknowledgement(transport: StompTransport) -> None:
    got: Got = queue.Queue()
    number = transport.subscribe("a", lambda header, message: got.put((header, message)), acknowledgement=True)
    transport.send("a", {"n": 1}, headers={"x": "ä:b"})
    header, message = got.get(timeout=10)
    assert (message, header["x"]) == ({"n": 1}, "ä:b")
    transport.nack(header)
    transport.unsubscribe(number)


def test_transactions(transport: StompTransport) -> None:
    got: Got = queue.Queue()
    transport.subscribe("c", lambda header, message: got.put((header, message)), acknowledgement=True)
    lost, kept = transport.transaction_begin(), transport.transaction_begin()
    transport.send("c", "lost", transaction=lost)
    transport.send("c", "kept", transaction=kept)
    transport.transaction_abort(lost)
    transport.transaction_commit(kept)
    header, message = got.get(timeout=10)
    assert message == "kept"
    transport.ack(header)
    transport.send("c", "next", expiration=60)
    assert got.get(timeout=10)[1] == "next"


def test_broadcasts_and_temporary_queues(transport: StompTransport) -> None:
    got: Got = queue.Queue()
    transport.subscribe_broadcast("t", lambda header, message: got.put((header, message)))
    name = transport.subscribe_temporary("hint", lambda header, message: got.put((header, message))).queue_name
    transport.broadcast("t", [1, 2])
    assert got.get(timeout=10)[1] == [1, 2]
    transport.send(name, "private")
    assert got.get(timeout=10)[1] == "private"


def test_without_a_broker(place: SimpleNamespace) -> None:
    made = StompTransport()
    StompTransport.config = {"--stomp-host": place.host, "--stomp-port": 1}
    with pytest.raises(workflows.Disconnected):
        made.connect()
    assert not made.is_connected()
