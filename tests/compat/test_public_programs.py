"""Programs in the shape of public ones, which were read and run as they are; every line was written for these tests.

| shape | after |
|---|---|
| `feed` | openraildata's td-trust example |
| `pushport` | openraildata's stomp-client-python |
| `buffered` | panda-common's message broker utilities |
| `notifier` | CMSMonitoring's StompAMQ7 |
| `component` | resilient-circuits' STOMP component |
| `agent` | neutrons' post_processing_agent |
| `manager` | neutrons' data_workflow |
| `bus` | gridappsd's goss |
| `plugin` | iDDS's messaging plugin |
| `twin` | talos-rit's digital twin |
| `hermes` | rucio's hermes |
| `watched` | rucio's connection manager |
| `service` | DIRAC's producer and consumer |
| `workers` | django-stomp |
| `stream` | mage-ai's source and sink |
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import queue
import random
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import stompy.compat as stomp
from stompy.compat import Connection12 as Twelve
from stompy.compat.connect import StompConnection11
from stompy.compat.exception import ConnectFailedException, NotConnectedException
from stompy.compat.utils import Frame, encode
from stompy.testing.containers import broker_or_skip
from tests.support.needs import each
from tests.support.peer import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

KINDS = ("embedded", "like-activemq", "like-rabbitmq", "activemq", "activemq5", "rabbitmq3", "rabbitmq4")
LOGIN, PASSCODE = "ann", "sesame"
SOON = 20.0


class Place:
    """A broker, and the facts that a program needs."""

    def __init__(self, kind: str, url: str) -> None:
        host, port = url.partition("://")[2].split("/")[0].split("@")[-1].split(":")
        self.host, self.port = host, int(port)
        self.brokers = [(self.host, self.port)]
        self.as_texts: list[Any] = [(self.host, port)]
        self.vhost = "/" if "rabbitmq" in kind else None
        self.queue = ""
        self.inbox: queue.Queue[Any] = queue.Queue()
        self.opened: list[Any] = []

    def keep(self, conn: Any) -> Any:
        self.opened.append(conn)
        return conn

    def next(self) -> Any:
        return self.inbox.get(timeout=SOON)


@pytest.fixture(scope="module", params=each(KINDS, group="programs"))
def running(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(broker_or_skip(request.param, users={LOGIN: PASSCODE}))
        yield request.param, broker.url(login="")


@pytest.fixture
def place(running: tuple[str, str]) -> Iterator[Place]:
    made = Place(*running)
    made.queue = f"/queue/programs-{uuid.uuid4().hex[:8]}"
    yield made
    for conn in made.opened:
        conn.remove_listener("again") if conn.get_listener("again") else None
        conn.disconnect()
        conn.transport.stop()


class Into(stomp.ConnectionListener):
    """Puts the messages of a connection into a place's inbox."""

    def __init__(self, place: Place, conn: Any = None) -> None:
        self.place, self.conn = place, conn

    def on_message(self, frame: Frame) -> None:
        self.place.inbox.put(frame)


def feed(place: Place) -> None:
    class Acking(Into):
        def on_message(self, frame: Frame) -> None:
            self.conn.ack(id=frame.headers["message-id"], subscription=frame.headers["subscription"])
            self.place.inbox.put(json.loads(frame.body))

    conn = place.keep(stomp.Connection(place.brokers, keepalive=True, heartbeats=(5000, 5000)))
    conn.set_listener("", Acking(place, conn))
    conn.connect(**{"username": LOGIN, "passcode": PASSCODE, "wait": True, "client-id": place.queue[7:]})
    conn.subscribe(**{"destination": place.queue, "id": 1, "ack": "client-individual"})
    conn.send(place.queue, json.dumps([{"train": 7}]))
    assert place.next() == [{"train": 7}]
    assert conn.is_connected()


