"""Starting and stopping, and the address."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path

import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectError, NotConnectedError
from stompy.transport.tcp import TcpDialer
from stompy.transport.tls.options import Tls
from stompy.transport.tls.transport import TlsDialer
from stompy.transport.unix import UnixDialer
from tests.broker.conftest import tcp_dialer
from tests.support.certificates import Certificates
from tests.support.memory import MemoryListener
from tests.support.memory_broker import broker_over
from tests.support.rawclient import WITHIN, RawClient


def _client(broker: Broker) -> RawClient:
    client = RawClient(tcp_dialer(broker).dial(Deadline(WITHIN)))
    client.connect()
    return client


def _threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("stompy-broker"))


# Starting and stopping


def test_it_serves_inside_its_block_and_leaves_no_thread() -> None:
    with Broker() as broker, _client(broker) as client:
        client.subscribe("/queue/a")
        client.send("/queue/a", "x")
        assert client.bodies(1) == ["x"]
        assert _threads() == [
            "stompy-broker-1-reader",
            "stompy-broker-1-writer",
            "stompy-broker-acceptor",
            "stompy-broker-timer",
        ]
    assert _threads() == []
    with pytest.raises(ConnectError):
        tcp_dialer(broker).dial(Deadline(WITHIN))


def test_start_and_stop_may_be_repeated() -> None:
    broker = Broker()
    broker.close()
    assert broker.start() is broker.start()
    broker.close()
    broker.close()
    assert _threads() == []


def test_the_url_is_known_from_the_first_start_on() -> None:
    broker = Broker()
    with pytest.raises(NotConnectedError):
        _ = broker.url
    assert repr(broker) == "<Broker ? stopped>"
    with broker:
        assert repr(broker) == f"<Broker {broker.url} running>"
        url = broker.url
    assert broker.url == url
    assert url.startswith("stomp://127.0.0.1:")


@pytest.mark.parametrize(("host", "url"), [("::1", "stomp://[::1]:"), ("0.0.0.0", "stomp://127.0.0.1:")])
def test_the_url_is_one_that_clients_can_use(host: str, url: str) -> None:
    try:
        with Broker(host) as broker:
            assert broker.url.startswith(url)
    except ConfigurationError:
        pytest.skip(f"this machine has no {host}")


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_listening_for_other_machines_is_warned_about(
    caplog: pytest.LogCaptureFixture, host: str, warned: bool
) -> None:
    with caplog.at_level(logging.WARNING, "stompy.broker"), Broker(host):
        pass
    assert ("no TLS" in caplog.text) is warned


def test_listening_for_other_machines_with_tls_is_told_without_reproach(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker("0.0.0.0", tls=certificates.broker_options()) as broker:
        assert broker.url.startswith("stomp+ssl://127.0.0.1:")
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "can be reached from other machines" in warning
    assert "no TLS" not in warning


def test_a_slow_handshake_ends_by_the_connect_timeout_and_holds_up_nobody(certificates: Certificates) -> None:
    with Broker(tls=certificates.broker_options(), limits=BrokerLimits(connect_timeout=1.5, linger=0.1)) as broker:
        port = int(broker.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.settimeout(WITHIN)
            slow.send(b"\x16\x03\x01")
            dialer = TlsDialer(TcpDialer("127.0.0.1", port), certificates.client_options())
            client = RawClient(dialer.dial(Deadline(WITHIN)))
            client.connect()
            client.close()
            assert slow.recv(100) == b""


def test_a_certificate_renewed_between_stop_and_start_is_served(certificates: Certificates, tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    broker = Broker(tls=Tls(cert=pem))
    with pytest.raises(ConfigurationError, match="no such file"):
        broker.start()
    for cert, ca in (
        (certificates.of_unknown_authority, certificates.other_ca),
        (certificates.server, certificates.ca),
    ):
        pem.write_bytes(Path(cert).read_bytes())
        with broker:
            port = int(broker.url.rpartition(":")[2])
            TlsDialer(TcpDialer("127.0.0.1", port), Tls(ca=ca)).dial(Deadline(WITHIN)).close()


def test_a_unix_socket_takes_the_place_of_a_port(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s"
    with Broker(unix=path, unix_mode=0o660) as broker, RawClient(UnixDialer(path).dial(Deadline(WITHIN))) as client:
        assert broker.url == f"stomp+unix://{path}"
        assert path.stat().st_mode & 0o777 == 0o660
        client.connect()
        with pytest.raises(ConfigurationError, match="already in use"):
            Broker(unix=path).start()
    assert not path.exists()
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]


def test_a_port_in_use_is_a_clear_error() -> None:
    with Broker() as broker:
        port = int(broker.url.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port}.*in use"):
            Broker(port=port).start()


@pytest.mark.parametrize(
    "options",
    [
        {"versions": ("1.3",)},
        {"versions": ()},
        {"heartbeat": (-1, 0)},
        {"dead_letter": "/topic/x"},
        {"port": 70_000},
        {"host": "no such host"},
    ],
)
def test_senseless_arguments_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Broker(**options).start()  # type: ignore[arg-type]


def test_it_can_be_started_again_on_its_port_with_its_queues() -> None:
    broker = Broker()
    with broker:
        url = broker.url
        client = _client(broker)
        client.subscribe("/queue/a", "client")
        client.send("/queue/a", "1", "2")
        client.messages(2)
    client.close()
    with broker:
        assert broker.url == url
        with _client(broker) as client:
            client.subscribe("/queue/a")
            assert [message.headers["redelivered"] for message in client.messages(2)] == ["true", "true"]


def test_another_broker_can_take_the_port_at_once() -> None:
    with Broker() as broker:
        port = int(broker.url.rpartition(":")[2])
        client = _client(broker)
    client.close()
    with Broker(port=port) as again, _client(again):
        assert again.url == broker.url


def test_message_ids_of_two_brokers_differ() -> None:
    seen = set()
    for _ in range(2):
        with Broker() as broker, _client(broker) as client:
            client.subscribe("/queue/a")
            client.send("/queue/a", "x")
            seen.add(client.expect("MESSAGE").headers["message-id"])
    assert len(seen) == 2


def test_a_given_listener_serves_once() -> None:
    broker = broker_over(MemoryListener("inside"))
    with broker:
        assert broker.url == "inside"
    with pytest.raises(ConfigurationError, match="listener"):
        broker.start()
