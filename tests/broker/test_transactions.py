"""What a transaction holds."""

from __future__ import annotations

from stompy.broker.session_state import SessionTransaction
from tests.broker.conftest import a_consumer, a_message, a_queue, a_session_state, an_item


def test_it_counts_frames_and_bytes() -> None:
    session = a_session_state()
    a_consumer(session, a_queue()).deliver(an_item())
    transaction = SessionTransaction()
    assert (transaction.frames, transaction.size) == (0, 0)
    messages = [a_message(body=b"1"), a_message(body=b"22")]
    for message in messages:
        transaction.send(message)
    transaction.settle(session.take("ack-k-1", subscription=None), refused=True)
    assert (transaction.frames, transaction.size) == (3, sum(message.size for message in messages))
    assert transaction.messages == messages
    assert [(len(entries), refused) for entries, refused in transaction.settled] == [(1, True)]


def test_it_says_what_each_queue_has_to_take_and_nothing_of_topics() -> None:
    transaction = SessionTransaction()
    for destination, body in (("/queue/a", b"1"), ("/topic/t", b"22"), ("/queue/b", b""), ("/queue/a", b"333")):
        transaction.send(a_message(destination=destination, body=body))
    first, _, other, second = (message.size for message in transaction.messages)
    assert transaction.needed == {"/queue/a": (2, first + second), "/queue/b": (1, other)}
