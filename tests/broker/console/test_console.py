"""A console beside its broker: where it is, and what it leaves alone."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.errors import ConfigurationError, NotConnectedError, StompError, WebSocketRefusedError
from tests.broker.console.conftest import Ask, asks, console_ws


def get(url: str, **headers: str) -> tuple[int, str]:
    """Return the status and the body of a page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:  # noqa: S310 - http
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_page_is_at_its_address(broker: Broker) -> None:
    status, body = get(broker.console_url)
    assert (status, body.splitlines()[0]) == (200, "<!doctype html>")
    root = "/".join(broker.console_url.split("/")[:3])
    assert get(f"{root}/") == (403, "the address lacks the token: take the one that the broker has printed\n")
    assert get(broker.console_url, Host="evil.example")[0] == 403
    assert get(broker.console_url, Origin="http://evil.example")[0] == 403


def test_a_websocket_needs_the_token(broker: Broker) -> None:
    address = console_ws(broker)
    with connect(address) as client:
        assert client.version == "1.2"
    with pytest.raises(WebSocketRefusedError, match=r"403.*token"):
        connect(address.replace(broker.console_url.split("/")[3], "guessed"))


def test_nothing_but_http_has_access_as_it_has_no_token(broker: Broker) -> None:
    port = urlsplit(broker.console_url).port
    with pytest.raises(StompError):
        connect(f"stomp://127.0.0.1:{port}")
    for request in (b"CONNECT\naccept-version:1.2\nhost:x\n\n\0", b"\n", b"\0", b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port or 0), 20) as client:
            client.sendall(request)
            answer = b"".join(iter(lambda: client.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
        assert b"CONNECTED" not in answer


def test_it_speaks_1_2_whatever_the_broker_does() -> None:
    with Broker(console=True, versions=["1.0"]) as broker, connect(console_ws(broker)) as console:
        assert console.version == "1.2"


def test_a_console_needs_no_login_where_clients_do() -> None:
    with Broker(console=True, users={"ann": "sesame"}, limits=BrokerLimits(login_delay=0.0), like="rabbitmq") as broker:
        with pytest.raises(StompError):
            connect(broker.url, vhost="/")
        with connect(console_ws(broker)) as console:
            assert asks(console)("overview")["result"]["server"].startswith("RabbitMQ")


def test_the_address_stays_over_a_restart_of_the_broker() -> None:
    broker = Broker(console=True)
    with pytest.raises(NotConnectedError):
        _ = broker.console_url
    with broker:
        first = broker.console_url
    with pytest.raises(urllib.error.URLError):
        get(first)
    with broker:
        assert broker.console_url == first
        assert get(first)[0] == 200
    with Broker(console=True) as other:
        assert other.console_url.split("/")[3] != first.split("/")[3]


def test_a_port_that_is_taken_is_refused_and_nothing_listens(broker: Broker) -> None:
    port = int(broker.console_url.split("/")[2].rpartition(":")[2])
    other = Broker(console=port)
    with pytest.raises(ConfigurationError):
        other.start()
    assert "stopped" in repr(other)
    with pytest.raises(NotConnectedError):
        _ = Broker().console_url


def test_the_consoles_own_traffic_is_not_among_the_brokers_messages(
    broker: Broker, console: Connection, ask: Ask
) -> None:
    for _ in range(50):
        ask("overview")
    assert (broker.stats().messages_in, broker.stats().messages_out) == (0, 0)
    overview = ask("overview")["result"]
    assert (overview["queues"], overview["connections"]) == ([], [])


def test_clients_have_no_access_to_the_calls(broker: Broker, client: Connection) -> None:
    client.send("/console", '{"call": "overview"}', headers={"reply-to": "/temp-queue/x"}, confirm=True)
    assert broker.depth("/console") == 1
