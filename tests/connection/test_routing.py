"""From the reader to user code; most of it is seen in test_subscription.py and test_listener.py."""

from __future__ import annotations

import threading

import pytest

import stompy
from stompy.connection.subscription import AckMode
from tests.connection.conftest import Recorder, Serving, Talking
from tests.support.peer import WITHIN, until


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
    subscription.unsubscribe()
    served.peer.deliver("late")
    until(lambda: conn.stats().unrouted == 1)
    conn.send("/queue/a", "x", confirm=True)


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
    assert conn.stats().queued_octets == 0


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
    conn, served = serving(inbox=stompy.Marks(messages=10))
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
    until(lambda: conn.stats().gate_shut)
    conn.send("/queue/b", "receipts still come", confirm=True)
    gate.set()
    flood.join(WITHIN)
    until(lambda: len(seen) == 500)
    assert seen == list(range(500))
    assert conn.stats().times_shut > 0


def test_a_flood_for_nobody_does_not_flood_the_log(talking: Talking, caplog: pytest.LogCaptureFixture) -> None:
    talk = talking()
    for number in range(1, 101):
        talk.peer.deliver(b"x", subscription="nobody")
        until(lambda number=number: talk.conn.stats().unrouted == number)  # type: ignore[misc]
    told = [record for record in caplog.records if "no known subscription" in record.getMessage()]
    assert len(told) == 7  # at 1, 2, 4, … 64
