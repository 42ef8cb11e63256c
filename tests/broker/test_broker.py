"""Starting and stopping, the address, and many clients at once."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import socket
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.broker import broker as broker_module
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectError, NotConnected, StompError
from stompy.transport.base import Transport
from stompy.transport.memory import MemoryListener, memory_pair
from stompy.transport.tcp import TcpDialer
from stompy.transport.tls.endpoints import TlsDialer
from stompy.transport.tls.options import Tls
from stompy.transport.unix import UnixDialer
from tests.broker.conftest import Serve, Served, tcp_dialer, until
from tests.support.certificates import Certificates
from tests.support.rawclient import WITHIN, RawClient

FDS = Path("/proc/self/fd")


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
        assert _threads() == ["stompy-broker-1-reader", "stompy-broker-1-writer", "stompy-broker-acceptor"]
    assert _threads() == []
    with pytest.raises(ConnectError):
        tcp_dialer(broker).dial(Deadline(WITHIN))


def test_start_and_stop_may_be_repeated() -> None:
    broker = Broker()
    broker.stop()
    assert broker.start() is broker.start()
    broker.stop()
    broker.stop()
    assert _threads() == []


def test_the_url_is_known_from_the_first_start_on() -> None:
    broker = Broker()
    with pytest.raises(NotConnected):
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
    with Broker(tls=certificates.broker_options(), connect_timeout=1.5, linger=0.1) as broker:
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
        {"prefetch": 0},
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
    broker = Broker(listener=MemoryListener("inside"))
    with broker:
        assert broker.url == "inside"
    with pytest.raises(ConfigurationError, match="listener"):
        broker.start()


def test_clients_find_the_end_of_the_stream_when_it_stops_and_may_go_by_themselves(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "_GRACE", WITHIN)
    client = served.client()
    client.subscribe("/queue/a", "client")
    stop = threading.Thread(target=served.broker.stop, kwargs={"timeout": 2 * WITHIN}, daemon=True)
    stop.start()
    assert client.rest() == []
    client.raw(b"\n")  # the other direction is still open
    client.close()
    stop.join(WITHIN)
    assert not stop.is_alive()


@pytest.mark.parametrize("carrier", ["serve", "serve_tcp"])
def test_it_stops_with_peers_that_read_nothing(request: pytest.FixtureRequest, carrier: str) -> None:
    served: Served = request.getfixturevalue(carrier)(linger=60.0, max_outbox_bytes=50_000_000)
    for _ in range(3):
        stuck = served.client()
        stuck.subscribe("/topic/a")
    flood = served.client()
    flood.send("/topic/a", *[b"x" * 1_000_000] * 10)
    served.broker.stop(timeout=20.0)
    assert _threads() == []


def test_a_stop_without_time_abandons_nobody_for_long(serve: Serve) -> None:
    served = serve(linger=60.0)
    served.client()
    served.broker.stop(timeout=0.0)
    until(lambda: not _threads())


class _LateListener:
    """Hands over one more connection after it was closed, when it is told to."""

    address = "late"

    def __init__(self) -> None:
        self.ours, self.theirs = memory_pair()
        self.told = threading.Event()
        self._given = False

    def accept(self) -> Transport | None:
        self.told.wait(WITHIN)
        given, self._given = self._given, True
        return None if given else self.theirs

    def close(self) -> None:
        pass


def test_a_client_accepted_after_stop_is_hung_up_on() -> None:
    listener = _LateListener()
    broker = Broker(listener=listener).start()
    broker.stop(timeout=0.0)
    listener.told.set()
    assert listener.ours.recv(Deadline(WITHIN)) == b""
    until(lambda: _threads() == [])


def test_a_machine_without_threads_refuses_the_client_and_serves_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, serve_tcp: Serve
) -> None:
    served = serve_tcp()
    start = threading.Thread.start

    def no_reader(thread: threading.Thread) -> None:
        if thread.name == "stompy-broker-1-reader":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_reader)
    assert served.dial().rest() == []
    served.client().disconnect()
    assert "can't start new thread" in caplog.text


# Many clients


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.requirement("DIS-05")
def test_500_clients_that_come_and_go_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    connect = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0SEND\ndestination:/queue/a\n\nx\0"
    with Broker() as broker:
        host, _, port = broker.url.removeprefix("stomp://").rpartition(":")
        with socket.create_connection((host, int(port))):
            pass
        descriptors = len(os.listdir(FDS)) if FDS.exists() else 0
        for number in range(500):
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(connect + (b"DISCONNECT\n\n\0" if number % 2 else b""))
        until(lambda: broker.depth("/queue/a") == 500 and len(_threads()) == 1)
        stats = broker.stats()
        assert (stats.sessions, stats.sessions_total, stats.errors) == (0, 500, 0)
        if FDS.exists():
            assert len(os.listdir(FDS)) <= descriptors + 2
    assert caplog.text == ""


def _produce(broker: Broker, name: int, count: int) -> None:
    with _client(broker) as client:
        for start in range(0, count, 50):
            client.raw(
                b"".join(
                    client.encoded("SEND", {"destination": "/queue/all"}, b"%d:%d" % (name, number))
                    for number in range(start, start + 50)
                )
            )
        client.disconnect()


def _consume(broker: Broker, mode: str, taken: list[str]) -> None:
    with contextlib.suppress(AssertionError, StompError), _client(broker) as client:
        client.subscribe("/queue/all", mode, prefetch_count="20")
        while True:
            message = client.expect("MESSAGE")
            taken.append(message.body.decode())
            if mode != "auto":
                client.settle(message)


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_many_producers_and_consumers_lose_and_double_nothing(mode: str, quick_switches: None) -> None:
    producers, consumers, count = 5, 4, 500
    taken: list[list[str]] = [[] for _ in range(consumers)]
    with Broker() as broker:
        threads = [threading.Thread(target=_produce, args=(broker, name, count)) for name in range(producers)]
        readers = [threading.Thread(target=_consume, args=(broker, mode, mine), daemon=True) for mine in taken]
        for thread in [*threads, *readers]:
            thread.start()
        for thread in threads:
            thread.join(WITHIN)
        until(lambda: sum(map(len, taken)) >= producers * count)
        broker.stop()
        for thread in readers:
            thread.join(WITHIN)
    everything = list(itertools.chain.from_iterable(taken))
    assert len(everything) == len(set(everything)) == producers * count
    for mine in taken:
        for name in range(producers):
            numbers = [int(body.partition(":")[2]) for body in mine if body.startswith(f"{name}:")]
            assert numbers == sorted(numbers)


def test_consumers_that_die_all_the_time_lose_nothing(quick_switches: None) -> None:
    total = 600
    done: set[bytes] = set()
    with Broker() as broker:
        producer = threading.Thread(target=_produce, args=(broker, 0, total))
        producer.start()
        rounds = itertools.count()
        while len(done) < total:
            assert next(rounds) < 500
            with _client(broker) as client:
                client.subscribe("/queue/all", "client-individual", prefetch_count="30")
                for _ in range(7):
                    if len(done) == total:
                        break
                    message = client.expect("MESSAGE")
                    client.ack(message)
                    assert message.body not in done
                    done.add(message.body)
        producer.join(WITHIN)
        assert broker.depth("/queue/all") == 0


def test_memory_stays_flat(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client", id="1")
    client.subscribe("/topic/a", "auto", id="2")
    both = client.encoded("SEND", {"destination": "/queue/a"}, b"x" * 100)
    both += client.encoded("SEND", {"destination": "/topic/a"}, b"y" * 100)

    def pass_through(count: int) -> None:
        for _ in range(count):
            client.raw(both * 50)
            messages = client.messages(100)
            client.settle([message for message in messages if "ack" in message.headers][-1])
        client.sync()

    pass_through(5)
    gc.collect()
    tracemalloc.start()
    try:
        pass_through(5)
        before, _ = tracemalloc.get_traced_memory()
        pass_through(60)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000
