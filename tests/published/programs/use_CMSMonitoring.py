from __future__ import annotations

import json
import queue
from types import SimpleNamespace

import pytest
import stomp
from CMSMonitoring.StompAMQ7 import StompAMQ7


class Into(stomp.ConnectionListener):
    def __init__(self, got: queue.Queue[object]) -> None:
        self.got = got

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.got.put(json.loads(frame.body))


@pytest.fixture
def amq(place: SimpleNamespace) -> StompAMQ7:
    hosts = [(place.host, place.port)]
    return StompAMQ7("ann", "sesame", "producer", f"/queue/{place.name}", None, host_and_ports=hosts)


@pytest.fixture
def got(place: SimpleNamespace):
    found: queue.Queue[object] = queue.Queue()
    conn = stomp.Connection([(place.host, place.port)])
    conn.set_listener("", Into(found))
    conn.connect(wait=True)
    conn.subscribe(f"/queue/{place.name}", id=1)
    yield found
    conn.disconnect()


def test_notifications_are_sent(amq: StompAMQ7, got: queue.Queue[object]) -> None:
    sent = [amq.make_notification({"n": n}, "test")[0] for n in range(3)]
    assert amq.send(sent) == []
    assert [got.get(timeout=10)["n"] for _ in range(3)] == [0, 1, 2]


def test_a_failed_broker_is_reported(place: SimpleNamespace) -> None:
    amq = StompAMQ7("ann", "sesame", "producer", f"/queue/{place.name}", None, host_and_ports=[(place.host, 1)])
    assert amq.connect() is None
    assert amq.timeouts
