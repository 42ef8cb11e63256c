"""The subscriptions of a connection; what a program sees of them is in test_subscription.py."""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest

import stompy
from stompy.connection.config import Config, addresses_of
from stompy.connection.link_manager import LinkManager
from stompy.connection.listeners import Callbacks
from stompy.connection.message import AckMode
from stompy.connection.subscriptions import ActiveSubscription, SubscriptionTable
from stompy.deadline import Deadline
from stompy.errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    StompError,
    is_passing,
)
from stompy.link.link import Link
from tests.connection.conftest import Serving, Sessions, Talking
from tests.link.conftest import Linking
from tests.link.conftest import linking as linking
from tests.support.peer import WITHIN, Linked, until
from tests.transport.conftest import Calling
from tests.transport.conftest import calling as calling

NOBODY = cast("SubscriptionTable", None)


class Links:
    """What a subscription table asks of the link manager: the link of the moment, one after the other."""

    def __init__(self, *links: Link) -> None:
        self._coming = list(links)
        self.link = links[0]

    def live(self, timeout: float | None) -> Link:
        self.link = self._coming.pop(0) if len(self._coming) > 1 else self._coming[0]
        if len(self._coming) == 1:
            self.link.check_open()
        return self.link


def over(subscriptions: SubscriptionTable, *links: Link) -> SubscriptionTable:
    """Have the subscriptions use these links."""
    subscriptions.links = cast("LinkManager", Links(*links))
    return subscriptions


def subscription(identity: str, destination: str = "/queue/a") -> ActiveSubscription:
    return ActiveSubscription(NOBODY, id=identity, destination=destination, ack="auto")


@pytest.fixture
def subscriptions() -> SubscriptionTable:
    return SubscriptionTable(Config(addresses=addresses_of("stomp://localhost")), Callbacks("test", ()))


def add(subscriptions: SubscriptionTable, linked: Linked, one: ActiveSubscription, calling: Calling) -> None:
    """Register a subscription while the broker confirms."""
    call = calling(lambda: over(subscriptions, linked.link).add(one, timeout=None))
    linked.peer.expect_and_confirm("SUBSCRIBE")
    call.result()


