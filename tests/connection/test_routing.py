"""From the reader to user code; most of it is seen in test_subscription.py and test_listener.py."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.message import AckMode
from tests.connection.conftest import (
    ACTIVEMQ,
    ARTEMIS,
    EMBEDDED,
    RABBITMQ,
    Failing,
    Recorder,
    Serving,
    Sessions,
    Talking,
)
from tests.hostile.script import MIB, bounded
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Calling


def test_messages_of_one_read_go_to_their_subscriptions_in_order(talking: Talking) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    for name in "ab":
        talk.subscribe(f"/queue/{name}", id=name)
    peer = talk.peer
    order = ["a", "a", "b", "nobody", "b", "a"]
    peer.raw(b"".join(peer.message(f"{number}", subscription=by) for number, by in enumerate(order)))
    listener.await_event("message", 6)
    assert [what.text for event, what in listener.events if event == "message"] == list("012345")
    assert talk.conn.stats().unrouted == 1


def test_a_message_for_a_subscription_that_was_just_ended_is_counted_and_harms_nobody(serving: Serving) -> None:
    conn, served = serving()
    subscription = conn.subscribe("/queue/a", print, id="1")
    subscription.close()
    served.peer.deliver("late")
    until(lambda: conn.stats().unrouted == 1)
    conn.send("/queue/a", "x", confirm=True)


def test_what_a_broker_pads_is_not_kept_in_mind(talking: Talking) -> None:
    talk = talking("1.0")
    subscription = talk.subscribe("/queue/a", id="1")

    def deliver(padding: int) -> None:
        talk.peer.deliver("", subscription="1" + " " * padding)
        subscription.receive(timeout=WITHIN)

    for _ in range(100):
        deliver(0)
    with bounded(3 * MIB):
        for number in range(200):
            deliver(40_000 + number)


def test_handled_messages_leave_the_inbox_empty(serving: Serving) -> None:
    seen: list[str] = []
    conn, served = serving(listeners=[Recorder()])
    conn.subscribe("/queue/a", lambda message: seen.append(message.text), id="1")
    conn.subscribe("/queue/b", lambda message: seen.append(message.text), id="2", own_thread=True)
    for _ in range(20):
        served.peer.deliver("x", "y", subscription="1")
        served.peer.deliver("z", subscription="2")
    until(lambda: len(seen) == 60)
    until(lambda: conn.stats().queued_messages == 0)
    assert conn.stats().queued_bytes == 0


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_when_the_link_is_lost_only_messages_of_auto_mode_are_still_delivered(talking: Talking, ack: AckMode) -> None:
    """The others come again, and what is done twice should be done by those who asked for it."""
    talk = talking()
    gate, running = threading.Event(), threading.Event()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)
        seen.append(message.text)

    talk.subscribe("/queue/a", handler, ack=ack, id="1")
    for body in "abc":
        talk.peer.deliver(body, ack=None if ack == "auto" else body)
    assert running.wait(WITHIN)
    until(lambda: talk.conn.stats().frames_received >= 4)
    talk.peer.hang_up()
    until(lambda: not talk.conn.connected)
    gate.set()
    if ack == "auto":
        until(lambda: len(seen) == 3)
    talk.close()
    assert seen == (["a", "b", "c"] if ack == "auto" else ["a"])


def test_a_slow_handler_holds_the_broker_back_and_loses_nothing(serving: Serving) -> None:
    conn, served = serving(limits=stompy.Limits(max_inbox_messages=10))
    gate = threading.Event()
    seen: list[int] = []

    def handler(message: stompy.Message) -> None:
        assert gate.wait(WITHIN)
        seen.append(int(message.text))

    def deliver_all() -> None:
        for number in range(500):
            served.peer.deliver(str(number))

    conn.subscribe("/queue/a", handler, id="1")
    flood = threading.Thread(target=deliver_all)
    flood.start()
    until(lambda: conn.stats().reading_paused)
    conn.send("/queue/b", "receipts still come", confirm=True)
    gate.set()
    flood.join(WITHIN)
    until(lambda: len(seen) == 500)
    assert seen == list(range(500))
    assert conn.stats().times_paused > 0


def test_a_flood_for_nobody_does_not_flood_the_log(talking: Talking, caplog: pytest.LogCaptureFixture) -> None:
    talk = talking()
    for number in range(1, 101):
        talk.peer.deliver(b"x", subscription="nobody")
        until(lambda number=number: talk.conn.stats().unrouted == number)  # type: ignore[misc]
    logged = [record for record in caplog.records if "no known subscription" in record.getMessage()]
    assert len(logged) == 7  # at 1, 2, 4, … 64


# A handler that raises


@pytest.mark.parametrize("own_thread", [False, True])
@pytest.mark.parametrize(
    ("server", "version", "headers", "nack", "why"),
    [
        (EMBEDDED, "1.2", {}, {}, ""),
        (EMBEDDED, "1.1", {"redelivered": "true"}, {}, ""),
        (EMBEDDED, "1.2", {"original-destination": "/queue/b"}, None, "dead letter"),
        (ACTIVEMQ, "1.2", {"persistent": "true"}, {}, ""),
        (ACTIVEMQ, "1.1", {"persistent": "true", "redelivered": "true"}, {}, ""),
        (ACTIVEMQ, "1.2", {"persistent": "true", "destination": "/temp-queue/a"}, {}, ""),
        (ACTIVEMQ, "1.2", {}, None, "non-persistent"),
        (ACTIVEMQ, "1.2", {"persistent": "false"}, None, "non-persistent"),
        (ACTIVEMQ, "1.2", {"persistent": "true", "destination": "/topic/a"}, None, "topic"),
        (ACTIVEMQ, "1.2", {"persistent": "true", "original-destination": "/queue/b"}, None, "dead letter"),
        (ACTIVEMQ, "1.0", {"persistent": "true"}, None, "no NACK"),
        (ARTEMIS, "1.2", {"persistent": "true"}, None, "treats a NACK like an ACK"),
        (RABBITMQ, "1.2", {"redelivered": "false"}, {"requeue": "true"}, ""),
        (RABBITMQ, "1.1", {"redelivered": "false"}, {"requeue": "true"}, ""),
        (RABBITMQ, "1.2", {"redelivered": "true"}, None, "without a limit"),
        (RABBITMQ, "1.0", {"redelivered": "false"}, None, "no NACK"),
        ("peer/1", "1.2", {"persistent": "true"}, None, "does not know"),
        (None, "1.2", {"persistent": "true"}, None, "does not know"),
    ],
)
def test_a_message_whose_handler_raised_is_refused_where_its_broker_then_keeps_it(
    talking: Talking,
    caplog: pytest.LogCaptureFixture,
    own_thread: bool,
    server: str | None,
    version: str,
    headers: dict[str, str],
    nack: dict[str, str] | None,
    why: str,
) -> None:
    handler = Failing("bad")
    talk = talking(version, server=server, listeners=[handler])
    talk.subscribe("/queue/a", handler, id="1", ack="client-individual", own_thread=own_thread)
    headers = dict(headers)
    where = {"destination": headers.pop("destination")} if "destination" in headers else {}
    ack = {"ack": "a1"} if version == "1.2" else {}
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        talk.peer.deliver("bad", headers=headers, **where, **ack)
        if nack is not None:
            sent = dict(talk.peer.expect("NACK").headers)
            named = {"id": "a1"} if version == "1.2" else {"message-id": "m1", "subscription": "1"}
            assert sent == {**named, **nack}
        heard = handler.await_event("handler_error")
    assert heard == ("bad", handler.error, None if nack is None else "NACK")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [("counts towards the prefetch" in warning, why in warning) for warning in warnings] == (
        [(True, True)] if nack is None else []
    )
    assert all(thread.endswith("-dispatcher") for thread in handler.threads)
    talk.peer.deliver("good", headers=headers, **{**ack, **({"ack": "a2"} if ack else {})})
    talk.peer.expect("ACK")
    assert handler.seen == ["bad", "good"]
    assert talk.peer.quiet()


@pytest.mark.parametrize("own_thread", [False, True])
def test_what_a_handler_raised_is_reported_before_the_next_message(serving: Serving, own_thread: bool) -> None:
    handler = Failing("bad")
    conn, served = serving(listeners=[handler])
    conn.subscribe("/queue/a", handler, id="1", own_thread=own_thread, ack="auto")
    served.peer.deliver("bad", "good")
    until(lambda: len(handler.seen) == 2)
    assert handler.await_event("handler_error") == ("bad", handler.error, None)
    if not own_thread:
        assert handler.names[-3:] == ["message", "handler_error", "message"]


def test_a_subscription_that_leaves_what_raised_refuses_nothing(talking: Talking) -> None:
    handler = Failing("bad")
    talk = talking(server=EMBEDDED, listeners=[handler])
    talk.subscribe("/queue/a", handler, id="1", ack="client-individual", on_exception="leave")
    talk.peer.deliver("bad", ack="a1")
    talk.peer.deliver("good", ack="a2")
    assert talk.peer.expect("ACK").headers["id"] == "a2"
    assert handler.await_event("handler_error")[2] is None
    assert talk.peer.quiet()


def test_an_unknown_way_with_errors_is_refused_before_anything_is_sent(talking: Talking) -> None:
    talk = talking()
    with pytest.raises(stompy.ConfigurationError, match="on_exception must be 'nack' or 'leave', not 'drop'"):
        talk.conn.subscribe("/queue/a", print, on_exception="drop")  # type: ignore[arg-type]
    assert talk.peer.quiet()


@pytest.mark.parametrize("settle", ["ack", "nack"])
def test_what_the_handler_settled_before_it_raised_is_left_alone(talking: Talking, settle: str) -> None:
    def handler(message: stompy.Message) -> None:
        getattr(message, settle)()
        raise ZeroDivisionError

    heard = Failing()
    talk = talking(server=EMBEDDED, listeners=[heard])
    talk.subscribe("/queue/a", handler, id="1", ack="client-individual")
    talk.peer.deliver("x", ack="a1")
    talk.peer.expect(settle.upper())
    assert heard.await_event("handler_error")[2] == settle.upper()
    assert talk.peer.quiet()


def test_a_transaction_that_aborts_as_the_handler_raises_gives_the_message_back_to_be_refused(talking: Talking) -> None:
    def handler(message: stompy.Message) -> None:
        with talk.conn.transaction() as transaction:
            transaction.ack(message)
            raise ZeroDivisionError

    heard = Failing()
    talk = talking(server=EMBEDDED, listeners=[heard])
    talk.subscribe("/queue/a", handler, id="1", ack="client-individual")
    talk.peer.deliver("x", ack="a1")
    assert talk.peer.expect("NACK").headers["id"] == "a1"
    assert heard.await_event("handler_error")[2] == "NACK"


def test_a_block_inside_a_handler_refuses_and_warns_once(talking: Talking, caplog: pytest.LogCaptureFixture) -> None:
    def handler(message: stompy.Message) -> None:
        with message:
            raise ZeroDivisionError

    heard = Failing()
    talk = talking(server=ACTIVEMQ, listeners=[heard])
    talk.subscribe("/queue/a", handler, id="1", ack="client-individual")
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        talk.peer.deliver("transient", ack="a1")
        heard.await_event("handler_error")
        talk.peer.deliver("kept", ack="a2", headers={"persistent": "true"})
        assert talk.peer.expect("NACK").headers["id"] == "a2"
        heard.await_event("handler_error", 2)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "ERROR"]


# A handler that raises as its link dies


def test_a_handler_that_raises_after_its_link_died_refuses_nothing_on_the_next(
    sessions: Sessions, calling: Calling, caplog: pytest.LogCaptureFixture
) -> None:
    gate, running = threading.Event(), threading.Event()

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)
        raise ZeroDivisionError

    heard = Failing()
    conn, peer = sessions.connect(server=EMBEDDED, listeners=[heard])
    call = calling(lambda: conn.subscribe("/queue/a", handler, id="1", ack="client-individual"))
    peer.expect_and_confirm("SUBSCRIBE")
    call.result()
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        peer.deliver("x", ack="a1")
        assert running.wait(WITHIN)
        peer.close()
        peer = sessions.next(server=EMBEDDED)
        peer.expect_and_confirm("SUBSCRIBE")
        until(lambda: conn.connected)
        gate.set()
        assert heard.await_event("handler_error")[2] is None
        assert peer.quiet()
        peer.deliver("x", ack="a1", headers={"redelivered": "true"})
        assert peer.expect("NACK").headers["id"] == "a1"
    assert "prefetch" not in caplog.text


@pytest.mark.parametrize("how", ["disconnect", "unsubscribe"])
def test_a_handler_that_leaves_and_raises_refuses_nothing(
    serving: Serving, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    def handler(message: stompy.Message) -> None:
        if how == "disconnect":
            conn.close()
        else:
            subscription.close()
        done.set()
        raise ZeroDivisionError

    done = threading.Event()
    conn, served = serving(server=RABBITMQ)
    subscription = conn.subscribe("/queue/a", handler, id="1", ack="client-individual")
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        served.peer.deliver("x", ack="a1", headers={"redelivered": "false"})
        assert done.wait(WITHIN)
        until(lambda: "ZeroDivisionError" in caplog.text)
        conn.close()
    assert "NACK" not in served.commands()
    assert "prefetch" not in caplog.text


# At the embedded broker


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_behind_a_message_that_always_raises_the_others_come(version: str, ack: AckMode) -> None:
    with Broker() as broker, stompy.connect(broker.url, versions=version) as conn:
        for body in ("a", "bad", "b", "c"):
            conn.send("/queue/a", body)
        handler = Failing("bad")
        conn.subscribe("/queue/a", handler, ack=ack, prefetch=1)
        until(lambda: handler.seen[-1:] == ["c"])
        assert handler.seen == ["a", *["bad"] * 7, "b", "c"]
        dead = conn.subscribe("/queue/DLQ", ack="client-individual").receive(timeout=WITHIN)
        assert (dead.text, dead.headers["original-destination"]) == ("bad", "/queue/a")


def test_a_handler_of_dead_letters_that_always_raises_loses_none() -> None:
    """The broker gives up a dead letter that is refused often enough."""
    with Broker(attempts=1) as broker, stompy.connect(broker.url) as conn:
        for number in range(3):
            conn.send("/queue/a", str(number))
        first = Failing("0", "1", "2")
        conn.subscribe("/queue/a", first, ack="client-individual")
        until(lambda: len(first.seen) == 3)
        second = Failing("0", "1", "2")
        with stompy.connect(broker.url, listeners=[second]) as other:
            other.subscribe("/queue/DLQ", second, ack="client-individual")
            second.await_event("handler_error", 3)
        subscription = conn.subscribe("/queue/DLQ")
        assert sorted(subscription.receive(timeout=WITHIN).text for _ in range(3)) == ["0", "1", "2"]
        assert broker.stats().discarded == 0


@pytest.mark.parametrize("like", [None, "activemq", "activemq5", "artemis", "rabbitmq"])
@pytest.mark.parametrize("ack", ["handled", "client-individual"])
def test_a_handler_that_unsubscribes_gets_nothing_of_what_the_broker_delivers_again(like: Any, ack: AckMode) -> None:
    """The rest was received with the first message, and cannot be acknowledged any more."""
    handled = []
    with Broker(like=like) as broker, stompy.connect(broker.url) as conn:

        def handle(message: stompy.Message) -> None:
            handled.append(message.text)
            message.ack(confirm=True)
            subscription.close()

        with conn.batch():
            for number in range(5):
                conn.send("/queue/a", str(number), persistent=True)
        conn.flush()
        ready = threading.Event()
        conn.subscribe("/queue/ready", lambda message: ready.wait(10))
        conn.send("/queue/ready", "x", confirm=True)
        subscription = conn.subscribe("/queue/a", handle, ack=ack)
        until(lambda: conn.stats().queued_messages >= 5)  # all of them wait for the dispatcher
        ready.set()
        until(lambda: conn.stats().queued_messages == 0)
        assert handled == ["0"]
        conn.close()
        until(lambda: broker.depth("/queue/a") == 4)


@pytest.mark.parametrize("like", [None, "activemq", "activemq5", "artemis", "rabbitmq"])
def test_what_was_not_acknowledged_cannot_be_after_the_subscription(like: Any) -> None:
    with Broker(like=like) as broker, stompy.connect(broker.url) as conn:
        conn.send("/queue/a", "x", persistent=True, confirm=True)
        subscription = conn.subscribe("/queue/a", ack="client-individual")
        message = subscription.receive(timeout=10)
        subscription.close()
        with pytest.raises(stompy.AckError, match="the broker will deliver it again"):
            message.ack()
        conn.close()
        assert broker.depth("/queue/a") == 1
