"""Subscribing, receiving, and the end of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    LocalProtocolError,
    NotConnectedError,
    ReceiptTimeoutError,
    ReceiveTimeoutError,
)
from tests.connection.conftest import Serving, Talking
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Calling

# The frames


@pytest.mark.requirement("SUB-01", "SUB-05", "SUB-07", "SUB-09")
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_subscribe_says_where_by_which_id_and_how_it_acks(talking: Talking, calling: Calling, mode: str) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.subscribe("/queue/a", ack=mode, headers={"selector": "x = 1", "browser": True}))  # type: ignore[arg-type]
    frame = talk.peer.expect("SUBSCRIBE")
    headers = dict(frame.headers)
    assert headers.pop("receipt")
    assert headers == {"id": "1", "destination": "/queue/a", "ack": mode, "selector": "x = 1", "browser": "true"}
    call.until_blocked()
    talk.peer.receipt(frame)
    subscription = call.result()
    assert (subscription.id, subscription.destination, subscription.ack) == ("1", "/queue/a", mode)
    assert repr(subscription) == f"<Subscription '/queue/a' id=1 {mode} queued=0>"


@pytest.mark.requirement("SUB-03", "SUB-06")
def test_each_subscription_has_an_id_of_its_own(talking: Talking) -> None:
    talk = talking()
    ids = [talk.subscribe("/topic/a").id, talk.subscribe("/topic/a").id, talk.subscribe("/topic/a", id="mine").id]
    assert len(set(ids)) == 3
    assert ids[2] == "mine"
    with pytest.raises(LocalProtocolError, match="already a subscription with id 'mine'"):
        talk.conn.subscribe("/topic/b", id="mine")
    assert talk.peer.quiet()


@pytest.mark.requirement("SUB-09")
@pytest.mark.parametrize("mode", ["", "maybe", "Client", None])
def test_an_unknown_ack_mode_is_refused_before_anything_is_sent(talking: Talking, mode: Any) -> None:
    talk = talking()
    with pytest.raises(ConfigurationError, match="ack must be"):
        talk.conn.subscribe("/queue/a", ack=mode)
    assert talk.peer.quiet()


@pytest.mark.parametrize("destination", ["", None, b"/queue/a", 5])
def test_a_destination_is_text(talking: Talking, destination: Any) -> None:
    with pytest.raises(LocalProtocolError, match="a destination must be non-empty text"):
        talking().conn.subscribe(destination)


def test_a_subscription_that_cannot_be_written_harms_nobody(talking: Talking) -> None:
    talk = talking("1.0")
    with pytest.raises(LocalProtocolError):
        talk.conn.subscribe("/queue/a", headers={"selector": "two\nlines"})
    assert talk.peer.quiet()
    talk.subscribe("/queue/a")
    assert talk.conn.stats().subscriptions == 1


@pytest.mark.requirement("SUB-13", "SUB-14")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_unsubscribe_names_the_id_and_waits_for_the_broker(talking: Talking, calling: Calling, version: str) -> None:
    talk = talking(version)
    subscription = talk.subscribe("/queue/a")
    call = calling(subscription.close)
    frame = talk.peer.expect("UNSUBSCRIBE")
    assert frame.headers["id"] == subscription.id
    call.until_blocked()
    talk.peer.receipt(frame)
    call.result()
    assert subscription.closed
    assert repr(subscription).endswith(" closed>")
    assert talk.conn.stats().subscriptions == 0


def test_unsubscribe_is_idempotent(talking: Talking, calling: Calling) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    call = calling(subscription.close)
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    call.result()
    subscription.close()
    assert talk.peer.quiet()


def test_two_threads_that_unsubscribe_at_once_send_one_frame(talking: Talking, calling: Calling) -> None:
    """An UNSUBSCRIBE for nothing is an error to most brokers, and ends the connection."""
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    first = calling(subscription.close)
    frame = talk.peer.expect("UNSUBSCRIBE")
    first.until_blocked()
    calling(subscription.close).result()
    assert talk.peer.quiet()
    talk.peer.receipt(frame)
    first.result()


def test_a_subscription_that_the_broker_refuses_is_none(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.subscribe("/queue/forbidden"))
    frame = talk.peer.expect("SUBSCRIBE")
    talk.peer.error("not allowed", headers={"receipt-id": frame.headers["receipt"]})
    with pytest.raises(BrokerError, match="not allowed"):
        call.result()
    assert talk.conn.stats().subscriptions == 0


def test_a_subscription_that_is_not_confirmed_in_time_is_taken_back(talking: Talking) -> None:
    talk = talking()
    with pytest.raises(ReceiptTimeoutError):
        talk.conn.subscribe("/queue/a", timeout=0.3)
    assert talk.peer.expect("SUBSCRIBE").headers["id"] == "1"
    assert talk.peer.expect("UNSUBSCRIBE").headers["id"] == "1"
    assert talk.conn.stats().subscriptions == 0
    assert talk.conn.connected


# Receiving


def test_messages_are_received_in_order(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    talk.peer.deliver(*[str(number) for number in range(100)])
    assert [subscription.receive().text for _ in range(100)] == [str(number) for number in range(100)]


def test_messages_in_front_of_the_receipt_of_subscribe_are_kept(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.subscribe("/queue/a"))
    frame = talk.peer.expect("SUBSCRIBE")
    talk.peer.deliver("early")
    talk.peer.receipt(frame)
    assert call.result().receive().text == "early"


def test_each_subscription_gets_its_own(talking: Talking) -> None:
    talk = talking()
    one, two = talk.subscribe("/topic/a"), talk.subscribe("/topic/a")
    peer = talk.peer
    order = [("a", one), ("b", two), ("c", one), ("d", one)]
    peer.raw(b"".join(peer.message(body, subscription=by.id) for body, by in order))
    assert [one.receive().text for _ in range(3)] == ["a", "c", "d"]
    assert two.receive().text == "b"


@pytest.mark.requirement("SUB-03")
def test_a_1_0_message_without_an_id_goes_by_its_destination(talking: Talking) -> None:
    talk = talking("1.0")
    one, two = talk.subscribe("/queue/a"), talk.subscribe("/queue/b")
    talk.peer.deliver("for b", subscription=None, destination="/queue/b")
    talk.peer.deliver("for a", subscription=None, destination="/queue/a")
    assert (two.receive().text, one.receive().text) == ("for b", "for a")


def test_no_message_in_time_is_a_timeout_that_names_the_destination(talking: Talking) -> None:
    subscription = talking().subscribe("/queue/a")
    for timeout in (0, 0.05):
        with pytest.raises(ReceiveTimeoutError, match="no message from '/queue/a' in time"):
            subscription.receive(timeout=timeout)


def test_what_has_come_is_received_even_with_no_time_left(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    talk.peer.deliver("x")
    until(lambda: subscription.queued == 1)
    assert subscription.receive(timeout=0).text == "x"


def test_the_default_timeout_is_finite(talking: Talking) -> None:
    talk = talking(timeouts=stompy.Timeouts(receipt=0.2))
    subscription = talk.subscribe("/queue/a")
    with pytest.raises(ReceiveTimeoutError):
        subscription.receive()


def test_several_threads_may_receive_from_one_subscription(talking: Talking, calling: Calling) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    calls = [calling(lambda: subscription.receive(timeout=WITHIN).text) for _ in range(5)]
    for call in calls:
        call.until_blocked()
    talk.peer.deliver(*"abcde")
    assert sorted(call.result() for call in calls) == list("abcde")


def test_iteration_waits_for_messages_and_ends_with_the_subscription(talking: Talking, calling: Calling) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    seen: list[str] = []

    def iterate() -> None:
        for message in subscription:
            seen.append(message.text)

    loop = calling(iterate)
    talk.peer.deliver("a", "b")
    until(lambda: len(seen) == 2)
    loop.until_blocked()
    ending = calling(subscription.close)
    frame = talk.peer.expect("UNSUBSCRIBE")
    talk.peer.deliver("last")
    talk.peer.receipt(frame)
    ending.result()
    loop.result()
    assert seen == ["a", "b", "last"]


def test_iteration_ends_with_disconnect(talking: Talking, calling: Calling) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    loop = calling(lambda: list(subscription))
    loop.until_blocked()
    leaving = talk.leave()
    talk.peer.expect_disconnect()
    leaving.result()
    assert loop.result() == []
    with pytest.raises(NotConnectedError, match="is closed"):
        subscription.receive()


def test_iteration_over_a_link_that_dies_raises_the_reason(talking: Talking, calling: Calling) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    loop = calling(lambda: list(subscription))
    receiving = calling(subscription.receive)
    for call in (loop, receiving):
        call.until_blocked()
    talk.peer.error("the queue was deleted")
    for call in (loop, receiving):
        with pytest.raises(BrokerError, match="the queue was deleted"):
            call.result()


def test_a_lost_link_keeps_messages_of_auto_mode_and_drops_those_that_come_again(talking: Talking) -> None:
    talk = talking()
    auto, client = talk.subscribe("/queue/a", ack="auto"), talk.subscribe("/queue/b", ack="client")
    talk.peer.deliver("kept", subscription=auto.id)
    talk.peer.deliver("comes again", subscription=client.id, ack="1")
    until(lambda: auto.queued == client.queued == 1)
    talk.peer.close()
    until(lambda: auto.closed and client.closed)
    assert auto.receive().text == "kept"
    for subscription in (auto, client):
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            subscription.receive()


def test_what_was_received_before_unsubscribe_can_still_be_taken(talking: Talking, calling: Calling) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    talk.peer.deliver("a", "b")
    until(lambda: subscription.queued == 2)
    call = calling(subscription.close)
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    call.result()
    assert [message.text for message in subscription] == ["a", "b"]


def test_a_subscription_with_a_handler_cannot_be_received_from(talking: Talking) -> None:
    subscription = talking().subscribe("/queue/a", print)
    with pytest.raises(LocalProtocolError, match="that has a handler"):
        subscription.receive()
    with pytest.raises(LocalProtocolError, match="that has a handler"):
        next(iter(subscription))


# Back-pressure


def test_what_nobody_takes_after_unsubscribe_does_not_stop_the_others(talking: Talking, calling: Calling) -> None:
    talk = talking(limits=stompy.Limits(max_inbox_messages=4))
    abandoned, other = talk.subscribe("/queue/a"), talk.subscribe("/queue/b")
    talk.peer.deliver(*"abcdef", subscription=abandoned.id)
    until(lambda: abandoned.queued == 6)
    call = calling(abandoned.close)
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    call.result()
    talk.peer.deliver("x", subscription=other.id)
    talk.peer.deliver("y", subscription=other.id)
    assert [other.receive(timeout=5).text, other.receive(timeout=5).text] == ["x", "y"]
    assert [message.text for message in abandoned] == list("abcdef")
    assert talk.conn.stats().queued_messages == 0


def test_a_full_inbox_shuts_the_gate_and_taking_opens_it(talking: Talking) -> None:
    talk = talking(limits=stompy.Limits(max_inbox_messages=4))
    subscription = talk.subscribe("/queue/a")
    for number in range(20):
        talk.peer.deliver(str(number))
    until(lambda: talk.conn.stats().reading_paused)
    assert [subscription.receive().text for _ in range(20)] == [str(number) for number in range(20)]
    until(lambda: not talk.conn.stats().reading_paused)
    assert talk.conn.stats().times_paused >= 1
    assert talk.conn.stats().queued_messages == 0


# Handlers on a thread of their own


def test_an_own_thread_handler_does_not_wait_for_the_others(serving: Serving) -> None:
    conn, served = serving()
    gate, seen = threading.Event(), threading.Event()
    conn.subscribe("/queue/slow", lambda message: gate.wait(WITHIN), id="slow")
    threads: list[str] = []

    def quick(message: stompy.Message) -> None:
        threads.append(threading.current_thread().name)
        seen.set()

    conn.subscribe("/queue/quick", quick, id="quick", own_thread=True)
    served.peer.deliver("x", subscription="slow")
    served.peer.deliver("x", subscription="quick")
    assert seen.wait(WITHIN)
    assert threads[0].startswith("stompy-connection-")
    assert threads[0].endswith("-dispatcher-2")
    gate.set()


def test_an_own_thread_ends_with_its_subscription(serving: Serving) -> None:
    conn, _ = serving()
    subscription = conn.subscribe("/queue/a", print, own_thread=True)
    assert _extra_threads()
    subscription.close()
    until(lambda: not _extra_threads())


@pytest.mark.parametrize("trouble", ["closed", "id taken", "unwritable"])
def test_a_subscription_that_fails_leaves_no_thread(serving: Serving, trouble: str) -> None:
    conn, _ = serving("1.0")
    conn.subscribe("/queue/a", id="taken")
    options: dict[str, Any] = {}
    if trouble == "closed":
        conn.close()
    elif trouble == "id taken":
        options["id"] = "taken"
    else:
        options["headers"] = {"selector": "two\nlines"}
    with pytest.raises((NotConnectedError, LocalProtocolError)):
        conn.subscribe("/queue/b", print, own_thread=True, **options)
    until(lambda: not _extra_threads())


def _extra_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "-dispatcher-" in thread.name]


def test_receiving_without_a_limit_waits_longer_than_the_receipt_timeout(talking: Talking, calling: Calling) -> None:
    talk = talking(timeouts=stompy.Timeouts(receipt=0.05))
    subscription = talk.subscribe("/queue/a", id="1")
    with pytest.raises(stompy.ReceiveTimeoutError):
        subscription.receive()
    receiving = calling(lambda: subscription.receive(timeout=None))
    receiving.until_blocked()
    with pytest.raises(stompy.ReceiveTimeoutError):
        subscription.receive()  # meanwhile the default has passed once more
    talk.peer.deliver("x", subscription="1")
    assert receiving.result().text == "x"


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_timeout_names_the_messages_that_were_not_acknowledged(prefetch: int) -> None:
    with Broker() as broker, stompy.connect(broker.url) as conn:
        for number in range(prefetch + 2):
            conn.send("/queue/p", str(number), confirm=True)
        with conn.subscribe("/queue/p", ack="client-individual", prefetch=prefetch) as subscription:
            messages = [subscription.receive(timeout=WITHIN) for _ in range(prefetch)]
            with pytest.raises(
                stompy.ReceiveTimeoutError, match=f"in time: {prefetch} unacknowledged, prefetch={prefetch};"
            ):
                subscription.receive(timeout=0)
            for message in messages:
                message.ack()
            for _ in range(2):
                subscription.receive(timeout=WITHIN).ack(confirm=True)
            with pytest.raises(stompy.ReceiveTimeoutError, match=r"in time$"):
                subscription.receive(timeout=0)
