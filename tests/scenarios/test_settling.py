"""Acknowledging, refusing, redelivery, prefetch."""

from __future__ import annotations

import pytest

import stompy
from stompy.connection.message import AckMode
from tests.scenarios.acts import REFUSED, SOON, acked, left, refused, seen, send_all, until_end
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.scenarios.expected.model import CLASSIC, LIKE
from tests.support.candidates import Candidate
from tests.support.peer import until

pytestmark = pytest.mark.broker


@pytest.mark.scenario("ack: auto")
def test_an_automatic_subscription_consumes_by_receiving(connect: Connect, queue: str, expect: Expect) -> None:
    first = connect()
    subscription = first.subscribe(queue, ack="auto")
    send_all(first, queue, "x")
    message = subscription.receive(timeout=SOON)
    with pytest.raises(stompy.AckError, match="auto"):
        message.ack()
    # Artemis acknowledges after it has written a message, the first one of all some time after.
    send_all(first, f"{queue}.other", range(30))
    first.close()
    expect("ack-auto", seen(left(connect(), queue)), message.frame)


@pytest.mark.scenario("ack: client")
def test_a_cumulative_ack_covers_what_came_before(connect: Connect, queue: str, expect: Expect) -> None:
    first = connect()
    subscription = first.subscribe(queue, ack="client")
    send_all(first, queue, "123")
    messages = [subscription.receive(timeout=SOON) for _ in range(3)]
    acked(messages[1])
    with pytest.raises(stompy.AckError):
        messages[0].ack()
    first.close()
    expect("ack-client", seen(left(connect(), queue)))


@pytest.mark.scenario("ack: client")
def test_how_far_a_cumulative_ack_reaches(raw: Raw, connect: Connect, queue: str, expect: Expect) -> None:
    client = raw()
    other = f"{queue}.other"
    client.subscribe(queue, "client", id="1")
    client.subscribe(other, "client", id="2")
    client.send(queue, "earlier")
    client.messages(1)
    client.send(other, "later")
    client.ack(*client.messages(1))
    client.disconnect()
    expect("ack-reach", seen(left(connect(), queue)))


@pytest.mark.scenario("ack: client")
def test_two_cumulative_subscriptions_of_one_connection(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    connection.subscribe(queue, ack="client")
    try:
        connection.subscribe(f"{queue}.other", ack="client")
    except stompy.ConfigurationError:
        expect("ack-client-twice", REFUSED)
    else:
        expect("ack-client-twice", "both")


@pytest.mark.scenario("ack: client-individual")
def test_what_was_acknowledged_one_by_one_is_gone(connect: Connect, queue: str, expect: Expect) -> None:
    first = connect()
    subscription = first.subscribe(queue, ack="client-individual")
    send_all(first, queue, "0123")
    messages = [subscription.receive(timeout=SOON) for _ in range(4)]
    for place in (3, 1):
        acked(messages[place])
    first.close()
    expect("ack-individual", seen(left(connect(), queue)), messages[0].frame)


@pytest.mark.scenario("ack: client-individual")
def test_an_ack_that_comes_after_unsubscribe(raw: Raw, connect: Connect, queue: str, expect: Expect) -> None:
    client = raw()
    client.subscribe(queue, "client-individual")
    client.send(queue, "x")
    message = client.expect("MESSAGE")
    client.sure("UNSUBSCRIBE", {"id": "1", "destination": queue})
    client.settle(message, receipt="r")
    frames, _ = client.until(lambda frame: frame.command != "MESSAGE")
    client.close()
    expect("ack-unsubscribed", f"{frames[-1].command}, left: {seen(left(connect(), queue))}", *frames)


@pytest.mark.scenario("ack: client-individual")
def test_stompys_own_ack_after_unsubscribe(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, ["x"])
    message = subscription.receive(timeout=SOON)
    subscription.close()
    try:
        acked(message)
    except stompy.AckError:
        expect("ack-unsubscribed-stompy", REFUSED)
    else:
        expect("ack-unsubscribed-stompy", "RECEIPT")


@pytest.mark.scenario("NACK and dead letters")
@pytest.mark.versions("1.1", "1.2")
@pytest.mark.parametrize("ack", ["client-individual", "client"])
def test_what_a_nack_covers(connect: Connect, queue: str, expect: Expect, ack: AckMode) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack=ack)
    send_all(connection, queue, "123", headers={"persistent": "true"})
    messages = [subscription.receive(timeout=SOON) for _ in range(3)]
    refused(messages[1])
    again = until_end(connection, subscription)
    connection.close()
    expect(f"nack-{ack}", f"again: {seen(again)}; left: {seen(left(connect(), queue))}")


