"""Subscriptions that end."""

from __future__ import annotations

from tests.broker.conftest import Serve, Served


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
