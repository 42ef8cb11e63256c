"""The policy of reopening a lost link."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from stompy.connection.reconnect import Reconnect, reconnect_of
from stompy.errors import ConfigurationError


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"first_delay": 0},
        {"first_delay": 2.0, "max_delay": 1.0},
        {"max_delay": math.inf},
        {"first_delay": math.nan},
        {"total": 0},
        {"total": math.inf},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Reconnect(**wrong)


def test_true_is_the_usual_policy_and_false_is_none() -> None:
    own = Reconnect(attempts=2)
    assert (reconnect_of(True), reconnect_of(False), reconnect_of(own)) == (Reconnect(), None, own)


def test_a_policy_travels_to_another_process() -> None:
    policy = Reconnect(attempts=2, total=5.0)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_the_first_wait_grows_with_the_links_that_were_in_vain_up_to_the_largest_delay() -> None:
    policy = Reconnect(first_delay=1.0, max_delay=8.0)
    assert [policy.first_wait(in_vain) for in_vain in (0, 1)] == [0.0, 0.0]
    for in_vain, bound in ((2, 1.0), (3, 2.0), (5, 8.0), (6, 8.0), (100_000, 8.0)):
        waits = [policy.first_wait(in_vain) for _ in range(200)]
        assert bound / 2 < max(waits) <= bound
        assert min(waits) < bound / 2