def pushport(place: Place) -> None:
    assert stomp.__version__[0] >= "8"
    conn = place.keep(Twelve(place.brokers, auto_decode=False, heartbeats=(15000, 15000), vhost=place.vhost))
    conn.set_listener("", Into(place))
    conn.connect(username=LOGIN, passcode=PASSCODE, wait=True, headers={"client-id": "rail-" + place.queue[7:]})
    conn.subscribe(destination=place.queue, id="1", ack="auto", headers={})
    conn.send(place.queue, gzip.compress(b"<Pport/>\xc3\x00"), SequenceNumber=5)
    frame = place.next()
    assert (gzip.decompress(frame.body), frame.headers["SequenceNumber"]) == (b"<Pport/>\xc3\x00", "5")


def buffered(place: Place) -> None:
    class Anyhow(Into):
        def on_message(self, *args: Any) -> None:
            (frame,) = args
            self.place.inbox.put((frame.headers["message-id"], frame.headers.get("ack"), frame.body))

    logger = getattr(stomp.logging, "__logger")
    assert logger is logging.getLogger("stomp.py")
    conn = place.keep(Twelve(host_and_ports=place.brokers, vhost=place.vhost, keepalive=True, heartbeats=(60000, 0)))
    conn.set_listener("Anyhow", Anyhow(place))
    conn.connect(username=LOGIN, passcode=PASSCODE, wait=True, headers={"client-id": "c" + place.queue[7:]})
    prefetch = {"activemq.prefetchSize": 5, "prefetch-count": 5}
    conn.subscribe(destination=place.queue, id="a_r1", ack="client-individual", headers=prefetch)
    for number in range(5):
        conn.send(destination=place.queue, body=f"m{number}", headers={"persistent": "true", "n": number})
    for number in range(5):
        transaction = conn.begin()
        _, ack, body = place.next()
        assert body == f"m{number}"
        conn.ack(ack)
        conn.commit(transaction)


def notifier(place: Place) -> None:
    conns = [place.keep(stomp.Connection(host_and_ports=[each], heartbeats=(4000, 4000))) for each in place.brokers]
    conn = random.choice(conns)
    conn.set_listener("listener", Into(place))
    conn.connect(username=LOGIN, passcode=PASSCODE, wait=True)
    conn.subscribe(destination=place.queue, id=str(uuid.uuid4()))
    transaction = conn.begin()
    for number in range(2):
        headers = {"version": "1", "producer": "p"}
        conn.send(
            destination=place.queue, headers=headers, body=json.dumps(number), ack="auto", transaction=transaction
        )
    conn.commit(transaction)
    assert [json.loads(place.next().body) for _ in range(2)] == [0, 1]


def component(place: Place) -> None:
    client = place.keep(
        stomp.StompConnection12(
            place.brokers,
            reconnect_attempts_max=-1,
            reconnect_sleep_initial=1,
            reconnect_sleep_increase=3,
            timeout=120,
            keepalive=True,
            heartbeats=(4000, 4000),
            heart_beat_receive_scale=2,
            vhost=place.vhost,
        )
    )
    client.set_listener("", Into(place))
    client.connect(username=LOGIN, passcode=PASSCODE, wait=True, with_connect_command=True)
    headers = {"ack": "client-individual", "id": place.queue, "activemq.prefetchSize": 20}
    client.subscribe(destination=place.queue, id=place.queue, ack="client-individual", headers=headers)
    client.send(place.queue, body=b"done", headers={"correlation-id": "1"}, receipt=None)
    frame = place.next()
    assert frame.headers["correlation-id"] == "1"
    client.ack(frame.headers.get("ack"))
    client.unsubscribe(place.queue)
    client.disconnect(receipt=None)
    until(lambda: not client.is_connected())


def agent(place: Place) -> None:
    class Job(Into):
        def on_message(self, frame: Frame) -> None:
            data = json.loads(frame.body)
            settle = self.conn.nack if data.get("late") else self.conn.ack
            settle(frame.headers["message-id"], frame.headers["subscription"])
            self.conn.send(place.queue + ".status", json.dumps({**data, "pid": "1"}).encode())

    conn = place.keep(stomp.Connection(host_and_ports=place.brokers, keepalive=True))
    conn.set_listener("postprocessing", Job(place, conn))
    conn.connect(LOGIN, PASSCODE, wait=True)
    conn.subscribe(destination=place.queue, id=place.queue, ack="client", headers={"activemq.prefetchSize": 1})
    other = stomp.Connection(host_and_ports=place.brokers)
    other.connect(LOGIN, PASSCODE, wait=True)
    other.send(place.queue, json.dumps({"run": 1}).encode())
    other.disconnect()
    status = place.keep(stomp.Connection(place.brokers))
    status.set_listener("", Into(place))
    status.connect(LOGIN, PASSCODE, wait=True)
    status.subscribe(place.queue + ".status", "status")
    assert json.loads(place.next().body) == {"run": 1, "pid": "1"}


