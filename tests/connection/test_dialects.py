"""What differs from broker to broker."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stompy.connection.dialects import dialect_of, leniency_of
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency
from tests.connection.conftest import Talking
from tests.transport.conftest import Calling


@pytest.mark.parametrize(
    ("server", "headers"),
    [
        ("ActiveMQ/6.3.1", {"activemq.prefetchSize": "1"}),
        ("RabbitMQ/4.0.5", {"prefetch-count": "1"}),
        ("stompy-broker", {"prefetch-count": "1"}),
    ],
)
def test_prefetch_speaks_the_brokers_language(server: str, headers: dict[str, str]) -> None:
    assert dialect_of(server).prefetch_headers(1) == headers


@pytest.mark.parametrize("server", [None, "", "somebody/1", "ActiveMQ-Artemis/2.40 ActiveMQ Artemis Messaging Engine"])
def test_a_broker_without_a_known_prefetch_is_not_guessed_at(server: str | None) -> None:
    with pytest.raises(ConfigurationError, match=r"prefetch by messages; see headers="):
        dialect_of(server).prefetch_headers(1)


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "5", None])
def test_prefetch_is_a_positive_whole_number(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="whole number"):
        dialect_of("ActiveMQ/6").prefetch_headers(count)


@pytest.mark.parametrize(
    ("server", "wish", "headers"),
    [
        ("ActiveMQ/6", {"persistent": True, "priority": 9}, {"persistent": "true", "priority": "9"}),
        ("ActiveMQ/6", {"persistent": False}, {"persistent": "false"}),
        ("RabbitMQ/4", {"persistent": True, "priority": 0}, {"persistent": "true", "priority": "0"}),
        ("RabbitMQ/4", {"persistent": False}, {}),
        ("RabbitMQ/4", {"expires": 1.5}, {"expiration": "1500"}),
        ("RabbitMQ/4", {"expires": 0.0001}, {"expiration": "1"}),
    ],
)
def test_persistence_priority_and_expiry_speak_the_brokers_language(
    server: str, wish: dict[str, Any], headers: dict[str, str]
) -> None:
    assert dialect_of(server).send_headers(**wish) == headers


def test_expiry_is_a_moment_for_brokers_that_want_one() -> None:
    before = time.time() * 1000
    moment = int(dialect_of("ActiveMQ/6").send_headers(expires=60)["expires"])
    assert before + 59_000 < moment < before + 62_000


@pytest.mark.parametrize(
    "wish",
    [{"priority": 10}, {"priority": -1}, {"priority": True}, {"expires": 0}, {"expires": -1}, {"expires": 1e10}],
)
def test_values_out_of_range_are_refused(wish: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        dialect_of("ActiveMQ/6").send_headers(**wish)


@pytest.mark.parametrize("wish", [{"persistent": True}, {"priority": 1}, {"expires": 1}])
def test_what_a_broker_cannot_do_is_refused_and_nothing_sent(talking: Talking, wish: dict[str, Any]) -> None:
    talk = talking(server="somebody/1")
    with pytest.raises(ConfigurationError, match="somebody/1"):
        talk.conn.send("/queue/a", "x", **wish)
    assert talk.peer.quiet()


def test_the_server_header_of_connected_chooses(talking: Talking, calling: Calling) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    subscribing = calling(lambda: talk.conn.subscribe("/queue/a", prefetch=1))
    assert talk.peer.expect_and_confirm("SUBSCRIBE").headers["activemq.prefetchSize"] == "1"
    subscribing.result()
    talk.conn.send("/queue/a", "x", priority=4)
    assert talk.peer.expect("SEND").headers["priority"] == "4"


def test_only_rabbitmq_needs_to_be_borne_with() -> None:
    assert leniency_of("RabbitMQ/4") & Leniency.ESCAPES_IN_1_0
    assert leniency_of("ActiveMQ/6") == leniency_of(None) == Leniency.NONE
