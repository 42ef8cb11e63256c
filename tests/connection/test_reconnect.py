"""The policy of reopening a lost link."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import stompy
from stompy.backoff import Backoff
from stompy.connection.config import Config, addresses_of
from stompy.connection.reconnect import Reconnect, ResendLimits, first_wait, reconnect_of, retry
from stompy.default import DEFAULT
from stompy.errors import ConfigurationError, ConnectError, StompError
from stompy.locks import SafeEvent
from tests.connection.conftest import Sessions
from tests.support.peer import until
from tests.transport.conftest import Calling


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"total": 0},
        {"total": math.inf},
        {"backoff": 0.1},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Reconnect(**wrong)


def test_true_is_the_usual_policy_and_false_is_none() -> None:
    own = Reconnect(attempts=2)
    assert [reconnect_of(value, None) for value in (True, False, own, DEFAULT)] == [Reconnect(), None, own, None]


def test_the_policy_of_an_address_is_that_of_true_and_of_nothing_said() -> None:
    own, address = Reconnect(attempts=2), Reconnect(attempts=3)
    assert [reconnect_of(value, address) for value in (True, False, own, DEFAULT)] == [address, None, own, address]


@pytest.mark.parametrize("wrong", [None, 0, 1, "true"])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="reconnect must be True, False or a Reconnect"):
        stompy.connect("stomp://localhost:1", reconnect=wrong)


def test_a_policy_travels_to_another_process() -> None:
    policy = Reconnect(attempts=2, total=5.0)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_the_first_wait_grows_with_the_links_that_were_of_no_use_up_to_the_largest_delay() -> None:
    policy = Reconnect(backoff=Backoff(first=1.0, longest=8.0))
    assert [first_wait(policy, failures) for failures in (0, 1)] == [0.0, 0.0]
    for failures, bound in ((2, 1.0), (3, 2.0), (5, 8.0), (6, 8.0), (100_000, 8.0)):
        waits = [first_wait(policy, failures) for _ in range(200)]
        assert bound / 2 < max(waits) <= bound
        assert min(waits) < bound / 2


# The engine


Reported = tuple[int, float, StompError]


def tried(policy: Reconnect, *outcomes: StompError | None) -> tuple[list[Reported], StompError | None]:
    """Return the attempts that were reported, and what the last one raised; the last outcome is repeated."""
    reported: list[Reported] = []
    left = list(outcomes)

    def attempt() -> None:
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if outcome is not None:
            raise outcome

    try:
        retry(
            attempt,
            policy,
            closing=SafeEvent(),
            report=lambda number, delay, reason: reported.append((number, delay, reason)),
        )
    except StompError as error:
        return reported, error
    return reported, None


QUICK = Reconnect(backoff=Backoff(first=0.001, longest=0.002))


def test_attempts_go_on_until_one_works() -> None:
    reported, error = tried(QUICK, ConnectError("1"), ConnectError("2"), ConnectError("3"), None)
    assert error is None
    assert [(number, str(reason)) for number, _, reason in reported] == [(2, "1"), (3, "2"), (4, "3")]
    assert all(0 <= delay <= 0.002 for _, delay, _ in reported)


def test_after_the_last_attempt_its_own_error_is_raised() -> None:
    errors = [ConnectError(str(number)) for number in range(5)]
    assert tried(replace(QUICK, attempts=3), *errors)[1] is errors[2]


def test_what_is_not_worth_another_attempt_is_raised_at_once() -> None:
    error = ConfigurationError("no")
    assert tried(QUICK, error) == ([], error)


def test_no_delay_reaches_beyond_the_total() -> None:
    """Else the attempt after it would come later than promised; there is one right at the end."""
    reported, error = tried(Reconnect(backoff=Backoff(first=1000.0, longest=2000.0), total=0.05), ConnectError("no"))
    assert isinstance(error, ConnectError)
    assert reported
    assert sum(delay for _, delay, _ in reported) <= 0.05


def test_closing_ends_a_delay_and_lets_no_other_attempt_begin() -> None:
    closing, attempts = SafeEvent(), []

    def attempt() -> None:
        attempts.append(1)
        raise ConnectError("no")

    with pytest.raises(ConnectError):
        retry(
            attempt,
            Reconnect(backoff=Backoff(first=1000.0, longest=2000.0)),
            closing=closing,
            report=lambda *_: closing.set(),
        )
    assert len(attempts) <= 2


@pytest.mark.parametrize(
    "wrong", [{"max_messages": 0}, {"max_bytes": 0}, {"max_messages": -1}, {"max_messages": True}, {"max_bytes": 1.5}]
)
def test_a_bound_is_a_whole_number_of_one_or_more(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ResendLimits(**wrong)


def test_true_is_the_usual_bounds_and_false_is_none() -> None:
    own = ResendLimits(max_messages=2)
    for wanted, limits in ((True, ResendLimits()), (False, None), (own, own)):
        policy = Reconnect(resend_unconfirmed=wanted)
        assert Config(addresses=addresses_of("stomp://localhost"), reconnect=policy).resend == limits
    assert Config(addresses=addresses_of("stomp://localhost")).resend is None


def test_bounds_travel_to_another_process() -> None:
    bounds = ResendLimits(max_messages=2, max_bytes=100)
    assert pickle.loads(pickle.dumps(bounds)) == bounds


def test_sessions_that_each_end_at_a_message_make_no_busy_loop(sessions: Sessions, calling: Calling) -> None:
    delays: list[float] = []

    class Hears(stompy.Listener):
        def on_reconnecting(self, event: stompy.ReconnectingEvent) -> None:
            delays.append(event.delay)

    conn, peer = sessions.connect(listeners=[Hears()], reconnect=Reconnect(backoff=Backoff(first=0.01, longest=0.02)))
    handled: list[str] = []
    subscribing = calling(lambda: conn.subscribe("/queue/a", lambda message: handled.append(message.text), ack="auto"))
    peer.receipt(peer.expect("SUBSCRIBE"))
    subscribing.result()
    for number in range(12):
        peer.deliver(str(number))
        until(partial(lambda count: len(handled) > count, number))
        peer.close()
        peer = sessions.next()
        peer.receipt(peer.expect("SUBSCRIBE"))
    until(lambda: len(delays) == 12)
    assert delays[0] == 0.0
    assert all(delay > 0.0 for delay in delays[1:])
