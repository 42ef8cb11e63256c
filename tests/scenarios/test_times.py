"""What depends on time or rank: expiry, delay, priority."""

from __future__ import annotations

import threading

import pytest

import stompy
from tests.scenarios.acts import REFUSED, SOON, left, seen, send_all, texts
from tests.scenarios.conftest import Connect, Expect
from tests.support.candidates import Candidate

pytestmark = pytest.mark.broker

LIFE = 0.3
DELAY = 1.0
"""Seconds. The message that has to overtake is sent right after, without a wait for a receipt, which may take long."""


@pytest.mark.scenario("expiry")
def test_an_expired_message_is_not_delivered(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    try:
        connection.send(queue, "short", expires=LIFE, confirm=True)
    except stompy.ConfigurationError:
        expect("expiry", REFUSED)
        return
    connection.send(queue, "long", expires=100, confirm=True)
    threading.Event().wait(2 * LIFE)
    messages = left(connection, queue)
    expect("expiry", seen(messages), messages[0].frame)


@pytest.mark.once
@pytest.mark.scenario("expiry")
def test_where_an_expired_message_ends(candidate: Candidate, connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    body = f"expired in {queue}"
    try:
        connection.send(queue, body, expires=LIFE, persistent=True, confirm=True)
    except stompy.ConfigurationError:
        expect("expiry-letter", REFUSED)
        return
    threading.Event().wait(2 * LIFE)
    assert left(connection, queue) == []
    found = {}
    for name in (candidate.dead_letters, "/queue/ExpiryQueue"):
        letters = [one.frame for one in left(connection, name) if one.text == body]
        if letters:
            found[name] = letters[0]
    expect("expiry-letter", " ".join(found) or "nowhere", *found.values())


@pytest.mark.once
@pytest.mark.scenario("expiry")
def test_a_message_whose_delay_is_longer_than_its_life(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    try:
        connection.send(queue, "delayed", expires=10 * LIFE, delay=11 * LIFE, confirm=True)
    except stompy.ConfigurationError:
        expect("expiry-delayed", REFUSED)
        return
    subscription = connection.subscribe(queue)
    # Where it has to come it is waited for; where it must not, another one that is due later shows that it did not.
    connection.send(queue, "later", delay=13 * LIFE, confirm=True)
    messages = [subscription.receive(timeout=SOON)]
    while messages[-1].text != "later":
        messages.append(subscription.receive(timeout=SOON))
    expect("expiry-delayed", seen(messages[:-1]))


@pytest.mark.once
@pytest.mark.scenario("priority")
def test_the_order_of_persistent_messages_among_others(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    for number in range(1, 5):
        connection.send(queue, str(number), persistent=number % 2 == 0 or None, confirm=True)
    expect("persistent-order", " ".join(texts(connection.subscribe(queue), 4)))


@pytest.mark.scenario("priority")
def test_the_order_of_priorities(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    try:
        for priority in (1, 9, 5):
            connection.send(queue, str(priority), priority=priority, confirm=True)
    except stompy.ConfigurationError:
        expect("priority", REFUSED)
        return
    messages = left(connection, queue)
    expect("priority", seen(messages), messages[0].frame)


@pytest.mark.scenario("scheduled delivery")
def test_a_delayed_message_comes_later(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue)
    try:
        connection.send(queue, "delayed", delay=DELAY)
    except stompy.ConfigurationError:
        expect("delay", REFUSED)
        return
    send_all(connection, queue, ["at once"])
    first, second = (subscription.receive(timeout=SOON) for _ in range(2))
    expect("delay", f"{first.text}, {second.text}", second.frame)


@pytest.mark.once
@pytest.mark.scenario("scheduled delivery")
def test_the_place_of_a_delayed_message_among_those_that_wait(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    try:
        connection.send(queue, "delayed", delay=DELAY)
    except stompy.ConfigurationError:
        expect("delay-order", REFUSED)
        return
    send_all(connection, queue, ["at once"])
    threading.Event().wait(2 * DELAY)
    expect("delay-order", ", ".join(texts(connection.subscribe(queue), 2)))
