"""Subscriptions that end."""

from __future__ import annotations

from stompy.broker.destinations import targets_of
from stompy.broker.profile import SubscribeRequest
from stompy.broker.router import BrokerRouter
from stompy.broker.settings import Settings
from tests.broker.conftest import Serve, Served, a_message, a_session_state


def test_what_was_delivered_before_an_unsubscribe_cannot_be_acknowledged(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x")
    (message,) = client.messages(1)
    client.sure("UNSUBSCRIBE", {"id": "1"})
    client.settle(message)
    client.error()
    assert served.depth("/queue/a") == (1, 0)


def test_a_profile_may_give_it_back_at_once(serve: Serve) -> None:
    served = serve(like="activemq")
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.subscribe("/queue/b", "client", id="2")
    client.send("/queue/a", "x")
    client.send("/queue/b", "y")
    client.messages(2)
    client.sure("UNSUBSCRIBE", {"id": "1"})
    assert (served.depth("/queue/a"), served.depth("/queue/b")) == ((1, 0), (0, 1))
    client.subscribe("/queue/a", id="3")
    assert client.messages(1)[0].headers["redelivered"] == "true"


def test_a_subscription_that_has_ended_gets_nothing_more_while_it_leaves_its_queues() -> None:
    router, session = BrokerRouter(Settings(), instance="t"), a_session_state()
    with router.turn():
        router.subscribe(
            session,
            "#1",
            targets=targets_of("/queue/a", session.name),
            destination="/queue/a",
            identity="1",
            options=SubscribeRequest(),
        )
    (consumer,), queue = session.consumers.values(), router.topology.queues["/queue/a"]
    with router.turn():
        steps = router.end_subscription(consumer)
        next(steps)
        router.publisher.publish(a_message())
        router.flush()
        assert (list(queue.consumers), queue.ready, session.consumers) == ([consumer], 1, {})
        router.work.run(steps)
        router.work.run(router.end_subscription(consumer))
    assert (queue.consumers, queue.ready) == ({}, 1)
    assert not session.write_queue.withdraw(lambda delivery: True)
