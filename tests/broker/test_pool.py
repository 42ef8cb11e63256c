from __future__ import annotations

import pytest

from stompy.broker.message import Message
from stompy.broker.pool import Pool
from stompy.errors import LimitExceeded
from stompy.frames.grammar import grammar_of
from stompy.frames.version import Version
from tests.broker.conftest import Serve


def test_what_does_not_fit_is_refused_and_not_counted() -> None:
    pool = Pool(10)
    pool.take(6)
    with pytest.raises(LimitExceeded, match="max_store_bytes=10"):
        pool.take(5)
    assert pool.held == 6
    pool.take(5, force=True)
    pool.give_back(11)
    assert pool.held == 0


def test_a_message_counts_while_it_exists_and_so_does_its_copy() -> None:
    pool = Pool(1_000)
    message = Message([("a", "b")], destination="/queue/a", body=b"x", grammar=grammar_of(Version.V1_2), pool=pool)
    assert pool.held == message.size
    copy = message.moved("/queue/b", ())
    assert pool.held == message.size + copy.size
    del message
    assert pool.held == copy.size
    del copy
    assert pool.held == 0


def test_a_message_that_cannot_be_made_is_not_counted() -> None:
    pool = Pool(10)
    with pytest.raises(LimitExceeded):
        Message([], destination="/queue/a", body=b"x" * 10, grammar=grammar_of(Version.V1_2), pool=pool)
    assert pool.held == 0


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_a_full_broker_says_so_and_has_room_again_when_messages_are_consumed(serve: Serve, ack: str) -> None:
    served = serve(max_store_bytes=10_000)
    sender = served.client()
    sender.send("/queue/a", b"x" * 4_000)
    sender.send("/queue/b", b"x" * 4_000)
    sender.say("SEND", {"destination": "/queue/c"}, b"x" * 4_000)
    assert "max_store_bytes=10000" in sender.error().headers["message"]
    taker = served.client()
    taker.subscribe("/queue/a", ack)
    (message,) = taker.messages(1)
    if ack != "auto":
        taker.ack(message)
    taker.sync()
    other = served.client()
    other.send("/queue/c", b"x" * 4_000)
    other.disconnect()