def test_it_finds_by_id_and_where_there_is_none_by_destination(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    one, two = subscription("1"), subscription("2", "/queue/b")
    add(subscriptions, linked, one, calling)
    add(subscriptions, linked, two, calling)
    assert subscriptions.all() == [one, two]
    assert subscriptions.find("2", "/queue/a") is two
    assert subscriptions.find(None, "/queue/a") is one
    assert subscriptions.find("3", "/queue/a") is None
    assert subscriptions.find(None, "/queue/c") is None


def test_made_ids_never_repeat_and_avoid_those_in_use(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    for taken in ("1", "3"):
        add(subscriptions, linked, subscription(taken), calling)
    made = [subscriptions.new_id() for _ in range(3)]
    assert len(set(made)) == 3
    assert not {"1", "3"} & set(made)


def test_an_id_that_is_taken_is_refused_and_nothing_sent(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    first = subscription("1")
    add(subscriptions, linked, first, calling)
    with pytest.raises(LocalProtocolError, match="already a subscription"):
        over(subscriptions, linked.link).add(subscription("1"), timeout=None)
    assert subscriptions.find("1", None) is first
    assert linked.peer.quiet()


def test_what_the_broker_need_not_know_is_only_registered(subscriptions: SubscriptionTable, linking: Linking) -> None:
    linked = linking()
    one = subscription("1")
    over(subscriptions, linked.link).add(one, timeout=None, announce=False)
    assert subscriptions.all() == [one]
    assert linked.peer.quiet()


def test_a_subscription_that_the_broker_does_not_know_is_not_unsubscribed(
    subscriptions: SubscriptionTable, linking: Linking
) -> None:
    linked = linking()
    one = subscription("/temp-queue/1")
    over(subscriptions, linked.link).add(one, timeout=None, announce=False)
    over(subscriptions, linked.link).remove(one, timeout=None)
    assert one.closed
    assert linked.peer.quiet()


def test_a_subscription_that_was_not_confirmed_is_taken_back_and_ended(
    subscriptions: SubscriptionTable, linking: Linking
) -> None:
    linked = linking()
    one = subscription("1")
    with pytest.raises(ReceiptTimeoutError):
        over(subscriptions, linked.link).add(one, timeout=0.3)
    linked.peer.expect("SUBSCRIBE")
    assert linked.peer.expect("UNSUBSCRIBE").headers["id"] == "1"
    assert subscriptions.all() == []
    assert one.closed


def test_on_a_dead_link_there_is_nothing_to_tell(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    one = subscription("1")
    add(subscriptions, linked, one, calling)
    linked.peer.hang_up()
    linked.owner.await_end()
    over(subscriptions, linked.link).remove(one, timeout=None)
    assert one.closed
    assert subscriptions.all() == []


def test_an_unsubscribe_that_fails_ends_the_subscription_all_the_same(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    one = subscription("1")
    add(subscriptions, linked, one, calling)
    with pytest.raises(ReceiptTimeoutError):
        over(subscriptions, linked.link).remove(one, timeout=0.3)
    assert one.closed
    assert subscriptions.all() == []


def test_a_new_link_gets_every_subscription_with_its_id_and_headers(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    ones = [subscription("1"), subscription("2", "/queue/b")]
    for one in ones:
        add(subscriptions, old, one, calling)
    call = calling(lambda: subscriptions.replay(new.link))
    frames = [new.peer.expect("SUBSCRIBE") for _ in ones]
    assert [(frame.headers["id"], frame.headers["destination"]) for frame in frames] == [
        ("1", "/queue/a"),
        ("2", "/queue/b"),
    ]
    call.until_blocked()
    for frame in frames:
        new.peer.receipt(frame)
    call.result()


def test_a_subscription_that_ends_during_the_replay_is_taken_back(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    one = subscription("1")
    add(subscriptions, old, one, calling)
    call = calling(lambda: subscriptions.replay(new.link))
    frame = new.peer.expect("SUBSCRIBE")
    subscriptions.forget(one)
    new.peer.receipt(frame)
    assert new.peer.expect("UNSUBSCRIBE").headers["id"] == "1"
    call.result()


def test_a_subscription_that_is_leaving_is_not_made_again(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    one = subscription("1")
    add(subscriptions, old, one, calling)
    removing = calling(lambda: over(subscriptions, old.link).remove(one, timeout=None))
    frame = old.peer.expect("UNSUBSCRIBE")
    subscriptions.replay(new.link)
    assert new.peer.quiet()
    old.peer.receipt(frame)
    removing.result()


def test_a_subscription_that_begins_to_leave_during_the_replay_is_taken_back(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    one = subscription("1")
    add(subscriptions, old, one, calling)
    replaying = calling(lambda: subscriptions.replay(new.link))
    subscribe = new.peer.expect("SUBSCRIBE")
    removing = calling(lambda: over(subscriptions, old.link).remove(one, timeout=None))
    unsubscribe = old.peer.expect("UNSUBSCRIBE")
    new.peer.receipt(subscribe)
    assert new.peer.expect("UNSUBSCRIBE").headers["id"] == "1"
    replaying.result()
    old.peer.receipt(unsubscribe)
    removing.result()


def test_a_subscription_that_leaves_right_behind_the_replay_leaves_the_new_link(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    one = subscription("1")
    add(subscriptions, old, one, calling)
    replaying = calling(lambda: subscriptions.replay(new.link))
    new.peer.expect_and_confirm("SUBSCRIBE")
    replaying.result()
    # Its caller has not heard of the new link, which is not in use yet.
    removing = calling(lambda: over(subscriptions, old.link).remove(one, timeout=None))
    new.peer.expect_and_confirm("UNSUBSCRIBE")
    removing.result()
    assert old.peer.quiet()
    assert one.closed


def test_a_subscription_whose_link_dies_is_made_on_the_next(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    one = subscription("1")
    adding = calling(lambda: over(subscriptions, old.link, new.link).add(one, timeout=None))
    old.peer.expect("SUBSCRIBE")
    old.peer.hang_up()
    new.peer.expect_and_confirm("SUBSCRIBE")
    adding.result()
    assert subscriptions.all() == [one]


def test_without_a_next_link_the_reason_is_that_of_the_first(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    one = subscription("1")

    adding = calling(lambda: over(subscriptions, linked.link).add(one, timeout=None))
    linked.peer.expect("SUBSCRIBE")
    linked.peer.hang_up()
    with pytest.raises(ConnectionLostError) as lost:
        adding.result()
    assert lost.value.outcome == "unknown"
    assert one.closed
    assert subscriptions.all() == []


def test_a_subscription_that_the_broker_refuses_is_not_tried_again(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    one = subscription("1")
    adding = calling(lambda: over(subscriptions, linked.link).add(one, timeout=None))
    frame = linked.peer.expect("SUBSCRIBE")
    linked.peer.error("no", headers={"receipt-id": frame.headers["receipt"]})
    with pytest.raises(BrokerError):
        adding.result()
    assert subscriptions.all() == []


@pytest.mark.parametrize("named", [True, False])
def test_an_error_that_names_no_frame_refuses_subscriptions_only_when_it_comes_again(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling, named: bool
) -> None:
    first, second, third = linking(), linking(), linking()
    add(subscriptions, first, subscription("1"), calling)
    raised = []
    for linked in (second, third):
        replaying = calling(partial(subscriptions.replay, linked.link))
        frame = linked.peer.expect("SUBSCRIBE")
        linked.peer.error("stopping", headers={"receipt-id": frame.headers["receipt"]} if named else {})
        with pytest.raises(StompError) as error:
            replaying.result()
        raised.append(is_passing(error.value))
    assert raised == [not named, False]


@pytest.mark.parametrize(
    ("server", "silence"),
    [
        ("ActiveMQ-Artemis/2.56.0", "AMQ229014: Did not receive data from us"),
        ("stompy-broker/0.1.0", "nothing was received for 3 s despite heartbeats"),
    ],
)
def test_a_broker_that_heard_nothing_from_us_has_refused_nothing(
    sessions: Sessions, calling: Calling, server: str, silence: str
) -> None:
    errors: list[str] = []

    class Hears(stompy.Listener):
        def on_error(self, frame: stompy.Frame) -> None:
            errors.append(frame.headers["message"])

    conn, peer = sessions.connect(server=server, listeners=[Hears()])
    subscribing = calling(lambda: conn.subscribe("/queue/a", lambda message: None))
    for confirmed in (False, True):
        for _ in range(3):
            peer.expect("SUBSCRIBE")
            peer.error(silence)
            peer.close()
            peer = sessions.next(server=server)
        peer.receipt(peer.expect("SUBSCRIBE"))
        if not confirmed:
            subscribing.result()
            peer.close()
            peer = sessions.next(server=server)
    until(lambda: errors == [silence] * 6)
    until(lambda: conn.connected)


def test_a_subscription_that_the_old_link_took_too_late_is_made_on_the_new_one(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    one = subscription("1")
    adding = calling(lambda: over(subscriptions, old.link, new.link).add(one, timeout=None))
    frame = old.peer.expect("SUBSCRIBE")
    subscriptions.replay(new.link)
    assert new.peer.quiet()  # it is still its caller's
    old.peer.receipt(frame)
    new.peer.expect_and_confirm("SUBSCRIBE")
    adding.result()


def test_a_subscription_is_taken_back_also_where_the_line_is_busy(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    linked = linking()
    one = subscription("1")
    adding = calling(lambda: over(subscriptions, linked.link).add(one, timeout=0.2))
    linked.peer.expect("SUBSCRIBE")
    writing = calling(lambda: linked.link.writer.write(b"SEND\ndestination:/queue/a\n\n%b\0" % (b"x" * 50_000_000)))
    writing.until_blocked()
    adding.join(0.4)  # past its time, so that the UNSUBSCRIBE waits for the SEND to be gone, or has overtaken it
    frames = {frame.command: frame for frame in (linked.peer.frame(), linked.peer.frame())}
    assert set(frames) == {"SEND", "UNSUBSCRIBE"}
    assert frames["UNSUBSCRIBE"].headers["id"] == "1"
    writing.result()
    with pytest.raises(ReceiptTimeoutError):
        adding.result()


def test_a_replay_on_a_link_that_dies_says_so(
    subscriptions: SubscriptionTable, linking: Linking, calling: Calling
) -> None:
    old, new = linking(), linking()
    add(subscriptions, old, subscription("1"), calling)
    call = calling(lambda: subscriptions.replay(new.link))
    new.peer.expect("SUBSCRIBE")
    new.peer.hang_up()
    with pytest.raises(ConnectionLostError):
        call.result()


@pytest.mark.parametrize(("first", "second"), [("client", "client-individual"), ("client-individual", "client")])
def test_where_an_ack_settles_messages_of_all_it_is_not_mixed_with_others(
    talking: Talking, first: AckMode, second: AckMode
) -> None:
    talk = talking(server="RabbitMQ/4.3.6")
    one = talk.subscribe("/queue/a", ack=first)
    with pytest.raises(ConfigurationError, match="separate connections"):
        talk.conn.subscribe("/queue/b", ack=second)
    assert talk.peer.quiet()
    talk.subscribe("/queue/c", ack="auto")
    assert [kept.destination for kept in talk.conn._subscriptions.all()] == [one.destination, "/queue/c"]


def test_elsewhere_modes_are_mixed_freely(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    talk.subscribe("/queue/a", ack="client")
    talk.subscribe("/queue/b", ack="client-individual")


def test_a_durable_subscription_is_deleted_with_all_its_frames(talking: Talking, calling: Calling) -> None:
    talk = talking(server="ActiveMQ/6.3.1", client_id="me")
    subscription = talk.subscribe("/topic/a", durable="d")
    call = calling(lambda: subscription.unsubscribe(delete=True))
    assert "activemq.subscriptionName" not in talk.peer.expect_and_confirm("UNSUBSCRIBE").headers
    # To the letter of the specification there is no such subscription any more, so this one is read without its rules.
    data = b""
    while not data.endswith(b"\0"):
        data += talk.peer.transport.recv(Deadline(WITHIN))
    second = dict(line.split(":") for line in data.decode().partition("\n\n")[0].split("\n")[1:])
    assert (second["id"], second["activemq.subscriptionName"]) == (subscription.id, "d")
    talk.peer.receipt(second["receipt"])
    call.result()


def test_what_is_not_durable_is_not_deleted_and_lives_on(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    subscription = talk.subscribe("/topic/a")
    with pytest.raises(ConfigurationError, match="only a durable"):
        subscription.unsubscribe(delete=True)
    assert not subscription.closed
    assert talk.peer.quiet()


def test_a_made_up_subscription_id_avoids_those_that_the_program_chose(serving: Serving) -> None:
    conn, _ = serving()
    chosen = [conn.subscribe("/queue/a", id=str(number)).id for number in (1, 2, 4)]
    made = [conn.subscribe("/queue/a").id for _ in range(3)]
    assert len({*chosen, *made}) == 6
