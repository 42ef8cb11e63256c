from __future__ import annotations

import queue
from types import SimpleNamespace

from circuits import Component, handler
from resilient_circuits.stomp_component import StompClient
from resilient_circuits.stomp_events import Connect, Disconnect, Send, Subscribe


class App(Component):
    def __init__(self, place: SimpleNamespace) -> None:
        super().__init__()
        self.events: queue.Queue[tuple[str, object]] = queue.Queue()
        self.client = StompClient(
            "localhost", place.port, username="ann", password="sesame", heartbeats=(4000, 4000), ca_certs=place.ca
        ).register(self)

    @handler("Connected", "Subscribe_success", "Message", channel="stomp")
    def note(self, event: object, *args: object, **options: object) -> None:
        self.events.put((event.name, options))

    def wait_for(self, name: str) -> dict[str, object]:
        while True:
            found, options = self.events.get(timeout=20)
            if found == name:
                return options


def test_a_queue(place: SimpleNamespace) -> None:
    app = App(place)
    app.start()
    app.fire(Connect(subscribe=False), "stomp")
    app.wait_for("Connected")
    assert app.client.connected
    destination = f"/queue/{place.name}"
    app.fire(Subscribe(destination), "stomp")
    app.wait_for("Subscribe_success")
    app.fire(Send(destination=destination, body="ä", headers={"correlation-id": "1"}), "stomp")
    message = app.wait_for("Message")
    assert (message["headers"]["correlation-id"], message["message"]) == ("1", "ä")
    app.fire(Disconnect(), "stomp")
    app.stop()
