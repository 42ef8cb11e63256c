from __future__ import annotations

import math
import pickle

import pytest

from stompy.connection.reconnect import Reconnect, reconnect_of
from stompy.errors import ConfigurationError


def test_true_is_the_usual_policy_and_false_none() -> None:
    own = Reconnect(attempts=3)
    assert reconnect_of(True) == Reconnect()
    assert reconnect_of(False) is None
    assert reconnect_of(None) is None
    assert reconnect_of(own) is own


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"first_delay": 0.0},
        {"first_delay": 2.0, "max_delay": 1.0},
        {"max_delay": math.inf},
        {"total": 0.0},
        {"total": math.inf},
    ],
)
def test_senseless_policies_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Reconnect(**wrong)  # type: ignore[arg-type]


def test_a_policy_can_be_pickled() -> None:
    policy = Reconnect(attempts=3, total=9.0)
    assert pickle.loads(pickle.dumps(policy)) == policy
