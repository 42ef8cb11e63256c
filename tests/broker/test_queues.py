"""A queue by itself: order, room, and who is asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompy.broker.message import Item
from stompy.broker.queues import Queue
from tests.broker.conftest import a_consumer, a_message, a_queue, a_session_state


def _filled(count: int) -> tuple[Queue, list[Item]]:
    queue = a_queue()
    items = [Item(a_message(), order) for order in range(count)]
    for item in items:
        queue.append(item)
    return queue, items


def _drained(queue: Queue) -> list[int]:
    session = a_session_state(max_frames=100_000)
    consumer = a_consumer(session, queue, mode="auto")
    queue.dispatch()
    queue.leave(consumer)
    return [delivery.item.order for delivery in session.write_queue.withdraw(lambda delivery: True)]


@given(st.lists(st.sets(st.integers(0, 11), max_size=12), max_size=6))
def test_messages_put_back_in_any_portions_are_in_order_again(portions: list[set[int]]) -> None:
    queue, items = _filled(12)
    taken = _drained(queue)
    assert taken == list(range(12))
    back: set[int] = set()
    for portion in portions:
        queue.put_back([items[order] for order in sorted(portion - back, reverse=True)])
        back |= portion
    queue.append(Item(a_message(), 99))
    assert _drained(queue) == [*sorted(back), 99]


def test_put_back_messages_stand_before_those_that_were_never_taken() -> None:
    queue, items = _filled(3)
    consumer = a_consumer(a_session_state(max_frames=2), queue, mode="auto")
    queue.dispatch()
    queue.leave(consumer)
    queue.put_back([items[1], items[0]])
    assert _drained(queue) == [0, 1, 2]


def test_what_fits_is_counted_in_messages_and_octets() -> None:
    size = a_message().size
    queue = a_queue(max_messages=2, max_bytes=10 * size)
    assert queue.fits(2, 2 * size)
    assert not queue.fits(3, 3 * size)
    assert not queue.fits(1, 10 * size + 1)
    queue.append(Item(a_message(), 1))
    assert queue.fits(1, 9 * size)
    assert not queue.fits(1, 9 * size + 1)
    _drained(queue)
    assert queue.fits(1, 10 * size)
    queue.put_back([Item(a_message(), 1)])
    assert not queue.fits(1, 9 * size + 1)


def test_a_consumer_without_room_is_parked_until_it_is_asked_again() -> None:
    queue, _ = _filled(3)
    session = a_session_state(max_frames=1)
    consumer = a_consumer(session, queue, mode="auto")
    queue.dispatch()
    assert (queue.ready, consumer.parked, list(session.parked)) == (2, True, [consumer])
    session.write_queue.take(0)
    queue.dispatch()
    assert queue.ready == 2
    queue.unpark(consumer)
    queue.dispatch()
    assert (queue.ready, queue.delivered) == (1, 2)


def test_a_consumer_that_left_while_parked_is_never_asked_again() -> None:
    queue, _ = _filled(2)
    session = a_session_state(max_frames=1)
    consumer = a_consumer(session, queue, mode="auto")
    queue.dispatch()
    queue.leave(consumer)
    session.write_queue.take(0)
    queue.unpark(consumer)
    queue.dispatch()
    assert (queue.ready, queue.consumers, list(session.parked)) == (1, 0, [])


def test_a_message_that_a_consumer_cannot_be_told_of_is_returned_with_the_reason() -> None:
    queue = a_queue()
    queue.append(Item(a_message(k="two\nlines"), 1))
    queue.append(Item(a_message(), 2))
    a_consumer(a_session_state("1.0"), queue, mode="auto")
    ((item, reason),) = queue.dispatch()
    assert (item.order, queue.ready, queue.delivered) == (1, 0, 1)
    assert "header" in reason


def test_it_may_be_forgotten_when_nothing_depends_on_it() -> None:
    queue, session = a_queue(), a_session_state()
    states = [queue.forgettable]
    consumer = a_consumer(session, queue)
    states.append(queue.forgettable)
    queue.append(Item(a_message(), 1))
    queue.dispatch()
    queue.leave(consumer)
    states.append(queue.forgettable)
    assert repr(queue) == "<Queue '/queue/a' ready=0 unacked=1 consumers=0>"
    queue.unacked = 0
    assert [*states, queue.forgettable] == [True, False, False, True]
