from __future__ import annotations

import queue
import threading
from types import SimpleNamespace

import pytest
from gridappsd import GOSS


def goss(place: SimpleNamespace, **options: object) -> GOSS:
    return GOSS("ann", "sesame", stomp_address=place.host, stomp_port=str(place.port), **options)


def test_callbacks_of_topics(place: SimpleNamespace) -> None:
    got: queue.Queue[object] = queue.Queue()

    class Taking:
        def on_message(self, headers: dict[str, str], message: object) -> None:
            got.put((headers["destination"], message))

    threads: list[threading.Thread] = []

    def start(callback: object) -> threading.Thread:
        threads.append(threading.Thread(target=callback, daemon=True))
        threads[-1].start()
        return threads[-1]

    one = goss(place, use_auth_token=False, override_threading=start)
    assert one.connected
    assert threads
    number = one.subscribe("/topic/goss.a", Taking())
    one.send("/topic/goss.a", {"a": [1]})
    assert got.get(timeout=10) == ("/topic/goss.a", {"a": [1]})
    one.unsubscribe(number)
    one.disconnect()
    assert not one.connected


def test_a_token_and_a_response(place: SimpleNamespace) -> None:
    server = goss(place, use_auth_token=False)

    def answer(headers: dict[str, str], message: object) -> None:
        reply = headers["reply-to"]
        server.send(reply if reply.startswith("/") else f"/queue/{reply}", "token")

    def respond(headers: dict[str, str], message: object) -> None:
        server.send(headers["reply-to"], {"got": message})

    server.subscribe("/topic/pnnl.goss.token.topic", answer)
    server.subscribe("/topic/goss.requests", respond)
    client = goss(place)
    assert client.connected
    assert client.get_response("/topic/goss.requests", {"resultFormat": "JSON", "n": 1}) == {
        "got": {"resultFormat": "JSON", "n": 1}
    }
    client.disconnect()
    server.disconnect()


@pytest.mark.parametrize("callback", [object(), None])
def test_no_callback(place: SimpleNamespace, callback: object) -> None:
    one = goss(place, use_auth_token=False)
    with pytest.raises(AttributeError):
        one.subscribe("/topic/goss.a", callback)
    one.disconnect()
