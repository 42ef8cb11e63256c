"""What one broker makes of what it is asked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stompy.dialects.brokers import ACTIVEMQ, ARTEMIS, EMBEDDED, GENERIC, RABBITMQ
from stompy.dialects.dialect import DEDUPE_HEADER, Dialect
from stompy.dialects.options import SubscribeOptions
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Version


def subscribed(
    dialect: Dialect,
    destination: str = "/topic/a",
    ack: str = "client-individual",
    client_id: str | None = "me",
    version: Version = Version.V1_2,
    **asked: Any,
) -> dict[str, str]:
    return dialect.subscribe_headers(
        SubscribeOptions(**asked), destination=destination, ack=ack, client_id=client_id, version=version
    )


def ended(
    dialect: Dialect, *, delete: bool = True, version: Version = Version.V1_2, **asked: Any
) -> list[dict[str, str]]:
    return dialect.unsubscribe_headers("7", SubscribeOptions(**asked), delete=delete, client_id="me", version=version)


@pytest.mark.parametrize(
    ("dialect", "asked", "headers"),
    [
        (ACTIVEMQ, {"persistent": True, "priority": 9}, {"persistent": "true", "priority": "9"}),
        (ACTIVEMQ, {"persistent": False}, {"persistent": "false"}),
        (ACTIVEMQ, {"delay": 1.5, "group": "g"}, {"AMQ_SCHEDULED_DELAY": "1500", "JMSXGroupID": "g"}),
        (ARTEMIS, {"delay": 0.0001, "group": "g"}, {"AMQ_SCHEDULED_DELAY": "1", "JMSXGroupID": "g"}),
        (ARTEMIS, {"persistent": False, "dedupe_id": "d"}, {"persistent": "false", "_AMQ_DUPL_ID": "d"}),
        (RABBITMQ, {"persistent": True, "priority": 0}, {"persistent": "true", "priority": "0"}),
        (RABBITMQ, {"persistent": False}, {}),
        (RABBITMQ, {"expires": 1.5}, {"expiration": "1500"}),
        (RABBITMQ, {"expires": 0.0001}, {"expiration": "1"}),
    ],
)
def test_a_message_asks_in_the_brokers_language(
    dialect: Dialect, asked: dict[str, Any], headers: dict[str, str]
) -> None:
    assert dialect.send_headers(asked) == headers


@pytest.mark.parametrize("dialect", [ACTIVEMQ, ARTEMIS])
def test_expiry_is_a_moment_for_brokers_that_want_one(dialect: Dialect) -> None:
    before = time.time() * 1000
    moment = int(dialect.send_headers({"expires": 60})["expires"])
    assert before + 59_000 < moment < before + 62_000


@pytest.mark.parametrize(
    ("dialect", "asked", "why"),
    [
        (ACTIVEMQ, {"dedupe_id": "d"}, "is delivered twice"),
        (RABBITMQ, {"delay": 1}, "delayed-message plugin"),
        (RABBITMQ, {"group": "g"}, "single active consumer"),
        (RABBITMQ, {"dedupe_id": "d"}, "plugin"),
        (EMBEDDED, {"dedupe_id": "d"}, "explicitly"),
        (GENERIC, {"priority": 1}, "does not know how"),
        (GENERIC, {"expires": 1}, "does not know how"),
    ],
)
def test_what_a_broker_cannot_do_with_a_message_is_refused_and_says_why(
    dialect: Dialect, asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        dialect.send_headers(asked)


@pytest.mark.parametrize(
    ("dialect", "asked", "headers"),
    [
        (ACTIVEMQ, {"prefetch": 1}, {"activemq.prefetchSize": "1"}),
        (ARTEMIS, {"prefetch": 1}, {"consumer-window-size": "0"}),
        (RABBITMQ, {"prefetch": 5}, {"prefetch-count": "5"}),
        (EMBEDDED, {"prefetch": 5}, {"prefetch-count": "5"}),
        (ACTIVEMQ, {"selector": "a = 1", "exclusive": True}, {"selector": "a = 1", "activemq.exclusive": "true"}),
        (ARTEMIS, {"selector": "a = 1"}, {"selector": "a = 1"}),
        (ACTIVEMQ, {"durable": "d"}, {"activemq.subscriptionName": "d"}),
        (ARTEMIS, {"durable": "d"}, {"durable-subscription-name": "d"}),
        (RABBITMQ, {"durable": "d"}, {"durable": "true", "auto-delete": "false", "x-queue-name": "me.d"}),
        (RABBITMQ, {}, {}),
    ],
)
def test_a_subscription_asks_in_the_brokers_language(
    dialect: Dialect, asked: dict[str, Any], headers: dict[str, str]
) -> None:
    assert subscribed(dialect, **asked) == headers


@pytest.mark.parametrize(
    ("dialect", "asked", "why"),
    [
        (ARTEMIS, {"prefetch": 2}, "in bytes"),
        (ARTEMIS, {"prefetch": 1, "ack": "auto"}, "in bytes"),
        (ARTEMIS, {"browse": True, "ack": "auto"}, "delete"),
        (ARTEMIS, {"exclusive": True}, "broker.xml"),
        (RABBITMQ, {"selector": "a = 1"}, "every message"),
        (RABBITMQ, {"browse": True, "ack": "auto"}, "delete"),
        (RABBITMQ, {"exclusive": True}, "deleted with its connection"),
        (GENERIC, {"prefetch": 1}, "does not know how"),
        (GENERIC, {"durable": "d"}, "does not know how"),
        (ACTIVEMQ, {"browse": True, "ack": "auto", "version": Version.V1_0}, "from STOMP 1.1"),
        (ACTIVEMQ, {"browse": True}, "ack must be 'auto'"),
        (ACTIVEMQ, {"durable": "d", "client_id": None}, "client_id="),
        (ARTEMIS, {"durable": "d", "client_id": None}, "client_id="),
        (ACTIVEMQ, {"durable": "d", "destination": "/queue/a"}, "only a topic"),
        (RABBITMQ, {"durable": "d", "destination": "/queue/a"}, "only a topic"),
    ],
)
def test_what_a_broker_cannot_do_with_a_subscription_is_refused_and_says_why(
    dialect: Dialect, asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        subscribed(dialect, **asked)


@pytest.mark.parametrize(
    ("destination", "kind"), [("/queue/a", "ANYCAST"), ("/topic/a", "MULTICAST"), ("/temp-queue/a", None), ("a", None)]
)
def test_artemis_is_sent_the_type_of_a_queue(destination: str, kind: str | None) -> None:
    assert ARTEMIS.defaults("SEND", destination).get("destination-type") == kind
    assert ARTEMIS.defaults("SUBSCRIBE", destination).get("subscription-type") == kind
    assert ACTIVEMQ.defaults("SEND", destination) == ACTIVEMQ.defaults("SUBSCRIBE", destination) == {}


def test_without_a_client_id_the_queue_has_the_name_of_the_durable_subscription() -> None:
    assert subscribed(RABBITMQ, durable="d", client_id=None)["x-queue-name"] == "d"


@pytest.mark.parametrize(
    ("dialect", "frames"),
    [
        (ACTIVEMQ, [{"id": "7"}, {"id": "7", "activemq.subscriptionName": "d"}]),
        (ARTEMIS, [{"id": "7"}, {"id": "7", "durable-subscription-name": "d"}]),
        (RABBITMQ, [{"id": "7", "durable": "true", "auto-delete": "false", "x-queue-name": "me.d"}]),
    ],
)
def test_a_durable_subscription_is_deleted_as_the_broker_wants_it(
    dialect: Dialect, frames: list[dict[str, str]]
) -> None:
    assert ended(dialect, durable="d") == frames
    assert ended(dialect, durable="d", delete=False) == [{"id": "7"}]


def test_only_what_is_durable_can_be_deleted() -> None:
    with pytest.raises(ConfigurationError, match="only a durable"):
        ended(ACTIVEMQ)


def test_in_1_0_activemq_takes_the_name_for_the_client_id() -> None:
    with pytest.raises(ConfigurationError, match=r"1\.0"):
        ended(ACTIVEMQ, durable="d", version=Version.V1_0)
    assert len(ended(ACTIVEMQ, durable="me", version=Version.V1_0)) == 2
    assert len(ended(ARTEMIS, durable="d", version=Version.V1_0)) == 2


@pytest.mark.parametrize(
    ("dialect", "requeue", "headers"),
    [
        (RABBITMQ, None, {}),
        (RABBITMQ, True, {"requeue": "true"}),
        (RABBITMQ, False, {"requeue": "false"}),
        (ACTIVEMQ, None, {}),
        (ACTIVEMQ, False, {}),
        (ARTEMIS, False, {}),
        (GENERIC, None, {}),
    ],
)
def test_a_refused_message_goes_where_the_caller_wants_it(
    dialect: Dialect, requeue: bool | None, headers: dict[str, str]
) -> None:
    assert dialect.nack_headers(requeue) == headers


@pytest.mark.parametrize(
    ("dialect", "requeue", "why"),
    [
        (ARTEMIS, None, "treats a NACK like an ACK"),
        (ARTEMIS, True, "redeliver"),
        (ACTIVEMQ, True, "redeliver"),
        (GENERIC, True, "redeliver"),
        (GENERIC, False, "does not know"),
        (EMBEDDED, False, "itself decides"),
    ],
)
def test_a_refused_message_goes_nowhere_else(dialect: Dialect, requeue: bool | None, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        dialect.nack_headers(requeue)


@pytest.mark.parametrize(
    ("dialect", "transacted"),
    [(ACTIVEMQ, {"ACK"}), (ARTEMIS, set()), (RABBITMQ, {"ACK", "NACK"}), (GENERIC, {"ACK", "NACK"})],
)
def test_only_what_waits_for_the_commit_is_part_of_a_transaction(dialect: Dialect, transacted: set[str]) -> None:
    for command in ("ACK", "NACK"):
        if command in transacted:
            dialect.check_transacted(command)
        else:
            with pytest.raises(ConfigurationError, match=f"an? {command}"):
                dialect.check_transacted(command)


@pytest.mark.parametrize(
    ("dialect", "command", "header", "value"),
    [
        (RABBITMQ, "SUBSCRIBE", "selector", "a = 1"),
        (RABBITMQ, "SUBSCRIBE", "browser", "true"),
        (RABBITMQ, "SEND", "message-id", "1"),
        (RABBITMQ, "SEND", "persistent", "false"),
        (ARTEMIS, "SUBSCRIBE", "browser", "true"),
    ],
)
def test_an_explicit_header_that_silently_does_harm_is_refused(
    dialect: Dialect, command: str, header: str, value: str
) -> None:
    with pytest.raises(ConfigurationError, match=header):
        dialect.check_explicit_headers(command, {"destination": "/queue/a", header: value})
    GENERIC.check_explicit_headers(command, {header: value})


def test_any_other_explicit_header_is_let_through() -> None:
    RABBITMQ.check_explicit_headers("SEND", {"persistent": "true", "selector": "x"})
    ACTIVEMQ.check_explicit_headers("SUBSCRIBE", {"selector": "a = 1", "browser": "true"})


def test_a_message_that_may_come_twice_says_so_to_the_broker_where_it_listens() -> None:
    assert ACTIVEMQ.dedupe_headers("i") == {DEDUPE_HEADER: "i"}
    assert ARTEMIS.dedupe_headers("i") == {DEDUPE_HEADER: "i", "_AMQ_DUPL_ID": "i"}


def test_it_tells_what_can_be_asked() -> None:
    assert ACTIVEMQ.supports("persistent")
    assert not GENERIC.supports("persistent")
