"""How sessions end, and many clients at once."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.broker import broker as broker_module
from stompy.deadline import Deadline
from stompy.errors import StompError
from stompy.transport.base import Transport
from tests.broker.conftest import Serve, Served, tcp_dialer
from tests.support.memory import memory_pair
from tests.support.memory_broker import broker_over
from tests.support.peer import until
from tests.support.rawclient import WITHIN, RawClient

FDS = Path("/proc/self/fd")


@contextlib.contextmanager
def _client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(tcp_dialer(broker).dial(Deadline(WITHIN))) as client:
        client.connect()
        yield client


def _threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("stompy-broker"))


def test_clients_find_the_end_of_the_stream_when_it_stops_and_may_go_by_themselves(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "_GRACE", WITHIN)
    client = served.client()
    client.subscribe("/queue/a", "client")
    stop = threading.Thread(target=served.broker.close, kwargs={"timeout": 2 * WITHIN}, daemon=True)
    stop.start()
    assert client.rest() == []
    client.raw(b"\n")  # the other direction is still open
    client.close()
    stop.join(WITHIN)
    assert not stop.is_alive()


@pytest.mark.parametrize("carrier", ["serve", "serve_tcp"])
def test_it_stops_with_peers_that_read_nothing(request: pytest.FixtureRequest, carrier: str) -> None:
    served: Served = request.getfixturevalue(carrier)(limits=BrokerLimits(linger=60.0, max_outbox_bytes=50_000_000))
    for _ in range(3):
        stuck = served.client()
        stuck.subscribe("/topic/a")
    flood = served.client()
    flood.send("/topic/a", *[b"x" * 1_000_000] * 10)
    served.broker.close(timeout=20.0)
    assert _threads() == []


def test_a_stop_without_time_abandons_nobody_for_long(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(linger=60.0))
    served.client()
    served.broker.close(timeout=0.0)
    until(lambda: not _threads())


class _LateListener:
    """Returns one more connection after it was closed, when it is released."""

    address = "late"

    def __init__(self) -> None:
        self.ours, self.theirs = memory_pair()
        self.released = threading.Event()
        self._given = False

    def accept(self) -> Transport | None:
        self.released.wait(WITHIN)
        given, self._given = self._given, True
        return None if given else self.theirs

    def close(self) -> None:
        pass


def test_a_client_accepted_after_stop_is_hung_up_on() -> None:
    listener = _LateListener()
    broker = broker_over(listener).start()
    broker.close(timeout=0.0)
    listener.released.set()
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
        until(lambda: broker.depth("/queue/a") == 500 and len(_threads()) == 2, within=2 * WITHIN)
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
        broker.close()
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
