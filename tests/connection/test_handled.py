"""Mode `handled`: a message is acknowledged after it was handled, and not before."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import Failing, Talk, Talking
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Calling

QUEUE = "/queue/a"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def fill(broker: Broker, *bodies: str) -> None:
    with stompy.connect(broker.url) as conn, conn.batch():
        for body in bodies:
            conn.send(QUEUE, body)
    until(lambda: broker.depth(QUEUE) == len(bodies))


def left(broker: Broker) -> list[str]:
    """Return the texts of the messages that were not acknowledged; their sessions have ended."""
    count = broker.depth(QUEUE)
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(QUEUE, ack="client")
        return [subscription.receive(timeout=WITHIN).text for _ in range(count)]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_it_is_the_default_and_the_broker_acknowledges_one_by_one(talking: Talking, version: str) -> None:
    talk = talking(version)
    call = talk._calling(lambda: talk.conn.subscribe(QUEUE, id="1"))
    assert talk.peer.expect_and_confirm("SUBSCRIBE").headers["ack"] == "client-individual"
    subscription: stompy.Subscription = call.result()
    assert subscription.ack == "handled"
    talk.peer.deliver("x", "y", ack="a1" if version == "1.2" else None)
    message = subscription.receive(timeout=WITHIN)
    assert message.ack_mode == "handled"
    assert talk.peer.quiet()
    subscription.receive(timeout=WITHIN)
    frame = talk.peer.expect("ACK")
    assert frame.headers.get("id" if version == "1.2" else "message-id") in ("a1", message.message_id)
    talk.peer.close()


# A handler, or a listener


def of_a_handler(conn: stompy.Connection, handler: Callable[[stompy.Message], object]) -> None:
    conn.subscribe(QUEUE, handler)


def of_a_handler_of_its_own_thread(conn: stompy.Connection, handler: Callable[[stompy.Message], object]) -> None:
    conn.subscribe(QUEUE, handler, own_thread=True)


def of_an_object(conn: stompy.Connection, handler: Callable[[stompy.Message], object]) -> None:
    conn.subscribe(QUEUE, listening(handler))


def of_a_listener(conn: stompy.Connection, handler: Callable[[stompy.Message], object]) -> None:
    conn.add_listener(listening(handler))
    conn.subscribe(QUEUE)


def of_a_listener_that_came_later(conn: stompy.Connection, handler: Callable[[stompy.Message], object]) -> None:
    subscription = conn.subscribe(QUEUE)
    until(lambda: subscription.queued > 0)
    conn.add_listener(listening(handler))


def listening(handler: Callable[[stompy.Message], object]) -> stompy.Listener:
    class Calling(stompy.Listener):
        def on_message(self, message: stompy.Message) -> None:
            handler(message)

    return Calling()


CONSUMERS = [
    of_a_handler, of_a_handler_of_its_own_thread, of_an_object, of_a_listener, of_a_listener_that_came_later,
]  # fmt: skip


@pytest.mark.parametrize("consume", CONSUMERS)
def test_a_message_is_acknowledged_when_its_consumer_has_returned(broker: Broker, consume: Any) -> None:
    fill(broker, "a", "b", "c")
    settled: list[tuple[str, str | None]] = []
    gate, third = threading.Event(), threading.Event()

    def handle(message: stompy.Message) -> None:
        settled.append((message.text, message.settled))
        if message.text == "c":
            third.set()
            assert gate.wait(WITHIN)

    conn = stompy.connect(broker.url)
    consume(conn, handle)
    assert third.wait(WITHIN)
    timer = threading.Timer(0.05, gate.set)
    timer.start()
    conn.close()  # while the third message is being handled
    timer.join(WITHIN)
    assert settled == [("a", None), ("b", None), ("c", None)]
    assert left(broker) == ["c"]


@pytest.mark.parametrize("consume", CONSUMERS)
def test_a_message_whose_consumer_raises_is_refused_and_comes_again(broker: Broker, consume: Any) -> None:
    fill(broker, "a", "bad", "b")
    seen: list[str] = []

    def handle(message: stompy.Message) -> None:
        seen.append(message.text)
        if message.text == "bad" and seen.count("bad") < 3:
            raise ZeroDivisionError

    failures = Failing()
    failures.on_message = None  # type: ignore[method-assign,assignment]
    with stompy.connect(broker.url, listeners=[failures]) as conn:
        consume(conn, handle)
        until(lambda: seen.count("bad") == 3 and "b" in seen)
    assert sorted(seen) == ["a", "b", "bad", "bad", "bad"]
    assert [what[0] for name, what in failures.events if name == "handler_error"] == ["bad", "bad"]
    assert left(broker) == []


@pytest.mark.parametrize("consume", CONSUMERS)
def test_what_the_consumer_settles_itself_counts(broker: Broker, consume: Any) -> None:
    fill(broker, "ack", "nack", "transaction", "none")
    commands: list[str | None] = []

    def handle(message: stompy.Message) -> None:
        if message.redelivered:
            return
        if message.text == "transaction":
            with conn.transaction() as tx:
                tx.ack(message)
        elif message.text != "none":
            getattr(message, message.text)()
        commands.append(message.settled)

    with stompy.connect(broker.url) as conn:
        consume(conn, handle)
        until(lambda: len(commands) == 4)
    assert commands == ["ACK", "NACK", "ACK", None]
    assert left(broker) == []


def test_a_message_whose_transaction_was_aborted_is_not_acknowledged(broker: Broker) -> None:
    """Also if the handler swallows the error: whoever settles a message knows best whether it was handled."""
    fill(broker, "a")
    done = threading.Event()

    def handle(message: stompy.Message) -> None:
        try:
            with conn.transaction() as tx:
                tx.ack(message)
                raise ZeroDivisionError
        except ZeroDivisionError:
            done.set()

    with stompy.connect(broker.url) as conn:
        conn.subscribe(QUEUE, handle)
        assert done.wait(WITHIN)
    assert left(broker) == ["a"]


def test_leave_leaves_a_message_whose_handler_raised_until_the_session_ends(broker: Broker) -> None:
    fill(broker, "bad", "good")
    seen: list[str] = []

    def handle(message: stompy.Message) -> None:
        seen.append(message.text)
        if message.text == "bad":
            raise ZeroDivisionError

    with stompy.connect(broker.url) as conn:
        conn.subscribe(QUEUE, handle, on_exception="leave")
        until(lambda: len(seen) == 2)
    assert left(broker) == ["bad"]


def test_a_listener_beside_a_handler_neither_acknowledges_nor_refuses(broker: Broker) -> None:
    fill(broker, "a", "b")
    seen: list[str] = []

    def fail(message: stompy.Message) -> None:
        raise ZeroDivisionError

    with stompy.connect(broker.url, listeners=[listening(fail)]) as conn:
        conn.subscribe(QUEUE, lambda message: seen.append(message.text), own_thread=True)
        until(lambda: len(seen) == 2)
    assert seen == ["a", "b"]
    assert left(broker) == []


def test_a_handler_whose_session_has_ended_gets_its_message_again(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, "a")
    seen: list[str] = []
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))

    def handle(message: stompy.Message) -> None:
        seen.append(message.text)
        if len(seen) == 1:
            broker.restart()
            until(lambda: message.session_ended)

    with caplog.at_level(logging.WARNING, "stompy.connection"):
        with stompy.connect(broker.url, reconnect=policy) as conn:
            conn.subscribe(QUEUE, handle)
            until(lambda: len(seen) == 2)
        assert not [record for record in caplog.records if "sent no" in record.getMessage()]
    assert left(broker) == []


# A loop, or receive


def test_asking_for_the_next_message_acknowledges_the_one_in_hand(broker: Broker) -> None:
    fill(broker, "a", "b", "c")
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(QUEUE, prefetch=1)
        messages = [subscription.receive(timeout=WITHIN)]
        for message in subscription:
            messages.append(message)
            assert [each.settled for each in messages] == ["ACK"] * (len(messages) - 1) + [None]
            if len(messages) == 3:
                break
        conn.close()  # explicit: what is in hand comes again
    assert left(broker) == ["c"]


@pytest.mark.parametrize("read", ["receive", "loop"])
def test_the_end_of_the_block_acknowledges_what_this_thread_has_in_hand(broker: Broker, read: str) -> None:
    fill(broker, "a", "b")
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(QUEUE, prefetch=1)
        if read == "receive":
            subscription.receive(timeout=WITHIN)
        else:
            for _ in subscription:
                break
    assert left(broker) == ["b"]


@pytest.mark.parametrize("read", ["receive", "loop"])
def test_a_block_that_raises_leaves_it_unacknowledged(broker: Broker, read: str) -> None:
    fill(broker, "a", "b")

    def work() -> None:
        with stompy.connect(broker.url) as conn:
            subscription = conn.subscribe(QUEUE)
            if read == "receive":
                subscription.receive(timeout=WITHIN)
                raise ZeroDivisionError
            for _ in subscription:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert left(broker) == ["a", "b"]


def test_a_loop_that_ends_by_itself_has_handled_its_last_message(broker: Broker) -> None:
    fill(broker, "a", "b")
    both = threading.Event()

    def work(subscription: stompy.Subscription) -> None:
        for message in subscription:
            if message.text == "b":
                both.set()

    with stompy.connect(broker.url) as conn:
        thread = threading.Thread(target=work, args=(conn.subscribe(QUEUE),))
        thread.start()
        assert both.wait(WITHIN)
    thread.join(WITHIN)
    assert left(broker) == []


def test_the_end_of_the_block_waits_for_what_another_thread_has_in_hand(broker: Broker) -> None:
    """Drained means handled: that thread asks for the next message, or ends."""
    fill(broker, "a", "b", "c")
    started, go_on = threading.Event(), threading.Event()

    def ask(subscription: stompy.Subscription) -> None:
        subscription.receive(timeout=WITHIN)
        started.set()
        assert go_on.wait(WITHIN)
        with contextlib.suppress(stompy.NotConnectedError):
            while True:
                subscription.receive(timeout=WITHIN)

    with stompy.connect(broker.url) as conn:
        thread = threading.Thread(target=ask, args=(conn.subscribe(QUEUE),))
        thread.start()
        assert started.wait(WITHIN)
        threading.Timer(0.05, go_on.set).start()
    thread.join(WITHIN)
    assert left(broker) == []


Taking = Callable[[Iterable[stompy.Message], list[str]], object]
"""Takes messages, notes their texts, and stops at the third."""


def by_break(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    for message in messages:
        seen.append(message.text)
        if len(seen) == 3:
            break


def by_return(messages: Iterable[stompy.Message], seen: list[str]) -> str | None:
    for message in messages:
        seen.append(message.text)
        if len(seen) == 3:
            return message.text
    return None


def by_islice(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    seen.extend(message.text for message in itertools.islice(messages, 3))


def by_next(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    seen.extend(next(iter(messages)).text for _ in range(3))


def by_break_after_an_error_that_was_caught(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    for message in messages:
        seen.append(message.text)
        with contextlib.suppress(ZeroDivisionError):
            raise ZeroDivisionError
        if len(seen) == 3:
            break


def by_closing(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    with contextlib.closing(iter(messages)) as iterator:  # type: ignore[type-var]
        by_break(iterator, seen)


def by_an_error(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    for message in messages:
        seen.append(message.text)
        if len(seen) == 3:
            raise ZeroDivisionError


def by_an_error_deep_inside(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    for message in messages:
        seen.append(message.text)
        by_an_error([message], seen[:2] + [""] * (len(seen) - 3) if len(seen) == 3 else [])


def by_an_error_in_a_comprehension(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    def work(message: stompy.Message) -> float:
        seen.append(message.text)
        return 1 / (3 - len(seen))

    assert [work(message) for message in messages]


def by_an_error_in_a_map(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    def work(message: stompy.Message) -> None:
        seen.append(message.text)
        assert 1 / (3 - len(seen))

    list(map(work, messages))


def by_an_error_while_closing(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    with contextlib.closing(iter(messages)) as iterator:  # type: ignore[type-var]
        by_an_error(iterator, seen)


def by_an_error_and_another(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    for message in messages:
        seen.append(message.text)
        try:
            1 / (3 - len(seen))
        except ZeroDivisionError:
            raise ZeroDivisionError from None


def by_an_error_in_a_generator(messages: Iterable[stompy.Message], seen: list[str]) -> None:
    by_an_error((message for message in messages), seen)


HANDLED = [by_break, by_return, by_islice, by_next, by_break_after_an_error_that_was_caught, by_closing]
UNHANDLED = [
    by_an_error, by_an_error_deep_inside, by_an_error_in_a_comprehension, by_an_error_in_a_map,
    by_an_error_while_closing, by_an_error_and_another, by_an_error_in_a_generator,
]  # fmt: skip


@pytest.mark.parametrize("take", HANDLED)
@pytest.mark.parametrize("then", ["the block ends", "the next is asked for", "close"])
def test_a_loop_that_was_left_without_an_error_has_handled_its_last_message(
    broker: Broker, take: Taking, then: str
) -> None:
    fill(broker, *"abcdef")
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(QUEUE, prefetch=1)
        seen: list[str] = []
        take(subscription, seen)
        assert seen == ["a", "b", "c"]
        if then == "the next is asked for":
            assert subscription.receive(timeout=WITHIN).text == "d"
        elif then == "close":
            conn.close()
    assert left(broker) == list({"the block ends": "def", "the next is asked for": "ef", "close": "cdef"}[then])


@pytest.mark.parametrize("take", UNHANDLED)
@pytest.mark.parametrize("then", ["the block ends", "the next is asked for", "the same thread goes on"])
def test_a_loop_that_was_left_by_an_error_has_not(broker: Broker, take: Taking, then: str) -> None:
    """Although the error is caught, and the program goes on in a new loop, or ends its block in peace."""
    fill(broker, *"abcdef")
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(QUEUE)
        seen: list[str] = []
        with contextlib.suppress(ZeroDivisionError):
            take(subscription, seen)
        assert seen == ["a", "b", "c"]
        if then == "the next is asked for":
            assert subscription.receive(timeout=WITHIN).text == "d"
        elif then == "the same thread goes on":
            by_break(subscription, [])
    expected = {"the block ends": "cdef", "the next is asked for": "cef", "the same thread goes on": "c"}[then]
    assert left(broker) == list(expected)


def test_a_message_that_was_refused_in_the_loop_is_not_acknowledged_by_going_on(talking: Talking) -> None:
    """Where a NACK would lose it, `with message` leaves it; so does asking for the next one."""
    talk = talking(server="unknown/1")
    subscription = talk.subscribe(QUEUE, id="1")
    for number in range(2):
        talk.peer.deliver(str(number), ack=f"ack-{number}")
    with pytest.raises(ZeroDivisionError), subscription.receive(timeout=WITHIN):
        raise ZeroDivisionError
    subscription.receive(timeout=WITHIN)
    assert talk.peer.quiet()


def test_each_thread_has_its_own_message_in_hand(broker: Broker) -> None:
    fill(broker, "a", "b", "c")
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(QUEUE)
        mine = subscription.receive(timeout=WITHIN)
        others: list[stompy.Message] = []
        thread = threading.Thread(target=lambda: others.extend(subscription.receive(timeout=WITHIN) for _ in range(2)))
        thread.start()
        thread.join(WITHIN)
        assert [mine.settled, *(each.settled for each in others)] == [None, "ACK", None]
        mine.ack()
    assert left(broker) == ["c"]  # its thread has ended, in whatever way


def test_a_thread_with_the_identifier_of_one_that_died_does_not_acknowledge_for_it(broker: Broker) -> None:
    count = 30
    fill(broker, *map(str, range(count)))
    identifiers: list[int] = []

    def take_one_and_die(subscription: stompy.Subscription) -> None:
        identifiers.append(threading.get_ident())
        subscription.receive(timeout=WITHIN)

    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(QUEUE)
        for _ in range(count):
            thread = threading.Thread(target=take_one_and_die, args=(subscription,))
            thread.start()
            thread.join(WITHIN)
    assert len(set(identifiers)) < count, "the system did not use an identifier again"
    assert len(left(broker)) == count


def test_two_subscriptions_are_read_in_turn(broker: Broker) -> None:
    fill(broker, "a", "b")
    with stompy.connect(broker.url) as conn:
        first, second = conn.subscribe(QUEUE, prefetch=1), conn.subscribe("/queue/b")
        conn.send("/queue/b", "x")
        message = first.receive(timeout=WITHIN)
        other = second.receive(timeout=WITHIN)
        assert (message.settled, other.settled) == (None, None)
        first.receive(timeout=WITHIN)
        assert (message.settled, other.settled) == ("ACK", None)


def test_an_iterator_that_takes_some_and_the_end_of_the_block(broker: Broker) -> None:
    fill(broker, *"abcdef")
    with stompy.connect(broker.url) as conn:
        assert [message.text for message in itertools.islice(conn.subscribe(QUEUE), 4)] == list("abcd")
    assert left(broker) == ["e", "f"]


def test_a_signal_while_asking_loses_nothing(talking: Talking, calling: Calling) -> None:
    """The thread is interrupted while its ACK cannot be written: the message stays, and comes again."""
    talk: Talk = talking()
    subscription = talk.subscribe(QUEUE, id="1")
    talk.peer.deliver("x", ack="a1")
    message = subscription.receive(timeout=WITHIN)
    writer = talk.conn._links.link.writer
    original = writer.write

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    writer.write = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        subscription.receive(timeout=WITHIN)
    writer.write = original  # type: ignore[method-assign]
    assert message.settled is None
    message.ack()
    assert talk.peer.expect("ACK").headers["id"] == "a1"


def test_a_loop_over_auto_messages_sends_nothing(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe(QUEUE, id="1", ack="auto")
    talk.peer.deliver("x", "y")
    assert [message.settled for message in itertools.islice(subscription, 2)] == [None, None]
    assert talk.peer.quiet()
