"""`WSConnection`, against the embedded broker."""

from __future__ import annotations

import pytest

import stompy.compat as stomp
from stompy import Tls
from stompy.broker import Broker
from tests.compat.conftest import Recorder, host_of
from tests.support.certificates import Certificates
from tests.support.peer import WITHIN, until

ORIGIN = "https://orders.example"


def exchange(connection: stomp.WSConnection, body: str) -> list[str]:
    """Send a message and return the bodies that came back."""
    heard = Recorder()
    connection.set_listener("", heard)
    connection.connect(wait=True)
    connection.subscribe("/queue/a", id="1")
    connection.send("/queue/a", body)
    until(lambda: heard.named("message"), within=WITHIN)
    connection.disconnect(receipt="bye")
    return [frame.body for frame in heard.named("message")]


@pytest.mark.parametrize("binary_mode", [False, True])
@pytest.mark.parametrize("header", [{"Origin": ORIGIN}, [f"Origin: {ORIGIN}"]], ids=["mapping", "lines"])
def test_messages_go_over_websocket(binary_mode: bool, header: dict[str, str] | list[str]) -> None:
    with Broker(ws=True, origins=[ORIGIN]) as broker:
        connection = stomp.WSConnection([host_of(broker)], ws_path="/stomp", header=header, binary_mode=binary_mode)
        assert exchange(connection, "grüße") == ["grüße"]


def test_hosts_of_set_ssl_are_reached_over_tls(certificates: Certificates) -> None:
    with Broker(ws=True, tls=Tls(cert=certificates.server)) as broker:
        address = ("localhost", int(broker.url.rsplit(":", 1)[1]))
        connection = stomp.WSConnection([address])
        connection.set_ssl([address], ca_certs=certificates.ca)
        assert exchange(connection, "x") == ["x"]


def test_a_refused_origin_is_named() -> None:
    with Broker(ws=True) as broker:
        connection = stomp.WSConnection([host_of(broker)], header={"Origin": ORIGIN}, reconnect_attempts_max=1)
        with pytest.raises(stomp.exception.ConnectFailedException, match="403"):
            connection.connect(wait=True)
