"""A restart of the broker keeps stored messages, and ends every session."""

from __future__ import annotations

import pytest

from stompy.broker import Broker
from stompy.errors import NotConnectedError
from tests.broker.conftest import Serve


def test_a_restart_keeps_what_was_not_acknowledged(serve: Serve) -> None:
    served = serve()
    client = served.client()
    client.send("/queue/a", "1", "2", "3")
    client.subscribe("/queue/a", "client-individual", prefetch_count="2")
    client.ack(client.messages(2)[0])
    bystander = served.client()
    served.broker.restart()
    client.rest()
    bystander.rest()
    assert served.broker.stats().sessions == 0
    assert served.depth("/queue/a") == (2, 0)
    again = served.client()
    again.subscribe("/queue/a", "client")
    assert [(frame.body, frame.headers.get("redelivered")) for frame in again.messages(2)] == [
        (b"2", "true"),
        (b"3", "true"),
    ]


@pytest.mark.usefixtures("quick_switches")
def test_a_restart_gives_nothing_from_one_old_session_to_the_next(serve: Serve) -> None:
    served = serve()
    for number in range(1, 11):
        clients = [served.client() for _ in range(5)]
        for client in clients:
            client.subscribe("/queue/a", "client")
        if number == 1:
            clients[0].send("/queue/a", "x")
        served.until(lambda stats, number=number: stats.messages_out == number)  # type: ignore[misc]
        served.broker.restart()
        assert served.broker.stats().messages_out == number
        assert served.depth("/queue/a") == (1, 0)


def test_a_restart_forgets_open_transactions(serve: Serve) -> None:
    served = serve()
    client = served.client()
    client.say("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": "/queue/a", "transaction": "t"}, b"x")
    client.sync()
    served.broker.restart()
    client.rest()
    assert served.depth("/queue/a") == (0, 0)
    assert served.broker.stats().transactions == 0


def test_a_restart_keeps_the_port(serve_tcp: Serve) -> None:
    served = serve_tcp()
    url = served.broker.url
    client = served.client()
    served.broker.restart()
    assert served.broker.url == url
    client.rest()
    served.client().sync()


def test_what_does_not_run_cannot_be_restarted() -> None:
    with pytest.raises(NotConnectedError):
        Broker().restart()


@pytest.mark.usefixtures("quick_switches")
def test_restarts_in_the_midst_of_traffic_lose_no_confirmed_message(serve_tcp: Serve) -> None:
    served = serve_tcp()
    confirmed: list[str] = []
    for number in range(20):
        client = served.client()
        for count in range(5):
            body = f"{number}-{count}"
            client.sure("SEND", {"destination": "/queue/a"}, body.encode())
            confirmed.append(body)
        client.subscribe("/queue/a", "client-individual")
        client.messages(1)
        served.broker.restart()
        client.rest()
    assert served.depth("/queue/a") == (100, 0)
    last = served.client()
    last.subscribe("/queue/a")
    assert last.bodies(100) == confirmed
