"""The embedded broker and the client by WebSocket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.deadline import Budget
from stompy.transport.sockets import SocketTransport
from stompy.transport.websocket.handshake import END, accept_head, parse_request
from stompy.transport.websocket.transport import WebSocketTransport
from tests.support.certificates import Certificates
from tests.support.peer import WITHIN, until

_URL = {"tcp": "url", "ws": "ws_url"}
ORIGIN = "http://good.example"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(ws=True, origins=[ORIGIN], users={"ann": "sesame"}, limits=BrokerLimits(login_delay=0.0)) as running:
        yield running


@pytest.fixture
def open_broker() -> Iterator[Broker]:
    with Broker(ws=True) as running:
        yield running


def connect(url: str, **options: Any) -> stompy.Connection:
    return stompy.connect(url, **{"login": "ann", "passcode": "sesame", **options})


def test_one_port_takes_clients_of_both_kinds(broker: Broker) -> None:
    assert broker.ws_url.rpartition(":")[2] == broker.url.rpartition(":")[2] + "/"
    with connect(broker.ws_url) as one, connect(broker.url) as other:
        subscription = other.subscribe("/queue/a")
        one.send("/queue/a", b"\0\xff" * 500_000, confirm=True)
        assert subscription.receive().body == b"\0\xff" * 500_000


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_a_message_is_written_by_the_thread_that_has_it(
    open_broker: Broker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As that saves two switches of threads; it does while the writer waits, which it may not do yet."""
    writers: list[str] = []
    send = SocketTransport.send

    def recording(transport: SocketTransport, data: bytes | memoryview, deadline: Budget) -> int:
        if b"MESSAGE" in bytes(data):
            writers.append(threading.current_thread().name)
        return send(transport, data, deadline)

    monkeypatch.setattr(SocketTransport, "send", recording)
    with stompy.connect(open_broker.url) as sender, stompy.connect(getattr(open_broker, _URL[kind])) as receiver:
        subscription = receiver.subscribe("/queue/a")

        def written_by_a_reader() -> bool:
            sender.send("/queue/a", "x")
            subscription.receive()
            return any(name.endswith("-reader") for name in writers)

        until(written_by_a_reader)


def test_a_port_of_its_own_is_kept_over_a_restart() -> None:
    with Broker(ws=0) as broker:
        url = broker.ws_url
        with pytest.raises(stompy.ConnectError):
            stompy.connect(broker.url.replace("stomp:", "ws:"), timeouts=stompy.Timeouts(connect=5))
        broker.close()
        broker.start()
        assert broker.ws_url == url
        stompy.connect(url).close()


def test_wss(certificates: Certificates) -> None:
    tls = certificates.broker_options()
    with Broker(tls=tls, ws=True) as broker:
        assert broker.ws_url.startswith("wss://")
        with stompy.connect(broker.ws_url, tls=certificates.client_options(), heartbeat=(0.2, 0.2)) as connection:
            connection.send("/queue/a", b"x" * 1_000_000, confirm=True)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_agreed_subprotocol_is_the_version_of_the_session(broker: Broker, version: str) -> None:
    with connect(broker.ws_url, versions=version) as connection:
        assert str(connection.version) == version


def test_a_batch_is_sent_and_confirmed(broker: Broker) -> None:
    with connect(broker.ws_url) as connection:
        subscription = connection.subscribe("/queue/a")
        with connection.batch():
            for number in range(100):
                connection.send("/queue/a", str(number))
        assert [subscription.receive().text for _ in range(100)] == [str(number) for number in range(100)]


def test_a_foreign_origin_is_refused_in_words(broker: Broker) -> None:
    def as_page(origin: str) -> stompy.WebSocketOptions:
        return stompy.WebSocketOptions(headers={"Origin": origin})

    connect(broker.ws_url, websocket=as_page(ORIGIN)).close()
    connect(broker.ws_url, websocket=as_page(ORIGIN.upper())).close()
    own = broker.url.replace("stomp", "http")
    connect(broker.ws_url, websocket=as_page(own)).close()
    foreign_port = own.rpartition(":")[0] + ":1"
    for origin in ("http://evil.example", ORIGIN + ".evil.example", "null", foreign_port):
        with pytest.raises(stompy.WebSocketRefusedError, match=f"403 Forbidden: the origin '{origin}' is not among"):
            connect(broker.ws_url, websocket=as_page(origin))


@pytest.mark.parametrize("allowed", ["*", "null"])
def test_pages_from_files_can_be_accepted(allowed: str) -> None:
    of_a_file = stompy.WebSocketOptions(headers={"Origin": "null"})
    with Broker(ws=True, origins=[allowed]) as broker:
        connect(broker.ws_url, websocket=of_a_file).close()


def test_a_wrong_login_is_refused_in_words(broker: Broker) -> None:
    with pytest.raises(stompy.ConnectRefusedError, match="wrong login or passcode"):
        connect(broker.ws_url, passcode="wrong")


@pytest.mark.parametrize(
    "options",
    [
        {"origins": ["http://a/path"], "ws": True},
        {"origins": ["localhost"], "ws": True},
        {"origins": "http://a", "ws": True},
        {"origins": ["http://a"]},
        {"ws": True, "unix": "/tmp/x"},
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(stompy.ConfigurationError):
        Broker(**options)


def test_a_broker_without_websocket_has_no_such_address() -> None:
    with Broker() as broker, pytest.raises(stompy.NotConnectedError, match="not with ws=True"):
        print(broker.ws_url)


def test_one_client_too_many_is_told_so() -> None:
    with Broker(ws=True, limits=BrokerLimits(max_sessions=1)) as broker, stompy.connect(broker.ws_url):
        for url in (broker.ws_url, broker.url):
            with pytest.raises(stompy.ConnectRefusedError, match="too many sessions"):
                stompy.connect(url)


def read_until(read: Callable[[], bytes], end: bytes) -> bytes:
    data = b""
    while end not in data:
        part = read()
        assert part, data
        data += part
    return data


@pytest.mark.parametrize("first", ["client", "server"])
def test_the_server_ends_the_connection_after_both_close_frames(first: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        client = threading.Thread(target=lambda: stompy.connect(f"ws://127.0.0.1:{port}/", heartbeat=(0, 0)).close())
        client.start()
        sock, _ = listening.accept()
    head = read_until(lambda: sock.recv(4096), END)
    sock.sendall(accept_head(parse_request(head.removesuffix(END)).key, "v12.stomp"))
    server = WebSocketTransport(SocketTransport(sock, peer="client"), client=False)
    read_until(server.recv, b"\0")
    server.sendall(b"CONNECTED\nversion:1.2\n\n\0", WITHIN)
    receipt = read_until(server.recv, b"\0").partition(b"receipt:")[2].partition(b"\n")[0]
    server.sendall(b"RECEIPT\nreceipt-id:" + receipt + b"\n\n\0", WITHIN)
    if first == "server":
        server.shutdown_write()
    assert server.recv() == b""  # its Close frame
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    server.close()
    client.join(WITHIN)
    assert not client.is_alive()
