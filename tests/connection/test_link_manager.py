from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.subscriptions import SubscriptionTable
from stompy.deadline import Deadline
from stompy.transport.base import Transport
from stompy.transport.tcp import TcpListener
from tests.connection.conftest import Sessions
from tests.support.peer import Peer, until
from tests.support.ports import reserved_port
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling

SOON = 10.0
"""Seconds that something may take before the test fails."""

QUICK = stompy.Reconnect(backoff=stompy.Backoff(first=0.01, longest=0.05))


class Recorder(stompy.Listener):
    """Puts what happens into a queue, to be waited for."""

    def __init__(self) -> None:
        self.events: queue.Queue[tuple[str, object]] = queue.Queue()

    def on_connected(self, event: stompy.ConnectedEvent) -> None:
        self.events.put(("connected", event.frame))

    def on_reconnecting(self, event: stompy.ReconnectingEvent) -> None:
        self.events.put(("reconnecting", event.attempt))

    def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
        self.events.put(("disconnected", event.reason))

    def wait(self, event: str) -> object:
        """Return the argument of the next event, which must be `event`."""
        got, argument = self.events.get(timeout=SOON)
        assert got == event
        return argument

    def skip_to(self, event: str) -> list[str]:
        """Return the names of the events up to `event`, which is waited for."""
        names: list[str] = []
        while not names or names[-1] != event:
            names.append(self.events.get(timeout=SOON)[0])
        return names