def manager(place: Place) -> None:
    class Forward(Into):
        sender: Any = None

        def on_message(self, frame: Frame) -> None:
            if frame.headers["subscription"] == "1":
                self.place.inbox.put(frame.body)
                return
            if self.sender is None or self.sender.is_connected() is False:
                self.sender = self.place.keep(stomp.Connection(host_and_ports=self.place.brokers, keepalive=True))
                self.sender.connect(LOGIN, PASSCODE, wait=True)  # a connection of its own, opened in a callback
            self.sender.send(self.place.queue + ".1", frame.body, persistent="true")

    conn = place.keep(stomp.Connection(host_and_ports=place.brokers, keepalive=True))
    conn.set_listener("amq_consumer", Forward(place))
    conn.connect(LOGIN, PASSCODE, wait=True)
    for number, name in enumerate([place.queue + ".0", place.queue + ".1"]):
        conn.subscribe(destination=name, id=number, ack="auto")
    conn.send(place.queue + ".0", "on")
    assert place.next() == "on"


def bus(place: Place) -> None:
    class Router:
        def on_message(self, *args: Any) -> None:
            place.inbox.put((args[0].headers, args[0].body))

    threads = []

    def start(callback: Callable[[], None]) -> threading.Thread:
        threads.append(threading.Thread(target=callback, daemon=True))
        threads[-1].start()
        return threads[-1]

    conn = place.keep(Twelve(place.as_texts, heartbeats=(10000, 10000), vhost=place.vhost))
    conn.transport.override_threading(start)
    conn.connect(LOGIN, PASSCODE, wait=True)
    if conn.get_listener("router") is None:
        conn.set_listener("router", Router())
    conn.subscribe(destination=place.queue, ack="auto", id="4711")
    conn.send(body="{}", destination=place.queue, headers={"HAS_SUBJECT": True, "SUBJECT": None})
    assert place.next()[0]["HAS_SUBJECT"] == "True"
    assert threads


def plugin(place: Place) -> None:
    conn = place.keep(Twelve(place.as_texts, keepalive=True, heartbeats=(30000, 30000), timeout=10, vhost=place.vhost))
    assert conn.transport._Transport__host_and_ports[0][0] == place.host
    conn.set_listener("message-receiver", Into(place))
    conn.connect(LOGIN, PASSCODE, wait=True)
    conn.subscribe(destination=place.queue, id="messaging", ack="auto")
    headers = {"persistent": "true", "ttl": 43_200_000, "from_idds": "false"}
    conn.send(body="{}", destination=place.queue, id="messaging", ack="auto", headers=headers)
    assert place.next().headers["ttl"] == "43200000"


def twin(place: Place) -> None:
    conn = place.keep(stomp.Connection(place.brokers, auto_decode=False))
    conn.set_listener("", Into(place))
    conn.connect(LOGIN, PASSCODE, wait=True)
    conn.subscribe(destination=place.queue, id=1, ack="auto")
    conn.send(place.queue, struct.pack(">IHHHi", 1, 0, 2, 4, -90))
    assert struct.unpack(">IHHHi", encode(place.next().body, encoding="utf-8")) == (1, 0, 2, 4, -90)


def hermes(place: Place) -> None:
    conn = place.keep(Twelve(host_and_ports=place.brokers, vhost=place.vhost, keepalive=True, timeout=3))
    conn.set_listener("hermes", Into(place, conn.transport._Transport__host_and_ports[0]))
    with pytest.raises(stomp.exception.NotConnectedException):
        conn.send(body="{}", destination=place.queue)
    assert not conn.is_connected()
    conn.connect(LOGIN, PASSCODE, wait=True)
    conn.send(body="{}", destination=place.queue, headers={"persistent": "true", "event_type": "transfer"})
    conn.subscribe(place.queue, 1)
    assert place.next().headers["event_type"] == "transfer"


