"""Browsing comes to an end."""

from __future__ import annotations

from typing import Any

import pytest

import stompy
from stompy.errors import ConfigurationError, ConnectionLostError
from tests.connection.conftest import Recorder, Talk, Talking
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Calling


def browsing(talking: Talking, *bodies: str, **options: Any) -> tuple[Talk, stompy.Subscription]:
    talk = talking(server="ActiveMQ/6.3.1", **options)
    subscription = talk.subscribe("/queue/a", browse=True)
    assert subscription._subscribe_headers()["browser"] == "true"
    talk.peer.deliver(*bodies)
    return talk, subscription


def end(talk: Talk) -> None:
    talk.peer.deliver("", headers={"browser": "end"})


def test_iteration_ends_behind_the_last_message_and_the_broker_is_told(talking: Talking, calling: Calling) -> None:
    recorder = Recorder()
    talk, subscription = browsing(talking, "a", "b", listeners=[recorder])
    end(talk)
    call = calling(lambda: [message.text for message in subscription])
    assert talk.peer.expect_and_confirm("UNSUBSCRIBE").headers["id"] == subscription.id
    assert call.result() == ["a", "b"]
    assert subscription.closed
    assert talk.conn.stats().subscriptions == 0
    until(lambda: talk.conn.stats().queued_messages == 0)  # the listeners', who may come behind
    assert recorder.names.count("message") == 2


def test_an_empty_queue_is_an_empty_iteration(talking: Talking, calling: Calling) -> None:
    talk, subscription = browsing(talking)
    end(talk)
    call = calling(lambda: list(subscription))
    talk.peer.expect_and_confirm("UNSUBSCRIBE")
    assert call.result() == []


def test_messages_and_the_mark_in_one_read_are_not_mixed_up(talking: Talking, calling: Calling) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    browsed = talk.subscribe("/queue/a", browse=True, id="b")
    other = talk.subscribe("/queue/b", id="o")
    peer = talk.peer
    peer.raw(
        peer.message("one", subscription="b")
        + peer.message("", subscription="b", headers={"browser": "end"})
        + peer.message("mine", subscription="o")
    )
    call = calling(lambda: [message.text for message in browsed])
    peer.expect_and_confirm("UNSUBSCRIBE")
    assert call.result() == ["one"]
    assert other.receive(timeout=WITHIN).text == "mine"


def test_a_lost_link_ends_it_for_good(talking: Talking) -> None:
    talk, subscription = browsing(talking, "a")
    subscription.receive(timeout=WITHIN)
    talk.peer.hang_up()
    with pytest.raises(ConnectionLostError):
        list(subscription)
    assert subscription.closed


def test_it_is_iterated_not_handled(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    with pytest.raises(ConfigurationError, match="takes no handler"):
        talk.conn.subscribe("/queue/a", print, browse=True)
    assert talk.peer.quiet()
