from __future__ import annotations

import pytest

from stompy.backoff import Backoff
from stompy.connection.config import is_failover, parse_failover
from stompy.connection.reconnect import Reconnect
from stompy.errors import ConfigurationError

TWO = "failover:(stomp://a:1,stomp://b:2)"


def test_a_failover_address_is_told_from_others() -> None:
    assert is_failover(TWO)
    assert not is_failover("stomp://a:1")
    assert not is_failover(["failover:(stomp://a:1)"])


def test_without_options_it_randomizes_and_never_gives_up() -> None:
    parsed = parse_failover(TWO)
    assert parsed.urls == "stomp://a:1,stomp://b:2"
    assert parsed.order == "random"
    assert parsed.policy == Reconnect(backoff=Backoff(first=0.01))


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ("", "random"),
        ("?randomize=false", "given"),
        ("?priorityBackup=true", "priority"),
        ("?priorityBackup=true&randomize=false", "given"),
        ("?priorityBackup=false", "random"),
    ],
)
def test_the_order_is_that_of_the_options(options: str, order: str) -> None:
    assert parse_failover(TWO + options).order == order


def test_slashes_before_the_list_are_accepted() -> None:
    assert parse_failover("failover://(stomp://a:1)?randomize=false").urls == "stomp://a:1"


def test_delays_are_milliseconds() -> None:
    parsed = parse_failover(f"{TWO}?initialReconnectDelay=250&maxReconnectDelay=4000")
    assert parsed.policy == Reconnect(backoff=Backoff(first=0.25, longest=4.0))


@pytest.mark.parametrize(("value", "attempts"), [("7", 7), ("-1", None)])
def test_attempts_may_be_bounded(value: str, attempts: int | None) -> None:
    policy = parse_failover(f"{TWO}?maxReconnectAttempts={value}").policy
    assert policy is not None
    assert policy.attempts == attempts


def test_no_attempts_mean_no_reconnect_whatever_the_order_of_options() -> None:
    assert parse_failover(f"{TWO}?maxReconnectAttempts=0&initialReconnectDelay=5").policy is None


@pytest.mark.parametrize(
    "options",
    [
        "?trackMessages=true",
        "?randomize=yes",
        "?priorityBackup=1",
        "?priorityURIs=stomp://b:2",
        "?maxReconnectAttempts=x",
        "?maxReconnectDelay=0",
        "?initialReconnectDelay=",
    ],
)
def test_unknown_options_and_wrong_values_are_refused(options: str) -> None:
    with pytest.raises(ConfigurationError, match="failover option"):
        parse_failover(TWO + options)


@pytest.mark.parametrize(
    "url", ["failover:stomp://a:1", "failover:(stomp://u:secret@a", "failover:((stomp://a))", "failover:"]
)
def test_a_malformed_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="form failover") as caught:
        parse_failover(url)
    assert "secret" not in str(caught.value)
