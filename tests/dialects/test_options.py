"""What a caller may ask of a broker beyond the specification."""

from __future__ import annotations

from typing import Any

import pytest

from stompy.dialects.options import SEND_OPTIONS, SubscribeOptions, check_send_options
from stompy.errors import ConfigurationError


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 10},
        {"priority": -1},
        {"priority": True},
        {"priority": "4"},
        {"expires": 0},
        {"expires": -1},
        {"expires": 1e10},
        {"expires": True},
        {"expires": float("nan")},
        {"delay": 0},
        {"delay": "1"},
        {"persistent": "yes"},
        {"persistent": 1},
        {"group": ""},
        {"group": 5},
        {"dedupe_id": ""},
        {"content_type": 5},
        {"content_length": 1},
        {"headers": ["a"]},
        {"prioritty": 4},
    ],
)
def test_a_message_is_not_sent_with_a_value_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        check_send_options(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefetch": 0},
        {"prefetch": -1},
        {"prefetch": 1.0},
        {"prefetch": True},
        {"prefetch": "5"},
        {"selector": ""},
        {"durable": ""},
        {"durable": True},
        {"browse": "no"},
        {"exclusive": 1},
    ],
)
def test_nothing_is_subscribed_to_with_a_value_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        SubscribeOptions(**wrong)


@pytest.mark.parametrize("other", [{"durable": "me"}, {"exclusive": True}])
def test_browsing_goes_with_nothing_that_takes_messages(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="browse reads"):
        SubscribeOptions(browse=True, **other)


def test_only_what_was_given_is_asked() -> None:
    assert SubscribeOptions().asked() == {}
    check_send_options(dict.fromkeys(SEND_OPTIONS))
    check_send_options({"persistent": False, "priority": 0})
    assert SubscribeOptions(browse=True, prefetch=3).asked() == {"browse": True, "prefetch": 3}
