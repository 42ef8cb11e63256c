"""Durable subscriptions, browsing, wildcards, composite and temporary destinations, topics with selectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.broker import BrokerLimits
from stompy.broker.destinations import Target
from stompy.broker.queues import DestinationCounts
from stompy.broker.selector import Evaluation, Selector
from stompy.broker.session_state import Feed
from stompy.broker.topology import Followers
from tests.broker.conftest import Serve, Served, a_queue

DURABLE = {"destination": "/topic/news", "id": "1", "activemq.subscriptionName": "mine"}


# Durable subscriptions


def test_a_durable_subscription_keeps_what_comes_while_its_owner_is_gone(served: Served) -> None:
    sender, owner = served.client(), served.client(client_id="me")
    owner.sure("SUBSCRIBE", DURABLE)
    sender.send("/topic/news", "1")
    assert owner.bodies(1) == ["1"]
    owner.disconnect()
    sender.send("/topic/news", "2", "3")
    assert served.broker.stats().durables["me/mine"].ready == 2
    owner = served.client(client_id="me")
    owner.sure("SUBSCRIBE", {**DURABLE, "ack": "client-individual"})
    second, third = owner.messages(2)
    owner.ack(third)
    owner.sure("UNSUBSCRIBE", {"id": "1"})
    owner.disconnect()
    owner = served.client("1.1", client_id="me")
    owner.sure("SUBSCRIBE", DURABLE)
    (again,) = owner.messages(1)
    assert (again.body, again.headers["redelivered"]) == (second.body, "true")


def test_an_unsubscribe_that_names_it_deletes_a_durable_subscription(served: Served) -> None:
    name = {"activemq.subscriptionName": "mine"}
    sender, owner = served.client(), served.client(client_id="me")
    owner.sure("SUBSCRIBE", DURABLE)
    owner.sure("UNSUBSCRIBE", {"id": "1"})
    sender.send("/topic/news", "1")
    owner.sure("UNSUBSCRIBE", {"id": "1", **name})
    owner.sure("SUBSCRIBE", DURABLE)
    sender.send("/topic/news", "2")
    assert owner.bodies(1) == ["2"]
    owner.sure("UNSUBSCRIBE", {"id": "1", **name})
    assert served.broker.stats().durables == {}
    owner.say("UNSUBSCRIBE", {"id": "1", **name})
    assert "No durable subscription" in owner.error().headers["message"]


def test_another_topic_or_selector_makes_a_durable_subscription_anew(served: Served) -> None:
    owner = served.client(client_id="me")
    for changed in ({}, {"destination": "/topic/other"}, {"selector": "a = 1"}):
        owner.sure("SUBSCRIBE", {**DURABLE, **changed})
        owner.sure("UNSUBSCRIBE", {"id": "1"})
        owner.send(changed.get("destination", "/topic/news"), "x", a="1")
        assert served.broker.stats().durables["me/mine"].ready == 1


def test_a_durable_subscription_has_one_consumer_and_needs_a_client_id(served: Served) -> None:
    first, second = served.client(client_id="me"), served.client(client_id="me")
    first.sure("SUBSCRIBE", DURABLE)
    second.say("SUBSCRIBE", DURABLE)
    assert "in use" in second.error().headers["message"]
    nobody = served.client()
    nobody.say("SUBSCRIBE", DURABLE)
    assert "client-id" in nobody.error().headers["message"]
    on_queue = served.client(client_id="other")
    on_queue.say("SUBSCRIBE", {**DURABLE, "destination": "/queue/a"})
    assert "to a topic" in on_queue.error().headers["message"]


def test_a_full_durable_subscription_refuses_the_sender(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_queue_messages=1))
    owner = served.client(client_id="me")
    owner.sure("SUBSCRIBE", DURABLE)
    owner.disconnect()
    sender = served.client()
    sender.send("/topic/news", "1")
    sender.say("SEND", {"destination": "/topic/news"}, b"2")
    assert "is full" in sender.error().headers["message"]


def test_durable_subscriptions_count_as_queues(serve: Serve) -> None:
    client = serve(limits=BrokerLimits(max_queues=1)).client(client_id="me")
    client.sure("SUBSCRIBE", DURABLE)
    client.say("SEND", {"destination": "/queue/a"})
    assert "too many queues" in client.error().headers["message"]


# Browsing


def test_browsing_shows_the_messages_in_order_and_takes_none(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", "1", "2")
    client.send("/queue/a", "urgent", priority="9")
    client.subscribe("/queue/a", browser="true", id="b")
    *messages, end = client.messages(4)
    assert [message.body for message in messages] == [b"urgent", b"1", b"2"]
    assert (end.headers["browser"], end.headers["subscription"], end.body) == ("end", "b", b"")
    assert served.depth("/queue/a") == (3, 0)
    client.sure("UNSUBSCRIBE", {"id": "b"})


def test_browsing_with_a_selector_and_of_an_empty_queue(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", "1", kind="x")
    client.send("/queue/a", "2", kind="y")
    client.subscribe("/queue/a", browser="true", selector="kind = 'y'")
    assert client.bodies(2) == ["2", ""]
    client.subscribe("/queue/none", browser="true", id="2")
    assert client.messages(1)[0].headers["browser"] == "end"
    assert list(served.broker.stats().queues) == ["/queue/a"]


# Selectors


def test_a_selector_leaves_the_others_in_the_queue(served: Served) -> None:
    picky, other = served.client(), served.client()
    picky.subscribe("/queue/a", selector="size > 5")
    for size in ("3", "7", "5", "9"):
        picky.send("/queue/a", size, size=size)
    assert picky.bodies(2) == ["7", "9"]
    assert served.depth("/queue/a") == (2, 0)
    other.subscribe("/queue/a")
    assert other.bodies(2) == ["3", "5"]


def test_what_a_selecting_consumer_leaves_behind_goes_to_another(served: Served) -> None:
    first = served.client()
    first.subscribe("/queue/a", "client", selector="size > 5")
    first.send("/queue/a", "7", size="7")
    first.send("/queue/a", "8", size="8")
    first.messages(2)
    second = served.client()
    second.subscribe("/queue/a", selector="size = 8")
    first.disconnect()
    assert second.bodies(1) == ["8"]
    assert served.depth("/queue/a") == (1, 0)


def test_a_topic_gives_a_subscriber_what_it_selects(served: Served) -> None:
    client = served.client()
    client.subscribe("/topic/a", selector="JMSPriority > 4 OR kind LIKE 'b%'")
    client.send("/topic/a", "1")
    client.send("/topic/a", "2", priority="5")
    client.send("/topic/a", "3", kind="bc")
    assert client.bodies(2) == ["2", "3"]


def test_no_local_leaves_out_the_own_messages(served: Served) -> None:
    client, other = served.client(), served.client()
    client.subscribe("/topic/a", no_local="true")
    client.send("/topic/a", "own")
    other.send("/topic/a", "other")
    assert client.bodies(1) == ["other"]


# Wildcards and composite destinations


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_wildcards_cover_what_is_there_and_what_is_to_come(served: Served, kind: str) -> None:
    client = served.client()
    if kind == "queue":
        client.send("/queue/w.a", "before")
    client.subscribe(f"/{kind}/w.*")
    client.subscribe(f"/{kind}/v.>", id="2")
    for name in ("w.a", "w.a.b", "v.a.b", "v.c"):
        client.send(f"/{kind}/{name}", name)
    expected = ["before"] * (kind == "queue") + ["w.a", "v.a.b", "v.c"]
    messages = client.messages(len(expected))
    assert sorted(message.body.decode() for message in messages) == sorted(expected)
    assert messages[-1].headers["destination"] == f"/{kind}/v.c"
    client.sure("UNSUBSCRIBE", {"id": "2"})
    client.send(f"/{kind}/v.c", "late")
    assert client.idle()


def test_nothing_is_sent_to_a_pattern(served: Served) -> None:
    client = served.client()
    client.say("SEND", {"destination": "/topic/w.*"})
    assert "pattern" in client.error().headers["message"]


def test_a_composite_destination_sends_to_each_and_subscribes_to_each(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a,/topic/b", "client")
    client.send("/queue/a,/topic/b,/queue/c", "x")
    client.send("/topic/b", "y")
    messages = sorted(client.messages(3), key=lambda message: (message.headers["destination"], message.body))
    assert [(message.headers["destination"], message.body) for message in messages] == [
        ("/queue/a", b"x"),
        ("/topic/b", b"x"),
        ("/topic/b", b"y"),
    ]
    assert messages[0].headers["original-destination"] == "/queue/a,/topic/b,/queue/c"
    client.ack(max(messages, key=lambda message: message.headers["ack"]))
    client.sync()
    assert served.depth("/queue/c") == (1, 0)
    assert served.depth("/queue/a") == (0, 0)


# Temporary destinations


def test_two_sessions_have_each_their_own_temporary_queue_of_a_name(served: Served) -> None:
    first, second, responder = served.client(), served.client(), served.client()
    for client in (first, second):
        client.subscribe("/temp-queue/r")
    responder.subscribe("/queue/questions")
    first.send("/queue/questions", "1", reply_to="/temp-queue/r")
    second.send("/queue/questions", "2", reply_to="/temp-queue/r")
    for question in responder.messages(2):
        assert question.headers["reply-to"].startswith("/remote-temp-queue/")
        responder.send(question.headers["reply-to"], b"re " + question.body)
    (reply,) = first.messages(1)
    assert (reply.body, reply.headers["destination"]) == (b"re 1", "/temp-queue/r")
    assert second.bodies(1) == ["re 2"]
    address = question.headers["reply-to"]
    responder.say("SUBSCRIBE", {"destination": address, "id": "9"})
    assert "another session" in responder.error().headers["message"]


def test_a_reply_waits_for_its_owner_and_is_dropped_when_that_is_gone(served: Served) -> None:
    asker, responder = served.client(), served.client()
    responder.subscribe("/queue/questions")
    asker.send("/queue/questions", "1", reply_to="/temp-queue/r")
    (question,) = responder.messages(1)
    responder.send(question.headers["reply-to"], "early")
    asker.subscribe("/temp-queue/r")
    assert asker.bodies(1) == ["early"]
    asker.disconnect()
    served.until(lambda stats: stats.sessions == 1)
    responder.send(question.headers["reply-to"], "late")
    assert list(served.broker.stats().queues) == ["/queue/questions"]


def test_a_delayed_reply_is_dropped_when_its_owner_goes_before_it_is_due(serve: Serve) -> None:
    served = serve(like="activemq")
    asker, responder = served.client(), served.client()
    responder.subscribe("/queue/questions")
    asker.subscribe("/temp-queue/r")
    asker.send("/queue/questions", "1", reply_to="/temp-queue/r")
    (question,) = responder.messages(1)
    responder.send(question.headers["reply-to"], "late", AMQ_SCHEDULED_DELAY="60000")
    asker.disconnect()
    served.until(lambda stats: stats.sessions == 1)
    served.broker.clock.advance(61)
    assert served.broker.stats().queues.keys() == {"/queue/questions"}


def test_a_temporary_topic_goes_to_its_owner(served: Served) -> None:
    owner, other = served.client(), served.client()
    owner.subscribe("/temp-topic/t")
    other.subscribe("/queue/a")
    owner.send("/queue/a", "x", reply_to="/temp-topic/t")
    other.send(other.messages(1)[0].headers["reply-to"], "y")
    assert owner.messages(1)[0].headers["destination"] == "/temp-topic/t"


@given(
    st.lists(
        st.sampled_from(
            (None, "kind = 'a'", "kind = 'b'", "kind='a'", "other = 'a'", "kind = 'it''s'", "kind <> 'a'", "'a' = kind")
        ),
        max_size=8,
    ),
    st.dictionaries(st.sampled_from(("kind", "other")), st.sampled_from(("a", "b", "it's", ""))),
)
def test_a_topic_finds_the_subscriptions_whose_selectors_are_true(
    selectors: list[str | None], headers: dict[str, str]
) -> None:
    target = Target("topic", "/topic/a", "/topic/a")
    feeds = [
        Feed(target, a_queue(), selector=None if text is None else Selector(text, ways))
        for text in selectors
        for ways in (Evaluation(), Evaluation(convert=False), Evaluation(activemq=True))
    ]
    true = [feed for feed in feeds if feed.selector is None or feed.selector.matches(headers.get)]
    assert [
        feed
        for feed in Followers(feeds, {target.name: DestinationCounts()}).candidates(headers.get)
        if feed.wants(headers.get, None)
    ] == true
