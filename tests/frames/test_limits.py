from __future__ import annotations

from typing import Any

import pytest

from stompy.errors import ConfigurationError
from stompy.frames.limits import DEFAULT_LIMITS, Limits


@pytest.mark.requirement("LIM-01")
def test_there_is_a_limit_for_headers_lines_and_bodies() -> None:
    assert Limits() == DEFAULT_LIMITS
    assert (DEFAULT_LIMITS.max_headers, DEFAULT_LIMITS.max_header_line) == (1_000, 65_536)
    assert (DEFAULT_LIMITS.max_header_block, DEFAULT_LIMITS.max_first_body) == (1024 * 1024, 65_536)
    assert DEFAULT_LIMITS.max_body == 128 * 1024 * 1024
    assert Limits(max_headers=0, max_header_line=0, max_body=0).max_body == 0


@pytest.mark.parametrize("name", ["max_headers", "max_header_line", "max_header_block", "max_body", "max_first_body"])
@pytest.mark.parametrize("value", [-1, 1.5, "1", None, True])
def test_a_limit_is_a_whole_number(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number"):
        Limits(**{name: value})


def test_the_body_of_a_first_frame_has_the_smaller_of_two_limits() -> None:
    assert Limits(max_first_body=5, max_body=9).body(first=True) == ("max_first_body", 5)
    assert Limits(max_first_body=5, max_body=9).body(first=False) == ("max_body", 9)
    assert Limits(max_first_body=5, max_body=3).body(first=True) == ("max_body", 3)
