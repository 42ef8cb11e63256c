"""Which address gives the session, and what is said when none does."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.config import Config, addresses_of
from stompy.connection.link_manager import Connector, in_order
from stompy.deadline import Deadline
from stompy.frames.frame import Frame
from stompy.transport.tcp import Endpoint, TcpListener
from tests.connection.conftest import QUICK, Sessions
from tests.support.peer import WITHIN, Peer, until
from tests.support.ports import reserved_port
from tests.transport.conftest import Calling


@pytest.fixture
def dead() -> Iterator[str]:
    """The address of a port that nobody listens on."""
    with reserved_port() as port:
        yield f"stomp://127.0.0.1:{port}"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a peer that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"stomp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(users={"fred": "sesame"}) as running:
        yield running


def good(broker: Broker) -> str:
    return broker.url.replace("stomp://", "stomp://fred:sesame@")


def test_nobody_listening_names_the_address(dead: str) -> None:
    with pytest.raises(stompy.ConnectError, match=dead.removeprefix("stomp://")) as caught:
        stompy.connect(dead)
    assert caught.value.safe_to_retry


def test_nobody_anywhere_names_every_address_in_order(dead: str, silent: str) -> None:
    with pytest.raises(stompy.AllBrokersFailedError) as caught:
        stompy.connect([dead, silent], timeouts=stompy.Timeouts(connect=0.2))
    first, second = caught.value.errors
    assert first.address == dead.removeprefix("stomp://")
    assert isinstance(second, stompy.ConnectTimeoutError)
    assert second.address == silent.removeprefix("stomp://")
    assert first.address in str(caught.value)
    assert second.address in str(caught.value)
    assert caught.value.__cause__ is second


def test_a_dead_and_a_silent_address_are_skipped(dead: str, silent: str, broker: Broker) -> None:
    with stompy.connect([dead, silent, good(broker)], timeouts=stompy.Timeouts(connect=2), heartbeat=(0, 0)) as conn:
        assert conn.address == broker.url.removeprefix("stomp://")


def test_the_first_address_that_works_is_taken(dead: str, broker: Broker) -> None:
    with stompy.connect(f"{good(broker)},{dead}", heartbeat=(0, 0)) as conn:
        assert conn.connected


def test_a_refused_login_ends_the_search_with_the_brokers_words(broker: Broker, silent: str) -> None:
    wrong = broker.url.replace("stomp://", "stomp://fred:mistaken@")
    with pytest.raises(stompy.ConnectRefusedError, match="wrong login or passcode") as caught:
        stompy.connect([wrong, silent])
    assert "mistaken" not in str(caught.value)
    assert not caught.value.safe_to_retry


def test_no_common_version_ends_the_search() -> None:
    with Broker(versions=["1.0"]) as old, pytest.raises(stompy.VersionMismatchError) as caught:
        stompy.connect([old.url, old.url], versions="1.2")
    assert caught.value.offered == ("1.2",)
    assert caught.value.supported == ("1.0",)


def test_a_broker_that_names_no_version_speaks_1_0_and_what_was_offered_is_told(
    sessions: Sessions, calling: Calling
) -> None:
    connecting = calling(lambda: stompy.connect(sessions.url, versions=("1.1", "1.2")))
    sessions.accept().raw(b"CONNECTED\nsession:1\n\n\0")
    with pytest.raises(
        stompy.VersionMismatchError, match=r"offered 1\.1, 1\.2, the broker supports only 1\.0"
    ) as caught:
        connecting.result()
    assert (caught.value.offered, caught.value.supported) == (("1.1", "1.2"), ("1.0",))


def test_each_address_has_its_own_login(broker: Broker, calling: Calling) -> None:
    listener = TcpListener()
    host, port = listener.address
    connecting = calling(lambda: stompy.connect([f"stomp://ann:abc@{host}:{port}/v1", good(broker)], heartbeat=(0, 0)))
    transport = listener.accept()
    assert transport is not None
    peer = Peer(transport)
    headers = peer.take_connect().headers
    assert (headers["login"], headers["passcode"], headers["host"]) == ("ann", "abc", "v1")
    peer.close()
    listener.close()
    with connecting.result() as conn:
        assert conn.address == broker.url.removeprefix("stomp://")


NO_SUCH_HOST = {"message": "Bad CONNECT", "version": "1.0,1.1,1.2"}, b"Virtual host '127.0.0.1' access denied"


def refused_once(listener: TcpListener, headers: dict[str, str], body: bytes) -> Frame:
    """Answer a CONNECT with ERROR, and return it."""
    transport = listener.accept()
    assert transport is not None
    peer = Peer(transport)
    request = peer.take_connect()
    peer.say("ERROR", headers, body)
    peer.close()
    return request


def test_a_rabbitmq_that_has_no_host_of_the_machines_name_is_asked_for_its_own(calling: Calling) -> None:
    listener = TcpListener()
    host, port = listener.address
    call = calling(lambda: stompy.connect(f"stomp://me:mine@{host}:{port}", heartbeat=(0, 0)))
    assert refused_once(listener, *NO_SUCH_HOST).headers["host"] == host
    transport = listener.accept()
    assert transport is not None
    peer = Peer(transport, server="RabbitMQ/4.3.6", heartbeat=(0, 0))
    request = peer.greet()
    assert (request.headers["host"], request.headers["passcode"]) == ("/", "mine")
    conn = call.result()
    assert conn.dialect == "rabbitmq"
    peer.close()
    conn.close()
    listener.close()


@pytest.mark.parametrize("named", [{"vhost": "mine"}, {"dialect": "rabbitmq"}])
def test_a_virtual_host_that_somebody_named_is_not_replaced(calling: Calling, named: dict[str, Any]) -> None:
    listener = TcpListener()
    host, port = listener.address
    call = calling(lambda: stompy.connect(f"stomp://{host}:{port}", heartbeat=(0, 0), **named))
    refused_once(listener, *NO_SUCH_HOST)
    with pytest.raises(stompy.ConnectRefusedError, match="Virtual host"):
        call.result()
    listener.close()


def test_a_client_id_that_the_broker_still_believes_in_is_worth_another_attempt(calling: Calling) -> None:
    listener = TcpListener()
    host, port = listener.address
    call = calling(lambda: stompy.connect(f"stomp://{host}:{port}", heartbeat=(0, 0), client_id="me"))
    refused_once(listener, {"message": "Broker: b - Client: me already connected from tcp://127.0.0.1:1"}, b"")
    with pytest.raises(stompy.ClientIdInUseError, match=f"^{host}:{port}: the broker refused .* already") as caught:
        call.result()
    assert caught.value.safe_to_retry
    listener.close()


def black_hole(host: str, port: int, stack: contextlib.ExitStack) -> int:
    """Listen, accept nobody, and fill the backlog, so that the kernel drops whoever comes; return the port."""
    server = stack.enter_context(socket.socket())
    server.bind((host, port))
    server.listen(0)
    address = server.getsockname()
    full = False
    while not full:
        filler = stack.enter_context(socket.socket())
        filler.settimeout(0.1)
        try:
            filler.connect(address)
        except TimeoutError:
            full = True
    return int(address[1])


def test_a_black_holed_address_costs_no_more_than_its_own_time(dead: str, broker: Broker) -> None:
    with contextlib.ExitStack() as stack:
        hole = f"stomp://127.0.0.1:{black_hole('127.0.0.1', 0, stack)}"
        with stompy.connect([dead, hole, good(broker)], timeouts=stompy.Timeouts(connect=2), heartbeat=(0, 0)) as conn:
            assert conn.address == broker.url.removeprefix("stomp://")
        with pytest.raises(stompy.AllBrokersFailedError) as caught:
            stompy.connect([dead, hole], timeouts=stompy.Timeouts(connect=0.5))
    assert [type(error) for error in caught.value.errors] == [stompy.ConnectError, stompy.ConnectTimeoutError]


def test_of_a_name_with_several_addresses_each_is_tried(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(broker.url.rpartition(":")[2])
    hosts = ("127.0.0.2", "127.0.0.3", "127.0.0.1")  # nobody, a black hole, the broker
    answers = [Endpoint(socket.AF_INET, (host, port)) for host in hosts]
    monkeypatch.setattr("stompy.transport.tcp.resolve", lambda host, port, *, deadline: answers)
    with contextlib.ExitStack() as stack:
        black_hole("127.0.0.3", port, stack)
        url = f"stomp://fred:sesame@broker.test:{port}"
        with stompy.connect(url, timeouts=stompy.Timeouts(connect=2), heartbeat=(0, 0)) as conn:
            assert conn.connected


def test_a_cancelled_opener_dials_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    dialed: list[object] = []
    monkeypatch.setattr("stompy.connection.link_manager.dialer_of", dialed.append)
    connector = Connector(Config(addresses=ADDRESSES))
    connector.cancel()
    with pytest.raises(stompy.NotConnectedError):
        connector.open(Deadline(WITHIN))
    assert dialed == []


ADDRESSES = addresses_of(",".join(f"stomp://broker{number}" for number in range(6)))


def test_addresses_are_tried_as_given() -> None:
    assert tuple(in_order(ADDRESSES, "given")) == ADDRESSES


def test_by_chance_every_address_comes_first_at_times_and_each_once_in_a_pass() -> None:
    passes = [in_order(ADDRESSES, "random") for _ in range(500)]
    assert {one[0] for one in passes} == set(ADDRESSES)
    assert all(sorted(one, key=ADDRESSES.index) == list(ADDRESSES) for one in passes)


def test_with_priority_the_first_stays_first_and_the_others_come_by_chance() -> None:
    passes = [in_order(ADDRESSES, "priority") for _ in range(500)]
    assert {one[0] for one in passes} == {ADDRESSES[0]}
    assert {one[1] for one in passes} == set(ADDRESSES[1:])
    assert all(sorted(one, key=ADDRESSES.index) == list(ADDRESSES) for one in passes)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(stompy.ConfigurationError, match="priority"):
        stompy.Reconnect(order="sorted")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"reconnect": replace(QUICK, order="priority")},
        {"reconnect": replace(QUICK, order="given")},
        {"url": "?priorityBackup=true&initialReconnectDelay=10"},
    ],
)
def test_a_connection_returns_to_its_first_address_when_it_is_next_replaced(
    options: dict[str, Any], calling: Calling
) -> None:
    with contextlib.closing(Sessions(calling)) as first, contextlib.closing(Sessions(calling)) as second:
        settings = dict(options)
        tail = settings.pop("url", None)
        both = f"{first.url},{second.url}"
        url = both if tail is None else f"failover:({both}){tail}"
        connecting = calling(lambda: stompy.connect(url, heartbeat=(0, 0), **{"reconnect": QUICK, **settings}))
        peer = first.next()
        with connecting.result() as conn:
            first.shut()
            peer.close()
            backup = second.next()
            until(lambda: conn.connected)
            assert conn.address == second.url.removeprefix("stomp://")
            first.reopen()
            assert conn.address == second.url.removeprefix("stomp://")  # what works is not left
            backup.close()
            back = first.next()
            until(lambda: conn.connected)
            assert conn.address == first.url.removeprefix("stomp://")
            back.close()
            first.shut()
            second.shut()
