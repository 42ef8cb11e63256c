"""Selectors, against examples and against a reference evaluator that shares no code with them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.broker.selector import MAX_DEPTH, MAX_LENGTH, Evaluation, Selector, SelectorError, compiled

HEADERS = {"size": "9", "kind": "bc", "flag": "true", "half": "0.5", "empty": "", "a": "3", "b": "4", "quote": "it's"}


@pytest.mark.parametrize(
    "text",
    [
        "size > 5",
        "size = 9 AND kind = 'bc'",
        "size = '9'",
        "size BETWEEN 8 AND 10",
        "size NOT BETWEEN 1 AND 8",
        "kind LIKE 'b%'",
        "kind LIKE '_c'",
        "kind NOT LIKE 'c%'",
        "kind LIKE 'b!c' ESCAPE '!'",
        "kind IN ('a', 'bc')",
        "kind not in ('a', 'b')",
        "missing IS NULL",
        "kind IS NOT NULL",
        "flag = TRUE",
        "flag <> false",
        "size = 9.0 AND size < 1e1 AND size > 0x8 AND size < 012",
        "half * 2 = 1 AND -half = -0.5",
        "a + b * 2 = 11 AND (a + b) * 2 = 14",
        "7 / 2 = 3 AND -7 / 2 = -3 AND 7.0 / 2 = 3.5",
        "quote = 'it''s'",
        "kind <> 5",
        "NOT (kind = 5)",
        "missing = 1 OR size = 9",
        "empty = ''",
        "empty LIKE '%'",
        "a < b",
    ],
)
def test_a_condition_that_holds(text: str) -> None:
    assert Selector(text).matches(HEADERS.get)


@pytest.mark.parametrize(
    "text",
    [
        "size > 9",
        "a-b = 'x'",
        "missing = 1",
        "NOT (missing = 1)",
        "missing = 1 AND size = 9",
        "missing <> 1",
        "missing LIKE '%'",
        "NOT (missing IN ('a'))",
        "missing BETWEEN 1 AND 2",
        "1 / 0 = 1 OR 1 / 0 <> 1",
        "kind > 5",
        "kind LIKE 'b'",
        "kind LIKE '%c%c'",
        "kind",
        "flag",
        "TRUE > FALSE OR size < flag",
        "kind + 1 = 1",
    ],
)
def test_a_condition_that_does_not_hold(text: str) -> None:
    try:
        assert not Selector(text).matches(HEADERS.get)
    except SelectorError:
        assert text.startswith("TRUE >")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "(",
        "a >",
        "= 3",
        "a b",
        "a = 'x",
        "a IN ()",
        "a IN (3)",
        "a LIKE 3",
        "a ! b",
        "a LIKE 'x!' ESCAPE '!'",
        "a LIKE 'x' ESCAPE 'ab'",
        "'x' < 3",
        "a > TRUE",
        "a NOT 3",
        "a BETWEEN 1",
        "a IS 3",
        "09 = 9",
        "a = 1)",
        "a,b",
    ],
)
def test_what_is_not_a_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        Selector(text)


def test_without_conversion_a_header_is_text() -> None:
    holds = [
        text
        for text in ("size > 5", "size = '9'", "kind LIKE 'b%'")
        if Selector(text, Evaluation(convert=False)).matches(HEADERS.get)
    ]
    assert holds == ["size = '9'", "kind LIKE 'b%'"]


def test_a_text_is_compiled_once() -> None:
    assert compiled("a = 1") is compiled("a = 1")
    assert compiled("a = 1") is not compiled("a = 1", Evaluation(convert=False))


def test_length_and_depth_are_bounded() -> None:
    long = " OR ".join(["x=1"] * 580)
    assert len(long) <= MAX_LENGTH
    assert not Selector(long).matches(HEADERS.get)
    with pytest.raises(SelectorError, match="characters"):
        Selector("a" * (MAX_LENGTH + 1))
    for opening in ("(", "NOT ", "-", "NOT ("):
        with pytest.raises(SelectorError, match="levels"):
            Selector(opening * (MAX_DEPTH + 1) + "a")
    chain = "1" + "+1" * 2000
    assert Selector(f"{chain} = 2001").matches(HEADERS.get)


def test_a_like_pattern_costs_no_more_than_its_length_times_that_of_the_text() -> None:
    hostile = Selector("a LIKE '" + "%a" * 1000 + "%b'")
    assert not hostile.matches({"a": "a" * 5000}.get)


# Against a reference.

Expression = Any
"""Tuples: the operator first, then its operands."""

NAMES = ["n", "m", "t", "u", "absent"]
texts = st.sampled_from(["a", "b", "ab", "%", "it's", "5", "-2", "1.5", "true"])
numbers = st.one_of(st.integers(-9, 9), st.sampled_from([0.5, 1.5, 2.0, -2.5]))


def sums(depth: int = 2) -> st.SearchStrategy[Expression]:
    leaves = st.one_of(st.tuples(st.just("name"), st.sampled_from(NAMES)), st.tuples(st.just("number"), numbers))
    if not depth:
        return leaves
    return st.one_of(leaves, st.tuples(st.sampled_from("+-*/"), sums(depth - 1), sums(depth - 1)))


named = st.tuples(st.just("name"), st.sampled_from(NAMES))
comparisons = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), sums(), sums()),
    st.tuples(
        st.sampled_from(["=", "<>"]),
        st.tuples(st.just("name"), st.sampled_from(NAMES)),
        st.tuples(st.just("text"), texts),
    ),
    st.tuples(st.just("between"), sums(1), sums(1), sums(1)),
    st.tuples(st.just("null"), st.sampled_from(NAMES)),
    st.tuples(st.just("in"), st.sampled_from(NAMES), st.lists(texts, min_size=1, max_size=3)),
    st.tuples(st.just("like"), st.sampled_from(NAMES), st.text("ab%_5", max_size=5)),
)
conditions = st.recursive(
    comparisons,
    lambda parts: st.one_of(st.tuples(st.sampled_from(["and", "or"]), parts, parts), st.tuples(st.just("not"), parts)),
    max_leaves=8,
)


def written(node: Expression) -> str:
    """Return an expression as a selector."""
    head, *rest = node
    if head in ("name", "number"):
        return f"({rest[0]})" if head == "number" and rest[0] < 0 else str(rest[0])
    if head == "text":
        return _quoted(rest[0])
    if head == "null":
        return f"{rest[0]} IS NULL"
    if head == "in":
        return f"{rest[0]} IN ({', '.join(map(_quoted, rest[1]))})"
    if head == "like":
        return f"{rest[0]} LIKE {_quoted(rest[1])}"
    if head == "between":
        return "{} BETWEEN {} AND {}".format(*map(written, rest))
    if head == "not":
        return f"NOT ({written(rest[0])})"
    return (
        f"({written(rest[0])}) {head} ({written(rest[1])})"
        if head in ("and", "or")
        else (f"({written(rest[0])} {head} {written(rest[1])})")
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def truth(node: Expression, headers: dict[str, str]) -> Any:
    """Return the value of an expression: `None` is unknown."""
    head, *rest = node
    if head == "name":
        return headers.get(rest[0])
    if head in ("number", "text"):
        return rest[0]
    if head == "null":
        return rest[0] not in headers
    if head == "in":
        return None if rest[0] not in headers else headers[rest[0]] in rest[1]
    if head == "like":
        regex = "".join({"%": ".*", "_": "."}.get(char, re.escape(char)) for char in rest[1])
        return None if rest[0] not in headers else re.fullmatch(regex, headers[rest[0]], re.DOTALL) is not None
    values = [truth(part, headers) for part in rest]
    if head == "not":
        return None if values[0] is None else not values[0]
    if head == "and":
        return False if False in values else None if None in values else True
    if head == "or":
        return True if True in values else None if None in values else False
    if head == "between":
        return truth(("and", (">=", rest[0], rest[1]), ("<=", rest[0], rest[2])), headers)
    return _arithmetic(head, *values) if head in "+-*/" else _comparison(head, *values)


def _spelled(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    left, right = _spelled(left), _spelled(right)
    if left is None or right is None or (sign == "/" and right == 0):
        return None
    if sign == "/" and isinstance(left, int) and isinstance(right, int):
        return int(left / right)
    calculate: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }
    return calculate[sign](left, right)


def _comparison(sign: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(left, str) != isinstance(right, str):
        one, other = _spelled(left), _spelled(right)
        if one is None or other is None:
            return sign == "<>"
        left, right = one, other
    order = (left > right) - (left < right)
    return order in {"=": (0,), "<>": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}[sign]


@given(conditions, st.dictionaries(st.sampled_from(NAMES[:4]), texts))
def test_it_agrees_with_the_reference(condition: Expression, headers: dict[str, str]) -> None:
    assert Selector(written(condition)).matches(headers.get) is (truth(condition, headers) is True)
    assert Selector(f"NOT ({written(condition)})").matches(headers.get) is (truth(condition, headers) is False)


@given(st.text("ab'()<>=+-*/,.0129 \n%_$NOTANDRILKEB", max_size=60))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    with contextlib.suppress(SelectorError):
        Selector(text).matches(HEADERS.get)


@pytest.mark.parametrize(
    ("text", "jms", "activemq"),
    [
        ("half < 1", True, False),
        ("half < 1.0", True, True),
        ("size = 9", True, True),
        ("missing = other", False, True),
        ("size <> missing", False, True),
        ("missing <> size", False, False),
        ("7 / 2 = 3.5", False, True),
        ("a + b = 7", True, False),
        ("-a = -3", True, False),
        ("+a = 3", True, True),
        ("NOT size = 8", True, False),
        ("NOT (size = 8)", True, True),
        ("kind NOT BETWEEN 1 AND 8", False, False),
    ],
)
def test_activemq_evaluates_in_a_way_of_its_own(text: str, *, jms: bool, activemq: bool) -> None:
    assert Selector(text).matches(HEADERS.get) is jms
    assert Selector(text, Evaluation(activemq=True)).matches(HEADERS.get) is activemq