class Restartable:
    """An embedded broker that comes back at its port, empty."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.back()
        self.url = self.broker.url

    def stop(self) -> None:
        self.broker.close()

    def back(self, **settings: object) -> None:
        self.broker = Broker(port=self.port, **settings)  # type: ignore[arg-type]
        self.broker.start()


@pytest.fixture
def restartable() -> Iterator[Restartable]:
    with reserved_port() as port:
        broker = Restartable(port)
        yield broker
        broker.stop()


def test_without_a_policy_a_lost_link_is_the_end(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, listeners=[heard]) as connection:
        subscription = connection.subscribe("/queue/a")
        restartable.stop()
        with pytest.raises(stompy.ConnectionLostError):
            subscription.receive(timeout=SOON)
        with pytest.raises(stompy.ConnectionLostError) as lost:
            connection.send("/queue/a", "x")
        assert lost.value.outcome == "not-sent"
        heard.wait("connected")
        assert isinstance(heard.wait("disconnected"), stompy.ConnectionLostError)
    assert heard.events.empty()


def test_subscriptions_come_back_before_anybody_sends(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]) as connection:
        topic = connection.subscribe("/topic/a", id="mine")
        for _ in range(3):
            heard.skip_to("connected")
            restartable.stop()
            heard.skip_to("reconnecting")
            restartable.back()
            # A topic forgets what nobody subscribes to, so this only arrives if the subscription was there first.
            connection.send("/topic/a", "after", timeout=SOON)
            assert topic.receive(timeout=SOON).text == "after"
        assert connection.stats().reconnects == 3
        assert restartable.broker.stats().subscriptions == 1


def test_listeners_hear_each_transition_once_and_in_order(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]):
        heard.wait("connected")
        restartable.stop()
        assert isinstance(heard.wait("disconnected"), stompy.ConnectionLostError)
        assert heard.wait("reconnecting") == 1
        restartable.back()
        names = heard.skip_to("connected")
        assert set(names[:-1]) <= {"reconnecting"}
    assert heard.wait("disconnected") is None
    assert heard.events.empty()


def test_a_message_of_the_old_link_cannot_be_acknowledged(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]) as connection:
        subscription = connection.subscribe("/queue/a", ack="client-individual")
        connection.send("/queue/a", "one", confirm=True)
        message = subscription.receive(timeout=SOON)
        restartable.stop()
        heard.skip_to("reconnecting")
        restartable.back()
        heard.skip_to("connected")
        with pytest.raises(stompy.AckError, match="deliver it again"):
            message.ack()


def test_queued_unacknowledged_messages_are_dropped_with_their_link(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]) as connection:
        subscription = connection.subscribe("/queue/a", ack="client")
        connection.send("/queue/a", "old", confirm=True)
        while not subscription.queued:
            connection.send("/queue/other", "", confirm=True)
        restartable.stop()
        heard.skip_to("reconnecting")
        restartable.back()
        connection.send("/queue/a", "new", timeout=SOON)
        assert subscription.receive(timeout=SOON).text == "new"
        until(lambda: connection.stats().queued_messages == 0)  # the listeners', who may come behind


def test_a_subscription_ended_during_the_outage_does_not_come_back(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]) as connection:
        gone = connection.subscribe("/queue/gone")
        connection.subscribe("/queue/stays")
        restartable.stop()
        heard.skip_to("reconnecting")
        gone.close()
        restartable.back()
        connection.send("/queue/any", "x", confirm=True, timeout=SOON)
        assert restartable.broker.stats().subscriptions == 1
        assert gone.closed


def test_a_subscription_made_during_the_outage_waits_for_the_link(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]) as connection:
        restartable.stop()
        heard.skip_to("reconnecting")
        made: queue.Queue[stompy.Subscription] = queue.Queue()
        caller = threading.Thread(target=lambda: made.put(connection.subscribe("/queue/late")))
        caller.start()
        restartable.back()
        subscription = made.get(timeout=SOON)
        caller.join()
        connection.send("/queue/late", "x")
        assert subscription.receive(timeout=SOON).text == "x"
        assert restartable.broker.stats().subscriptions == 1


def test_an_open_transaction_fails_its_block(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]) as connection:
        with pytest.raises(stompy.ConnectionLostError), connection.transaction() as transaction:  # noqa: PT012 - the block
            transaction.send("/queue/a", "half")
            restartable.stop()
            heard.skip_to("reconnecting")
            restartable.back()
            heard.skip_to("connected")
        connection.send("/queue/b", "x", confirm=True)
        assert restartable.broker.depth("/queue/a") == 0


def test_receipts_in_flight_end_as_unknown() -> None:
    peer = TcpListener()
    host, port = peer.address
    sessions: queue.Queue[Transport] = queue.Queue()

    def serve() -> None:
        transport = peer.accept()
        assert transport is not None
        transport.recv()
        transport.sendall(b"CONNECTED\nversion:1.2\n\n\x00", Deadline(SOON))
        sessions.put(transport)

    server = threading.Thread(target=serve)
    server.start()
    connection = stompy.connect(f"stomp://{host}:{port}", reconnect=stompy.Reconnect(attempts=1), heartbeat=(0, 0))
    server.join()
    receipt = connection.send_async("/queue/a", "x")
    assert receipt is not None
    peer.close()
    sessions.get(timeout=SOON).close()
    with pytest.raises(stompy.ConnectionLostError) as lost:
        receipt.result(SOON)
    assert lost.value.outcome == "unknown"
    assert outcome_of(receipt) == "unknown"
    connection.close()


def test_a_policy_that_gives_up_says_why(restartable: Restartable) -> None:
    policy = stompy.Reconnect(attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.02))
    with stompy.connect(restartable.url, reconnect=policy) as connection:
        subscription = connection.subscribe("/queue/a")
        restartable.stop()
        with pytest.raises(stompy.ConnectError, match="connection refused"):
            subscription.receive(timeout=SOON)
        with pytest.raises(stompy.ConnectionLostError, match="lost for good"):
            connection.send("/queue/a", "x")


def test_a_refused_login_is_not_tried_again(restartable: Restartable) -> None:
    heard = Recorder()
    with stompy.connect(restartable.url, reconnect=QUICK, listeners=[heard]) as connection:
        heard.wait("connected")
        subscription = connection.subscribe("/queue/a")
        restartable.stop()
        restartable.back(users={"somebody": "else"})
        with pytest.raises(stompy.ConnectRefusedError):
            subscription.receive(timeout=SOON)


def test_disconnect_ends_a_wait_between_attempts_at_once(restartable: Restartable) -> None:
    heard = Recorder()
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=1000.0, longest=1000.0))
    connection = stompy.connect(restartable.url, reconnect=policy, listeners=[heard])
    subscription = connection.subscribe("/queue/a")
    restartable.stop()
    heard.skip_to("reconnecting")
    heard.wait("reconnecting")  # the first attempt failed, and a long wait has begun
    connection.close(timeout=SOON)
    with pytest.raises(stompy.NotConnectedError):
        subscription.receive(timeout=0)
    with pytest.raises(stompy.NotConnectedError):
        connection.send("/queue/a", "x")


def test_a_send_during_the_outage_gives_up_after_its_time(restartable: Restartable) -> None:
    heard = Recorder()
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=1000.0, longest=1000.0))
    with stompy.connect(
        restartable.url, reconnect=policy, listeners=[heard], timeouts=stompy.Timeouts(send=0.05)
    ) as connection:
        restartable.stop()
        heard.skip_to("reconnecting")
        with pytest.raises(stompy.ConnectionLostError) as lost:
            connection.send("/queue/a", "x")
        assert lost.value.outcome == "not-sent"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list a process's descriptors")
def test_ten_reconnects_in_a_row_leave_no_thread_and_no_socket(sessions: Sessions) -> None:
    conn, peer = sessions.connect()
    name = conn._links._name

    def threads() -> list[str]:
        return sorted(re.sub(r"\.\d+", "", one.name) for one in threading.enumerate() if name in one.name)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before, open_before = threads(), descriptors()
    assert before == [f"stompy-{name}-dispatcher", f"stompy-{name}-reader"]
    for _ in range(10):
        peer.close()
        peer = sessions.next()
        conn.send("/queue/a", "x")
        peer.expect("SEND")
        until(lambda: threads() == before)
        assert descriptors() == open_before


def test_the_next_of_several_addresses_takes_over(restartable: Restartable) -> None:
    with Broker() as other:
        url = f"failover:({restartable.url},{other.url})?randomize=false&initialReconnectDelay=10"
        with stompy.connect(url) as connection:
            assert connection.address in restartable.url
            subscription = connection.subscribe("/queue/a")
            restartable.stop()
            connection.send("/queue/a", "moved", timeout=SOON)
            assert subscription.receive(timeout=SOON).text == "moved"
            assert connection.address in other.url


@pytest.mark.parametrize("refused", [False, True])
def test_a_session_that_ends_as_it_begins_is_one_that_did_not_come_about(
    calling: Calling, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    monkeypatch.setattr(SubscriptionTable, "replay", lambda self, link: link.ended.wait(SOON))  # the reader is quicker
    with contextlib.closing(TcpListener()) as listener:
        host, port = listener.address
        call = calling(lambda: stompy.connect(f"stomp://{host}:{port}", heartbeat=(0, 0)))
        transport = listener.accept()
        assert transport is not None
        peer = Peer(transport)
        peer.take_connect()
        peer.raw(peer.connected_frame() + (peer.encoded("ERROR", {"message": "go away"}) if refused else b""))
        peer.hang_up()
        with pytest.raises(stompy.ConnectError, match="right after CONNECTED") as caught:
            call.result()
        peer.close()
    assert isinstance(caught.value, stompy.ConnectRefusedError) is refused
    assert not refused or "go away" in str(caught.value)


def test_a_reconnect_finds_no_common_version_and_says_so(restartable: Restartable) -> None:
    with stompy.connect(restartable.url, versions="1.2", reconnect=QUICK) as connection:
        subscription = connection.subscribe("/queue/a")
        restartable.stop()
        restartable.back(versions=["1.0"])
        with pytest.raises(stompy.VersionMismatchError):
            subscription.receive(timeout=SOON)


def test_a_closed_connection_tells_its_listeners_nothing_more(restartable: Restartable) -> None:
    heard = Recorder()
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=1000.0, longest=1000.0))
    connection = stompy.connect(restartable.url, reconnect=policy, listeners=[heard])
    restartable.stop()
    assert heard.skip_to("reconnecting") == ["connected", "disconnected", "reconnecting"]
    heard.wait("reconnecting")
    connection.close(timeout=SOON)
    assert heard.events.empty()
