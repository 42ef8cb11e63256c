"""The bounds of what is sent again."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from stompy.connection.resend import Resend, resend_of
from stompy.errors import ConfigurationError


@pytest.mark.parametrize(
    "wrong", [{"messages": 0}, {"octets": 0}, {"messages": -1}, {"messages": True}, {"octets": 1.5}]
)
def test_a_bound_is_a_whole_number_of_one_or_more(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Resend(**wrong)


def test_true_is_the_usual_bounds_and_false_is_none() -> None:
    own = Resend(messages=2)
    assert (resend_of(True), resend_of(False), resend_of(own)) == (Resend(), None, own)


def test_bounds_travel_to_another_process() -> None:
    bounds = Resend(messages=2, octets=100)
    assert pickle.loads(pickle.dumps(bounds)) == bounds
