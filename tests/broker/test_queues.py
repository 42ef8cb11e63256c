"""A queue by itself: order, room, and who is asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompy.broker.profile import Profile, SubscribeRequest
from stompy.broker.queues import Item, Queue
from stompy.broker.selector import compiled
from stompy.broker.session_state import Consumer
from tests.broker.conftest import Served, a_consumer, a_message, a_queue, a_session_state, hand_out


def _filled(count: int) -> tuple[Queue, list[Item]]:
    queue = a_queue()
    items = [Item(a_message(), order) for order in range(count)]
    for item in items:
        queue.append(item)
    return queue, items


def _drained(queue: Queue) -> list[int]:
    session = a_session_state(max_frames=100_000)
    consumer = a_consumer(session, queue, mode="auto")
    hand_out(queue)
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
    hand_out(queue)
    queue.leave(consumer)
    queue.put_back([items[1], items[0]])
    assert _drained(queue) == [0, 1, 2]


def test_what_fits_is_counted_in_messages_and_bytes() -> None:
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
    hand_out(queue)
    assert (queue.ready, list(consumer.waits_at), list(session.parked)) == (2, [queue], [consumer])
    session.write_queue.take(0)
    hand_out(queue)
    assert queue.ready == 2
    queue.resume(consumer)
    hand_out(queue)
    assert (queue.ready, queue.counts.delivered) == (1, 2)


def test_a_consumer_that_left_while_parked_is_never_asked_again() -> None:
    queue, _ = _filled(2)
    session = a_session_state(max_frames=1)
    consumer = a_consumer(session, queue, mode="auto")
    hand_out(queue)
    queue.leave(consumer)
    session.write_queue.take(0)
    queue.resume(consumer)
    hand_out(queue)
    assert (queue.ready, queue.consumers) == (1, {})


def test_a_message_that_a_consumer_cannot_be_sent_is_returned_with_the_reason() -> None:
    queue = a_queue()
    queue.append(Item(a_message(k="two\nlines"), 1))
    queue.append(Item(a_message(), 2))
    a_consumer(a_session_state("1.0"), queue, mode="auto")
    ((item, reason),) = hand_out(queue)
    assert (item.order, queue.ready, queue.counts.delivered) == (1, 0, 1)
    assert "header" in reason


def test_it_may_be_forgotten_when_nothing_depends_on_it() -> None:
    queue, session = a_queue(), a_session_state()
    states = [queue.removable]
    consumer = a_consumer(session, queue)
    states.append(queue.removable)
    queue.append(Item(a_message(), 1))
    hand_out(queue)
    queue.leave(consumer)
    states.append(queue.removable)
    assert repr(queue) == "<Queue '/queue/a' ready=0 unacked=1 consumers=0>"
    queue.unacked = 0
    assert [*states, queue.removable] == [True, False, False, True]


# Exclusive consumers and message groups


def test_an_exclusive_consumer_gets_everything_until_it_is_gone(served: Served) -> None:
    usual, first, second = served.client(), served.client(), served.client()
    usual.subscribe("/queue/a")
    for client in (first, second):
        client.subscribe("/queue/a", **{"activemq.exclusive": "true"})
    usual.send("/queue/a", *"123")
    assert first.bodies(3) == list("123")
    first.disconnect()
    served.until(lambda stats: stats.sessions == 2)
    usual.send("/queue/a", *"45")
    assert second.bodies(2) == list("45")
    second.disconnect()
    served.until(lambda stats: stats.sessions == 1)
    usual.send("/queue/a", "6")
    assert usual.bodies(1) == ["6"]


def test_each_message_group_goes_to_one_consumer_in_order(served: Served) -> None:
    first, second = served.client(), served.client()
    for client in (first, second):
        client.subscribe("/queue/a", "client", prefetch_count="1")
    for number in range(6):
        first.send("/queue/a", str(number), JMSXGroupID="even" if number % 2 == 0 else "odd")
    for client, expected in ((first, "024"), (second, "135")):
        got = []
        for _ in expected:
            (message,) = client.messages(1)
            got.append(message.body.decode())
            client.ack(message)
        assert "".join(got) == expected


def test_a_group_has_another_consumer_when_its_own_is_gone_or_it_ends(served: Served) -> None:
    first, second = served.client(), served.client()
    first.subscribe("/queue/a", "client", prefetch_count="1")
    second.send("/queue/a", *"123", JMSXGroupID="g")
    first.messages(1)
    second.subscribe("/queue/a")
    assert second.idle()
    first.disconnect()
    assert second.bodies(3) == list("123")
    third = served.client()
    third.subscribe("/queue/a")
    third.send("/queue/a", "4", JMSXGroupID="g", JMSXGroupSeq="-1")
    assert second.bodies(1) == ["4"]
    third.send("/queue/a", *"56", JMSXGroupID="g")
    assert third.bodies(2) == list("56")


def test_a_message_far_behind_is_found_by_its_selector_without_a_search() -> None:
    queue = a_queue(max_messages=100_000)
    for order in range(20_000):
        queue.append(Item(a_message(kind="rare" if order == 19_999 else "usual"), order))
    session = a_session_state(max_frames=100_000)
    options = SubscribeRequest(selector=compiled("kind = 'rare'"))
    rules = Profile()
    queue.join(
        Consumer(
            session=session, name="#1", identity="1", destination="/queue/a", options=options, key="k", rules=rules
        )
    )
    hand_out(queue)
    assert (queue.counts.delivered, queue.ready) == (1, 19_999)
