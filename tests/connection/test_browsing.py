"""Browsing comes to an end."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.errors import ConfigurationError, ConnectionLostError
from tests.connection.conftest import Recorder, Talk, Talking
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Call, Calling


def browsing(talking: Talking, calling: Calling, *bodies: str, end: bool = True, **options: Any) -> tuple[Talk, Call]:
    """Return a connection and a call that browses; the peer has confirmed, and sent the bodies."""
    talk = talking(server="ActiveMQ/6.3.1", **options)
    call = calling(lambda: [message.text for message in talk.conn.browse("/queue/a")])
    frame = talk.peer.expect_and_confirm("SUBSCRIBE")
    assert (frame.headers["browser"], frame.headers["ack"]) == ("true", "auto")
    talk.peer.deliver(*bodies, subscription=frame.headers["id"])
    if end:
        talk.peer.deliver("", subscription=frame.headers["id"], headers={"browser": "end"})
    return talk, call


def test_iteration_ends_behind_the_last_message_and_the_broker_is_told(talking: Talking, calling: Calling) -> None:
    recorder = Recorder()
    talk, call = browsing(talking, calling, "a", "b", listeners=[recorder])
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    assert call.result() == ["a", "b"]
    assert talk.conn.stats().subscriptions == 0
    until(lambda: talk.conn.stats().queued_messages == 0)  # the listeners', who may come behind
    assert recorder.names.count("message") == 2


def test_an_empty_queue_is_an_empty_iteration(talking: Talking, calling: Calling) -> None:
    talk, call = browsing(talking, calling)
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    assert call.result() == []


def test_messages_and_the_mark_in_one_read_are_not_mixed_up(talking: Talking, calling: Calling) -> None:
    talk, call = browsing(talking, calling, end=False)
    other = talk.subscribe("/queue/b", id="o", ack="auto")
    peer = talk.peer
    peer.raw(
        peer.message("one", subscription="1")
        + peer.message("", subscription="1", headers={"browser": "end"})
        + peer.message("mine", subscription="o")
    )
    peer.expect_and_confirm("UNSUBSCRIBE")
    assert call.result() == ["one"]
    assert other.receive(timeout=WITHIN).text == "mine"


def test_a_lost_link_ends_it_for_good(talking: Talking, calling: Calling) -> None:
    talk, call = browsing(talking, calling, "a", end=False)
    talk.peer.hang_up()
    with pytest.raises(ConnectionLostError):
        call.result()
    assert talk.conn.stats().subscriptions == 0


def test_nothing_is_sent_before_the_first_message_is_asked_for(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    browsed = talk.conn.browse("/queue/a")
    assert talk.peer.quiet()
    del browsed
    for wrong in ({"queue": 5}, {"queue": ""}, {"queue": "/queue/a", "selector": ""}):
        with pytest.raises(stompy.StompError):
            talk.conn.browse(**wrong)
    assert talk.peer.quiet()


def test_a_broker_that_does_not_mark_the_end_is_not_asked(talking: Talking) -> None:
    talk = talking(server="RabbitMQ/4.3.6")
    with pytest.raises(ConfigurationError, match="browse"):
        talk.conn.browse("/queue/a")
    assert talk.peer.quiet()


def test_the_messages_stay_where_they_are() -> None:
    with Broker() as broker, stompy.connect(broker.url) as conn:
        for number in range(3):
            conn.send("/queue/a", str(number), headers={"n": number}, confirm=True)
        assert [message.text for message in conn.browse("/queue/a")] == ["0", "1", "2"]
        assert [message.text for message in conn.browse("/queue/a", selector="n > 0")] == ["1", "2"]
        assert broker.depth("/queue/a") == 3


def test_a_browser_that_is_left_early_holds_nothing_up() -> None:
    """However it is left: by break, by an exception, by being forgotten in a circle."""
    with Broker() as broker, stompy.connect(broker.url) as conn:
        with conn.batch():
            for number in range(2_000):
                conn.send("/queue/a", f"{number:05}" * 400)
        conn.flush()
        for _ in conn.browse("/queue/a"):
            break
        circle: list[Any] = [conn.browse("/queue/a")]
        next(circle[0])
        circle.append(circle)
        del circle
        gc.collect()
        until(lambda: conn.stats().subscriptions == 0)
        assert conn.subscribe("/queue/a").receive(timeout=WITHIN).text.startswith("00000")
        until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("stompy-browser")])