@pytest.mark.scenario("NACK and dead letters")
@pytest.mark.versions("1.1", "1.2")
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "default"])
def test_where_a_refused_message_ends(
    candidate: Candidate, connect: Connect, queue: str, expect: Expect, persistent: bool
) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    headers = {"persistent": "true"} if persistent else {}
    connection.send(queue, f"poison of {queue}", headers=headers, confirm=True)
    deliveries, frames = 0, []
    while deliveries < 5 and (messages := until_end(connection, subscription)):
        [message] = messages
        frames.append(message.frame)
        refused(message)
        deliveries += 1
    dead = [one.frame for one in left(connection, candidate.dead_letters) if one.text == f"poison of {queue}"]
    if dead and LIKE.get(candidate.kind, candidate.kind) in CLASSIC:
        assert dead[0].headers["message-id"] == frames[0].headers["message-id"]
    ended = candidate.dead_letters if dead else "nowhere"
    expect(f"nack-dead-{'persistent' if persistent else 'default'}", f"{deliveries}, {ended}", *frames, *dead)


@pytest.mark.scenario("NACK and dead letters")
@pytest.mark.parametrize("ack", ["client-individual", "client"])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "default"])
def test_where_a_message_ends_whose_handler_always_raises(
    candidate: Candidate, connect: Connect, queue: str, expect: Expect, persistent: bool, ack: AckMode
) -> None:
    """It is never lost, and those after it come; where the broker lets a client do no more, it stays."""
    connection = connect()
    poison, taken = f"poison of {queue}", list[str]()

    def handler(message: stompy.Message) -> None:
        taken.append(message.text)
        if message.text == poison:
            raise ZeroDivisionError
        message.ack()  # in mode `client` an error, where it would cover the one that is left

    headers = {"persistent": "true"} if persistent else {}
    send_all(connection, queue, ["first", poison], headers=headers)
    connection.subscribe(queue, handler, ack=ack)
    until(lambda: poison in taken)
    quiet, before = 0, 0
    while quiet < 3:  # round trips in which it did not come again
        mark = f"mark {len(taken)} {quiet}"
        connection.send(queue, mark, confirm=True)
        until(lambda mark=mark: mark in taken)  # type: ignore[misc]
        quiet, before = quiet + 1 if taken.count(poison) == before else 0, taken.count(poison)
    connection.close()
    other = connect()
    still = [one for one in left(other, queue) if one.text == poison]
    dead = [one for one in left(other, candidate.dead_letters) if one.text == poison]
    assert len(still) + len(dead) == 1
    ended = "a dead letter" if dead else "still there"
    expect(f"handler-raises-{'persistent' if persistent else 'default'}", f"{taken.count(poison)}, {ended}")


@pytest.mark.scenario("NACK and dead letters")
@pytest.mark.versions("1.1", "1.2")
def test_a_message_that_is_not_wanted_again(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, ["x"])
    message = subscription.receive(timeout=SOON)
    try:
        message.nack(requeue=False)
    except stompy.ConfigurationError:
        expect("nack-drop", REFUSED)
        return
    again = seen(until_end(connection, subscription))
    connection.close()
    expect("nack-drop", f"again: {again}; left: {seen(left(connect(), queue))}")


