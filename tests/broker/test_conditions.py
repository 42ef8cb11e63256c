"""The parts of selectors by themselves."""

from __future__ import annotations

import operator

import pytest

from stompy.broker.selector import JMS, Node, Value, all_of, any_of, compared, negated, pattern_test


def _constant(value: Value) -> Node:
    return lambda lookup: value


def _nothing(name: str) -> Value:
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (True, None, None, True),
        (False, None, False, None),
        (None, None, None, None),
        (True, False, False, True),
        ("text", True, False, True),
    ],
)
def test_and_and_or_know_three_values(left: Value, right: Value, both: Value, either: Value) -> None:
    parts = [_constant(left), _constant(right)]
    assert all_of(parts)(_nothing) is both
    assert any_of(parts)(_nothing) is either


def test_what_is_unknown_stays_so_when_it_is_negated() -> None:
    assert [negated(_constant(value))(_nothing) for value in (True, False, None)] == [False, True, None]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [("9", 9, True), (9.0, 9, True), ("9", "9.0", False), ("x", 9, False), ("true", True, True), ("1e400", 9, False)],
)
def test_a_text_is_compared_as_what_the_other_value_is(one: Value, other: Value, equal: bool) -> None:
    node = compared(_constant(one), operator.eq, _constant(other), equality=True, ways=JMS)
    assert node(_nothing) is equal


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a%b%c", "a-b-c", True),
        ("a%b%c", "acb", False),
        ("%ab", "aab", True),
        ("ab%ab", "ab", False),
        ("", "", True),
        ("_", "", False),
        ("%%", "", True),
        ("a.c", "abc", False),
        ("a%", "a\n", True),
    ],
)
def test_like(pattern: str, text: str, fits: bool) -> None:
    assert pattern_test(pattern, None)(text) is fits
