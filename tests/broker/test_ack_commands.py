"""ACK and NACK."""

from __future__ import annotations

import pytest

from stompy.broker import BrokerLimits
from tests.broker.conftest import Serve, Served
from tests.broker.test_commands import VERSIONS

# ACK and NACK


@pytest.mark.requirement("ACK-01")
def test_in_auto_mode_a_message_is_consumed_when_it_was_written(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a")
    client.send("/queue/a", "x")
    client.messages(1)
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("ACK-02", "ACK-04", "ACK-13")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_without_ack_the_next_consumer_gets_it(served: Served, version: str, mode: str) -> None:
    one, two = served.client(version), served.client(version)
    one.subscribe("/queue/a", mode)
    one.send("/queue/a", "1", "2")
    assert "redelivered" not in one.messages(2)[0].headers
    assert served.depth("/queue/a") == (0, 2)
    two.subscribe("/queue/a", mode)
    one.close()
    messages = two.messages(2)
    assert [(message.body, message.headers["redelivered"]) for message in messages] == [(b"1", "true"), (b"2", "true")]
    for message in messages:
        two.ack(message)
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("ACK-05", "ACK-06", "A-16", "A-18")
@pytest.mark.parametrize("version", VERSIONS)
def test_in_client_mode_an_ack_covers_earlier_messages_of_its_subscription_only(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client", id="1")
    client.subscribe("/queue/b", "client", id="2")
    client.send("/queue/b", "other")
    client.send("/queue/a", "1", "2", "3")
    client.expect("MESSAGE")
    client.ack(client.messages(3)[1])
    assert (served.depth("/queue/a"), served.depth("/queue/b")) == ((0, 1), (0, 1))
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    again = served.client(version)
    again.subscribe("/queue/a")
    assert again.bodies(1) == ["3"]


@pytest.mark.requirement("ACK-07")
@pytest.mark.parametrize("version", VERSIONS)
def test_in_client_individual_mode_an_ack_covers_one_message(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2", "3")
    client.ack(client.messages(3)[2])
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    again = served.client(version)
    again.subscribe("/queue/a")
    assert again.bodies(2) == ["1", "2"]
    assert again.idle()


@pytest.mark.requirement("ACK-16", "A-17")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_in_client_mode_a_nack_covers_earlier_messages_too(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "1", "2", "3")
    client.nack(client.messages(3)[1])
    again = client.messages(2)
    assert [message.body for message in again] == [b"1", b"2"]
    assert all(message.headers["redelivered"] == "true" for message in again)
    assert served.depth("/queue/a") == (0, 3)


@pytest.mark.requirement("ACK-16")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_in_client_individual_mode_a_nack_covers_one_message(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2", "3")
    client.nack(client.messages(3)[1])
    assert client.bodies(1) == ["2"]
    assert client.idle()


@pytest.mark.requirement("ACK-09", "ACK-10", "ACK-11", "ACK-14", "A-35", "A-43")
@pytest.mark.parametrize(
    ("version", "command", "headers"),
    [
        ("1.2", "ACK", {"message-id": "{message-id}"}),
        ("1.2", "ACK", {"id": "{message-id}"}),
        ("1.2", "ACK", {"id": "nonsense"}),
        ("1.2", "NACK", {"id": "nonsense"}),
        ("1.1", "ACK", {"message-id": "{message-id}"}),
        ("1.1", "ACK", {"subscription": "1"}),
        ("1.1", "ACK", {"message-id": "{message-id}", "subscription": "2"}),
        ("1.1", "NACK", {"message-id": "{message-id}", "subscription": "none"}),
        ("1.0", "ACK", {"id": "{message-id}"}),
        ("1.0", "ACK", {"message-id": "nonsense"}),
        ("1.0", "NACK", {"message-id": "{message-id}"}),
    ],
)
def test_a_wrong_ack_is_an_error_and_loses_nothing(
    served: Served, version: str, command: str, headers: dict[str, str]
) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client-individual")
    client.subscribe("/queue/b", "client", id="2")
    client.send("/queue/a", "x")
    message_id = client.expect("MESSAGE").headers["message-id"]
    client.say(command, {name: value.replace("{message-id}", message_id) for name, value in headers.items()})
    assert command.encode() in client.error().body
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.requirement("A-43")
def test_a_second_ack_and_an_ack_in_auto_mode_are_errors(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "x")
    message = client.expect("MESSAGE")
    client.ack(message)
    client.settle(message)
    client.error()
    auto = served.client("1.1")
    auto.subscribe("/queue/a")
    auto.send("/queue/a", "x")
    auto.settle(auto.expect("MESSAGE"))
    auto.error()


def test_prefetch_bounds_what_waits_for_an_ack(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(prefetch=3))
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", *"12345")
    assert served.depth("/queue/a") == (2, 3)
    messages = client.messages(3)
    client.ack(messages[1])
    assert client.bodies(1) == ["4"]
    assert served.depth("/queue/a") == (1, 3)


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize"])
def test_a_subscription_may_ask_for_its_own_prefetch(served: Served, header: str) -> None:
    client = served.client()
    client.sure("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": "client", header: "2"})
    client.send("/queue/a", *"12345")
    messages = client.messages(2)
    assert client.idle()
    client.ack(messages[1])
    assert client.bodies(2) == ["3", "4"]


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_a_prefetch_count_of_0_is_no_bound_as_at_rabbitmq(serve: Serve, mode: str) -> None:
    client = serve(limits=BrokerLimits(prefetch=1)).client()
    client.subscribe("/queue/a", mode, prefetch_count="0")
    client.send("/queue/a", *"12345")
    assert client.bodies(5) == list("12345")


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
@pytest.mark.parametrize(
    ("header", "value"),
    [("activemq.prefetchSize", "0"), ("activemq.prefetchSize", "-1"), ("prefetch-count", "-1")],
)
def test_a_prefetch_that_leaves_no_room_gets_nothing_and_keeps_nothing_from_others(
    served: Served, caplog: pytest.LogCaptureFixture, header: str, value: str, mode: str
) -> None:
    starved, other = served.client(), served.client()
    starved.sure("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": mode, header: value})
    starved.send("/queue/a", *"12345")
    assert starved.idle()
    assert served.depth("/queue/a") == (5, 0)
    other.subscribe("/queue/a")
    assert other.bodies(5) == list("12345")
    assert starved.idle()
    assert "gets nothing, as its prefetch is 0 or less" in caplog.text


def test_prefetch_does_not_bind_an_auto_subscription(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", prefetch_count="1")
    client.send("/queue/a", *"12345")
    assert client.bodies(5) == list("12345")