@pytest.mark.once
@pytest.mark.scenario("NACK and dead letters")
def test_dead_letters_where_they_must_be_asked_for(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    if not (connection.server or "").startswith("RabbitMQ"):
        expect("nack-exchange", "without asking")
        return
    name = queue.removeprefix("/queue/")
    dead = connection.subscribe(f"{queue}.dead")
    headers = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    subscription = connection.subscribe(queue, ack="client-individual", headers=headers)
    connection.send(f"/amq/queue/{name}", "poison", confirm=True)
    subscription.receive(timeout=SOON).nack(requeue=False)
    message = dead.receive(timeout=SOON)
    expect("nack-exchange", message.text, message.frame)


@pytest.mark.scenario("NACK and dead letters")
@pytest.mark.versions("1.0")
def test_stomp_1_0_has_no_nack(connect: Connect, queue: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, "x")
    message = subscription.receive(timeout=SOON)
    with pytest.raises(stompy.LocalProtocolError, match="NACK"):
        message.nack()
    message.ack()


@pytest.mark.scenario("redelivery")
@pytest.mark.parametrize("how", ["disconnect", "lost"])
def test_what_was_not_acked_comes_again_to_somebody_else(
    connect: Connect, queue: str, expect: Expect, how: str
) -> None:
    first, second = connect(), connect()
    send_all(first, queue, ["x"])
    message = first.subscribe(queue, ack="client-individual").receive(timeout=SOON)
    assert not message.redelivered
    if how == "disconnect":
        first.close()
    else:
        first._links.link.transport.shutdown()
        until(lambda: not first.connected)
    again = second.subscribe(queue, ack="client-individual").receive(timeout=SOON)
    with pytest.raises(stompy.AckError):
        message.ack()
    acked(again)
    expect("redelivered", f"{message.text}, again {seen([again])}", message.frame, again.frame)


@pytest.mark.scenario("redelivery")
def test_unsubscribing_gives_back_what_was_not_acked(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, ["x"])
    subscription.receive(timeout=SOON)
    subscription.close()
    now = left(connection, queue)
    connection.close()
    then = left(connect(), queue)
    expect("unsubscribe-gives-back", f"at once: {seen(now)}; when it disconnects: {seen(then)}")


@pytest.mark.once
@pytest.mark.scenario("redelivery")
def test_how_often_a_message_is_redelivered_when_connections_are_lost(
    connect: Connect, queue: str, expect: Expect
) -> None:
    send_all(connect(), queue, ["x"], headers={"persistent": "true"})
    frames = []
    for _ in range(12):
        connection = connect()
        subscription = connection.subscribe(queue, ack="client-individual")
        # Not for another message behind it: Artemis puts back what a session had after the receipt of its DISCONNECT.
        try:
            message = subscription.receive(timeout=3.0)
        except stompy.ReceiveTimeoutError:
            break
        frames.append(message.frame)
        connection.close()
    expect("redelivery-limit", len(frames), frames[-1])


@pytest.mark.scenario("prefetch")
def test_prefetch_bounds_what_is_sent_ahead(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    send_all(connection, queue, "0123")
    try:
        subscription = connection.subscribe(queue, ack="client-individual", prefetch=1)
    except stompy.ConfigurationError:
        expect("prefetch", REFUSED)
        return
    first = subscription.receive(timeout=SOON)
    # The broker has answered a later frame, and would have sent the next message before.
    send_all(connection, f"{queue}.other", "x")
    assert subscription.queued == 0
    first.ack()
    expect("prefetch", subscription.receive(timeout=SOON).text)


@pytest.mark.scenario("prefetch")
def test_a_consumer_with_prefetch_1_leaves_the_rest_to_the_others(connect: Connect, queue: str) -> None:
    slow, quick = connect(), connect()
    mine = slow.subscribe(queue, ack="client-individual", prefetch=1)
    send_all(slow, queue, "a")
    held = mine.receive(timeout=SOON)
    theirs = quick.subscribe(queue, ack="client-individual", prefetch=1)
    send_all(slow, queue, "bcd")
    for body in "bcd":
        message = theirs.receive(timeout=SOON)
        assert message.text == body
        acked(message)
    assert mine.queued == 0
    theirs.close()
    send_all(slow, queue, "e")
    held.ack()
    assert mine.receive(timeout=SOON).text == "e"
