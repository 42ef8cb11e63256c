"""Programs in the style of RabbitMQ's adapter, beyond what the scenarios compare."""

from __future__ import annotations

from tests.broker.conftest import Serve


def test_a_durable_queue_is_bound_to_a_topic(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    durable = {"durable": "true", "auto-delete": "false", "x-queue-name": "mine"}
    sender, owner = served.client(host="/"), served.client(host="/", client_id="me")
    owner.sure("SUBSCRIBE", {"destination": "/topic/a.#", "id": "1", "ack": "client", **durable})
    owner.disconnect()
    sender.send("/topic/a.b", "x")
    owner = served.client(host="/", client_id="me")
    owner.sure("SUBSCRIBE", {"destination": "/topic/a.#", "id": "1", "ack": "client", **durable})
    assert owner.bodies(1) == ["x"]


def test_a_refused_message_comes_again_unless_requeue_says_otherwise(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client = served.client(host="/")
    client.subscribe("/amq/queue/a", "client-individual", prefetch_count="1")
    client.send("/queue/a", "x")
    for redelivered in ("false", "true", "true"):
        (message,) = client.messages(1)
        assert message.headers["redelivered"] == redelivered
        client.nack(message)
    client.nack(client.messages(1)[0], requeue="false")
    client.sync()
    assert served.depth("/queue/a") == (0, 0)


def test_an_unknown_destination_is_refused_and_the_connection_stays(serve: Serve) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.say("SEND", {"destination": "/nowhere/a", "receipt": "r"})
    assert "receipt-id" not in client.expect("ERROR").headers
    client.sync()
