"""A connection that is closed while its link is replaced, and what goes over to the next link."""

from __future__ import annotations

import logging
import threading
from functools import partial

import pytest

import stompy
from stompy.deadline import Deadline
from stompy.frames.parser import Parser
from stompy.link.link import Link
from stompy.transport.tcp import TcpDialer, TcpTransport
from tests.connection.conftest import Events, Sessions
from tests.connection.test_link_manager import SOON, Recorder
from tests.support.peer import until, wire
from tests.transport.conftest import Calling


def supervising(connection: stompy.Connection) -> list[threading.Thread]:
    """Return the reconnect threads of a connection."""
    name = f"stompy-{connection._links._name}-reconnect"
    return [one for one in threading.enumerate() if one.name == name]


def test_disconnect_ends_a_handshake_that_nobody_answers(sessions: Sessions) -> None:
    conn, first = sessions.connect(timeouts=stompy.Timeouts(connect=1000.0, close=1000.0))
    first.close()
    sessions.accept().take_connect()
    conn.close()
    assert supervising(conn) == []


def test_closing_waits_for_the_readers_of_sessions_that_were_replaced(
    sessions: Sessions, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_up, go_on = Link.clean_up, threading.Event()
    lingering: list[Link] = []

    def linger(link: Link) -> None:
        clean_up(link)
        if len(lingering) < 2:
            lingering.append(link)
            assert go_on.wait(3 * SOON)

    monkeypatch.setattr(Link, "clean_up", linger)
    conn, peer = sessions.connect()

    def are_replaced(count: int) -> bool:
        return conn.connected and conn.stats().reconnects == len(lingering) == count

    for count in (1, 2):
        peer.close()
        peer = sessions.next()
        until(partial(are_replaced, count))
    leaving = calling(conn.close)
    peer.expect_disconnect()
    leaving.until_blocked()
    go_on.set()
    leaving.result()
    name = f"stompy-{conn._links._name}"
    assert [one.name for one in threading.enumerate() if one.name.startswith(name)] == []


def test_disconnect_ends_a_replay_that_nobody_answers(sessions: Sessions, calling: Calling) -> None:
    conn, first = sessions.connect(timeouts=stompy.Timeouts(receipt=1000.0, close=1000.0))
    subscribing = calling(lambda: conn.subscribe("/queue/a"))
    first.expect_and_confirm("SUBSCRIBE")
    subscribing.result()
    first.close()
    sessions.next().expect("SUBSCRIBE")
    conn.close()
    assert supervising(conn) == []


def test_disconnect_during_a_dial_frees_everybody_at_once_and_drops_what_it_brings(
    sessions: Sessions, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Recorder()
    conn, first = sessions.connect(listeners=[heard])
    subscribing = calling(lambda: conn.subscribe("/queue/a"))
    first.expect_and_confirm("SUBSCRIBE")
    subscription = subscribing.result()
    dial, dialing, answer = TcpDialer.dial, threading.Event(), threading.Event()

    def slow(dialer: TcpDialer, deadline: Deadline) -> TcpTransport:
        dialing.set()
        assert answer.wait(SOON)
        return dial(dialer, deadline)

    monkeypatch.setattr(TcpDialer, "dial", slow)
    first.close()
    assert dialing.wait(SOON)
    waiting = [calling(lambda: subscription.receive(timeout=SOON)), calling(lambda: conn.send("/queue/a", "x"))]
    for call in waiting:
        call.until_blocked()
    conn.close(timeout=0.01)
    for call in waiting:
        with pytest.raises(stompy.NotConnectedError):
            call.result()
    assert len(supervising(conn)) == 1  # still in the dial
    answer.set()
    late = sessions.accept()
    assert late.rest() == []
    until(lambda: not supervising(conn))
    assert heard.skip_to("reconnecting") == ["connected", "disconnected", "reconnecting"]
    assert heard.events.empty()


def test_disconnect_frees_everybody_although_the_lost_links_reader_is_not_done_yet(
    sessions: Sessions, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn, first = sessions.connect()
    subscribing = calling(lambda: conn.subscribe("/queue/a"))
    first.expect_and_confirm("SUBSCRIBE")
    subscription = subscribing.result()
    dialing, answer = threading.Event(), threading.Event()

    def slow(dialer: TcpDialer, deadline: Deadline) -> TcpTransport:
        dialing.set()
        assert answer.wait(3 * SOON)
        raise stompy.ConnectError("there is none")

    link = conn._links.link
    ended, go_on = link.owner.ended, threading.Event()

    def linger(link: Link, reason: stompy.StompError | None) -> None:
        ended(link, reason)
        assert go_on.wait(3 * SOON)

    monkeypatch.setattr(TcpDialer, "dial", slow)
    monkeypatch.setattr(link.owner, "ended", linger)
    first.close()
    assert dialing.wait(SOON)
    waiting = calling(lambda: subscription.receive(timeout=SOON))
    waiting.until_blocked()
    conn.close(timeout=0.01)
    with pytest.raises(stompy.NotConnectedError):
        waiting.result()
    go_on.set()
    answer.set()
    until(lambda: not supervising(conn))


class FirstWaits(stompy.Listener):
    """Keeps the wait before the first attempt of each outage."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_reconnecting(self, event: stompy.ReconnectingEvent) -> None:
        if event.attempt == 1:
            self.seconds.append(event.delay)


@pytest.mark.parametrize("last_words", [False, True])
def test_a_broker_that_ends_every_link_at_once_is_asked_with_growing_pauses(
    sessions: Sessions, calling: Calling, monkeypatch: pytest.MonkeyPatch, last_words: bool
) -> None:
    monkeypatch.setattr("stompy.backoff.random.uniform", lambda least, most: most)
    waits = FirstWaits()
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.003))
    conn, peer = sessions.connect(listeners=[waits], reconnect=policy)
    subscribing = calling(lambda: conn.subscribe("/queue/a"))
    peer.expect_and_confirm("SUBSCRIBE")
    subscribing.result()
    for number in range(2, 8):
        if last_words:
            peer.error("go away")
        peer.close()
        peer = sessions.next()
        peer.expect_and_confirm("SUBSCRIBE")
        until(lambda wanted=number: conn.connected and conn.stats().links == wanted)  # type: ignore[misc]
    until(lambda: len(waits.seconds) == 6)
    assert waits.seconds == [0.0, 0.001, 0.002, 0.003, 0.003, 0.003]


def test_frames_that_memory_cannot_hold_are_said_to_be_and_asked_for_with_growing_pauses(
    sessions: Sessions, calling: Calling, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker delivers the same message again on each session."""
    monkeypatch.setattr("stompy.backoff.random.uniform", lambda least, most: most)
    read = Parser.read

    def read_or_fail(self: Parser, data: bytes) -> object:
        if b"too large" in data:
            raise MemoryError
        return read(self, data)

    monkeypatch.setattr(Parser, "read", read_or_fail)
    waits, events = FirstWaits(), Events()
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.003))
    conn, peer = sessions.connect(listeners=[waits, events], reconnect=policy)
    subscribing = calling(lambda: conn.subscribe("/queue/a", id="1"))
    peer.expect_and_confirm("SUBSCRIBE")
    subscription = subscribing.result()
    with caplog.at_level(logging.WARNING, "stompy"):
        for number in range(2, 7):
            peer.deliver("small")
            subscription.receive()
            peer.raw(wire("MESSAGE", {"subscription": "1", "message-id": "m", "destination": "/q"}, b"too large"))
            reason = events.await_event("disconnected", number - 1)
            assert "out of memory" in str(reason)
            peer.close()
            peer = sessions.next()
            peer.expect_and_confirm("SUBSCRIBE")
            until(lambda wanted=number: conn.connected and conn.stats().links == wanted)  # type: ignore[misc]
    until(lambda: len(waits.seconds) == 5)
    assert waits.seconds == [0.0, 0.001, 0.002, 0.003, 0.003]
    assert "bug" not in caplog.text
    told = [record.name for record in caplog.records if "lower limits or inbox of connect" in record.getMessage()]
    assert told.count("stompy.link") == told.count("stompy.connection") == 5


def test_the_pause_before_a_first_attempt_is_waited_for(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Event()
    monkeypatch.setattr("stompy.connection.link_manager.first_wait", lambda policy, failures: 1000.0)
    conn, peer = sessions.connect()
    monkeypatch.setattr("stompy.connection.link_manager.Connector.open", lambda connector: opened.set())
    peer.close()
    until(lambda: supervising(conn))
    assert not opened.wait(0.1)
    conn.close(timeout=SOON)
    assert supervising(conn) == []


def test_no_attempt_is_announced_once_the_connection_is_closed(sessions: Sessions) -> None:
    waits = FirstWaits()
    conn, peer = sessions.connect(listeners=[waits])
    peer.close()
    sessions.next()
    conn.close(timeout=0.1)
    before = list(waits.seconds)
    conn._links.reconnecting(1, 5.0, stompy.ConnectionLostError("lost"))
    assert waits.seconds == before


def test_links_that_end_at_once_but_were_of_use_are_replaced_with_pauses_that_do_not_grow(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.backoff.random.uniform", lambda least, most: most)
    waits = FirstWaits()
    conn, peer = sessions.connect(listeners=[waits])
    for _ in range(6):
        receipt = conn.send_async("/queue/a", "x")
        assert receipt is not None
        peer.expect_and_confirm("SEND")
        receipt.result(SOON)
        peer.close()
        peer = sessions.next()
    until(lambda: len(waits.seconds) == 6)
    assert waits.seconds == [0.0, *[0.001] * 5]


def test_heartbeats_begin_where_the_first_broker_had_none(sessions: Sessions) -> None:
    conn, first = sessions.connect(heartbeat=(0.05, 0.05))
    assert conn.heartbeat == (0.0, 0.0)
    first.close()
    second = sessions.next(heartbeat=(1.0, 0.05))
    second.await_beats(3)
    assert conn.heartbeat == (0.05, 1.0)


def test_heartbeats_end_where_the_next_broker_has_none(sessions: Sessions) -> None:
    conn, first = sessions.connect(heartbeat=(0.05, 0.05), peer_heartbeat=(1.0, 0.05))
    first.await_beats(1)
    first.close()
    second = sessions.next()
    until(lambda: conn.heartbeat == (0.0, 0.0))
    conn.send("/queue/a", "x")
    second.expect("SEND")
    assert not [one for one in threading.enumerate() if one.name.endswith(f"{conn._links._name}.2-heartbeat")]
    assert conn.connected


def test_a_durable_subscription_comes_back_under_the_same_client_id(sessions: Sessions, calling: Calling) -> None:
    conn, first = sessions.connect(dialect="activemq", client_id="me")
    subscribing = calling(lambda: conn.subscribe("/topic/news", durable="daily", ack="client-individual"))
    before = first.expect_and_confirm("SUBSCRIBE")
    subscribing.result()
    first.close()
    second = sessions.accept()
    assert second.greet().headers["client-id"] == "me"
    after = second.expect_and_confirm("SUBSCRIBE")
    own = ("receipt",)
    assert [pair for pair in after.headers if pair[0] not in own] == [
        pair for pair in before.headers if pair[0] not in own
    ]
    assert after.headers["activemq.subscriptionName"] == "daily"


def test_counters_are_those_of_all_links_together(sessions: Sessions) -> None:
    conn, peer = sessions.connect()
    for number in range(1, 4):
        receipt = conn.send_async("/queue/a", "x")
        assert receipt is not None
        peer.expect_and_confirm("SEND")
        receipt.result(SOON)
        stats = conn.stats()
        assert (stats.links, stats.reconnects) == (number, number - 1)
        assert stats.frames_sent == number
        assert stats.frames_received == number
        assert stats.bytes_sent >= number * len("SEND\n")
        assert stats.bytes_received >= number * len("RECEIPT\n")
        peer.close()
        peer = sessions.next()
        until(lambda: conn.connected)


def test_messages_of_the_link_before_that_wait_are_counted(sessions: Sessions, calling: Calling) -> None:
    conn, first = sessions.connect()
    subscribing = calling(lambda: conn.subscribe("/queue/a", ack="auto"))
    frame = first.expect_and_confirm("SUBSCRIBE")
    subscription = subscribing.result()
    first.deliver("1", "22", subscription=frame.headers["id"])
    until(lambda: conn.stats().queued_messages == 2)
    size = conn.stats().queued_bytes
    assert size >= 3
    first.close()
    sessions.next().expect_and_confirm("SUBSCRIBE")
    until(lambda: conn.connected)
    assert (conn.stats().queued_messages, conn.stats().queued_bytes) == (2, size)
    assert [subscription.receive(timeout=SOON).text for _ in range(2)] == ["1", "22"]
    assert (conn.stats().queued_messages, conn.stats().queued_bytes) == (0, 0)