def watched(place: Place) -> None:
    conn = place.keep(stomp.Connection(place.brokers, vhost=place.vhost, timeout=5, heartbeats=(0, 1000)))
    assert not conn.received_heartbeat
    conn.connect(LOGIN, PASSCODE, wait=True)
    before = conn.received_heartbeat
    until(lambda: conn.received_heartbeat > before)


class Sender(stomp.Connection):
    """Has a destination of its own."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.brokers)
        self.connect(LOGIN, PASSCODE, True)
        self._destination = place.queue

    def send(self, body: str, **kwargs: Any) -> None:  # type: ignore[override]
        super().send(self._destination, body, **kwargs)


def service(place: Place) -> None:
    class Again(stomp.ConnectionListener):
        def on_disconnected(self) -> None:
            open_session()

    def open_session() -> None:
        conn.connect(username=LOGIN, passcode=PASSCODE, wait=True)
        conn.subscribe(place.queue, "digest", ack="auto")
        opened.append(True)

    def came() -> bool:
        # With "auto", what a broker gives to the old session before it has seen its end is lost.
        sender.send("two")
        with contextlib.suppress(queue.Empty):
            return bool(place.inbox.get(timeout=1).body == "two")
        return False

    opened: list[bool] = []
    conn = place.keep(stomp.Connection(place.brokers, heartbeats=(2000, 2000)))
    open_session()
    conn.set_listener("again", Again())
    conn.set_listener("messages", Into(place))
    sender = place.keep(Sender(place))
    sender.send("one")
    assert place.next().body == "one"
    conn.transport.disconnect_socket()
    until(lambda: len(opened) == 2)
    until(came)


def workers(place: Place) -> None:
    pool = ThreadPoolExecutor(2)

    class Listener(Into):
        def on_message(self, frame: Frame) -> None:
            pool.submit(self.work, frame)

        def work(self, frame: Frame) -> None:
            self.conn.ack(frame.headers["message-id"], "workers-listener")
            self.place.inbox.put(json.loads(frame.body))

    conn = place.keep(StompConnection11(place.brokers, heartbeats=(0, 0), vhost="/"))
    conn.set_listener(str(uuid.uuid4()), Listener(place, conn))
    conn.connect(username=LOGIN, passcode=PASSCODE, wait=True, headers={"client-id": f"{uuid.uuid4()}-listener"})
    conn.subscribe(
        id="workers-listener", headers={"prefetch-count": "1"}, destination=place.queue, ack="client-individual"
    )
    sender = stomp.Connection(place.brokers, vhost="/")
    sender.connect(username=LOGIN, passcode=PASSCODE, wait=True)
    transaction = sender.begin()
    for number in range(2):
        headers = {"correlation-id": uuid.uuid4(), "persistent": "true"}
        sender.send(place.queue, f"{number}", content_type="application/json", headers=headers, transaction=transaction)
    sender.commit(transaction)
    sender.disconnect(receipt=str(uuid.uuid4()))
    assert sorted([place.next(), place.next()]) == [0, 1]
    pool.shutdown()


def stream(place: Place) -> None:
    try:
        conn = place.keep(stomp.Connection11(place.brokers))
        conn.connect(LOGIN, PASSCODE, wait=True)
    except (ConnectFailedException, NotConnectedException):
        pytest.fail("not connected")
    conn.set_listener("listener", Into(place))
    conn.subscribe(destination=place.queue, id=uuid.uuid4(), headers={})
    conn.send(destination=place.queue, body=b'{"n": 1}', headers=None)
    assert place.next().body == '{"n": 1}'


SHAPES = (
    feed, pushport, buffered, notifier, component, agent, manager, bus, plugin, twin, hermes, watched, service, workers,
    stream,
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_program_of_this_shape_runs(shape: Callable[[Place], None], place: Place) -> None:
    shape(place)
