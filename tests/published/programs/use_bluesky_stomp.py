from __future__ import annotations

import queue
from types import SimpleNamespace

from bluesky_stomp.messaging import StompClient
from bluesky_stomp.models import BasicAuthentication, Broker, MessageTopic


def test_a_topic(place: SimpleNamespace) -> None:
    client = StompClient.for_broker(
        Broker(host=place.host, port=place.port, auth=BasicAuthentication(username="a", password="b"))
    )
    got: queue.Queue[str] = queue.Queue()

    def take(message: str, context: object) -> None:
        got.put(message)

    client.connect()
    client.subscribe(MessageTopic(name=place.name), take)
    client.send(MessageTopic(name=place.name), "1")
    assert got.get(timeout=10) == "1"
    client.disconnect()
    assert not client.is_connected()
