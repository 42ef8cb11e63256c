"""What depends on time or rank: expiry, delay, priority."""

from __future__ import annotations

import threading

import pytest

import stompy
from tests.scenarios.acts import REFUSED, SOON, left, seen, send_all
from tests.scenarios.conftest import Connect, Expect
from tests.support.candidates import Candidate

pytestmark = pytest.mark.broker

LIFE = 0.3


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
        connection.send(queue, "delayed", delay=LIFE, confirm=True)
    except stompy.ConfigurationError:
        expect("delay", REFUSED)
        return
    send_all(connection, queue, ["at once"])
    first, second = (subscription.receive(timeout=SOON) for _ in range(2))
    expect("delay", f"{first.text}, {second.text}", second.frame)
