"""How the conditions of selectors are evaluated, with three-valued logic: `None` stands for unknown. Pure.

Source: Jakarta Messaging 3.1, 3.8.1.2, Null values.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = "str | int | float | bool | None"
Lookup: TypeAlias = "Callable[[str], Value]"
Node: TypeAlias = "Callable[[Lookup], Value]"

_NUMBER = re.compile(r"[+-]?(?:\d+|(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d{1,3})?|\d+[eE][+-]?\d{1,3})")


_WHOLE = re.compile(r"[+-]?\d{1,19}")


class SelectorError(ValueError):
    """A text is not a selector."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How selectors are evaluated, where brokers differ.

    Attributes:
        convert: the text of a header is compared with a number as the number it spells, and with a boolean alike.
            Headers of STOMP are text, so that without this `size > 5` is never true.
        activemq: as ActiveMQ and Artemis do, and JMS does not: a text is a whole number only beside one, of as many
            bits, and never one in arithmetic; missing headers are equal to each other and not to one that is there;
            whole numbers are not cut by a division; NOT comes before a comparison.
    """

    convert: bool = True
    activemq: bool = False


JMS = Evaluation()


def _condition(value: Value) -> bool | None:
    """Return what a value says as a condition; what is neither a boolean nor missing is not fulfilled."""
    return value if value is None or isinstance(value, bool) else False


def any_of(parts: list[Node]) -> Node:
    """Return the OR of conditions."""

    def evaluate(lookup: Lookup) -> Value:
        result: bool | None = False
        for part in parts:
            value = _condition(part(lookup))
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def all_of(parts: list[Node]) -> Node:
    """Return the AND of conditions."""

    def evaluate(lookup: Lookup) -> Value:
        result: bool | None = True
        for part in parts:
            value = _condition(part(lookup))
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def negated(part: Node) -> Node:
    """Return the NOT of a condition."""

    def evaluate(lookup: Lookup) -> Value:
        value = _condition(part(lookup))
        return None if value is None else not value

    return evaluate


# Comparing and calculating


def compared(left: Node, compare: Callable[[Any, Any], Any], right: Node, *, equality: bool, ways: Evaluation) -> Node:
    """Return a comparison of two values, for being equal or for their order."""
    unlike = equality and compare is operator.ne

    def evaluate(lookup: Lookup) -> Value:
        one, other = left(lookup), right(lookup)
        if one is None or other is None:
            unknown = not (ways.activemq and equality) or (one is None and other is not None)
            return None if unknown else (one is other) is not unlike
        if ways.convert:
            one, other = _alike(one, other, ways), _alike(other, one, ways)
        if _sort(one) is not _sort(other):
            return unlike
        if not equality and isinstance(one, bool):
            return False
        return bool(compare(one, other))

    return evaluate


def _sort(value: Value) -> type:
    return str if isinstance(value, str) else bool if isinstance(value, bool) else float


def _alike(value: Value, other: Value, ways: Evaluation) -> Value:
    """Return `value` as what `other` is, where it is a text that spells such a thing."""
    if not isinstance(value, str) or isinstance(other, str):
        return value
    if isinstance(other, bool):
        return {"true": True, "false": False}.get(value.lower(), value)
    if ways.activemq and isinstance(other, int):
        bits = 31 if abs(other) < 2**31 else 63
        return int(value) if _WHOLE.fullmatch(value) and -(2**bits) <= int(value) < 2**bits else value
    number = _number(value)
    return value if number is None else number


def _number(text: str) -> int | float | None:
    if len(text) > 40 or not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def in_of(value: Node, texts: frozenset[str]) -> Node:
    """Return whether a value is one of some texts."""

    def evaluate(lookup: Lookup) -> Value:
        text = value(lookup)
        return None if text is None else isinstance(text, str) and text in texts

    return evaluate


def calculated(first: Node, rest: list[tuple[str, Node]], *, ways: Evaluation) -> Node:
    """Return what signs and values make of a first value, from left to right."""
    convert = ways.convert and not ways.activemq

    def evaluate(lookup: Lookup) -> Value:
        result = _operand_of(first(lookup), convert)
        for sign, part in rest:
            value = _operand_of(part(lookup), convert)
            if result is None or value is None:
                return None
            result = _calculate(result, sign, value, cut=not ways.activemq)
        return result

    return evaluate


def _operand_of(value: Value, convert: bool) -> int | float | None:
    if isinstance(value, str):
        return _number(value) if convert else None
    return None if isinstance(value, bool) else value


def _calculate(left: int | float, sign: str, right: int | float, *, cut: bool) -> int | float | None:
    try:
        if sign == "+":
            return left + right
        if sign == "-":
            return left - right
        if sign == "*":
            return left * right
        if cut and isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)  # whole numbers are cut towards zero
            return quotient if (left < 0) == (right < 0) else -quotient
        return left / right
    except (ZeroDivisionError, OverflowError):
        return None


def pattern_test(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Return a test for LIKE that takes no longer than pattern times text, whatever they are."""
    pieces: list[str] = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise SelectorError("a LIKE pattern ends with its escape character")
            pieces[-1] += re.escape(literal)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    first, *others = [re.compile(piece, re.DOTALL) for piece in pieces]
    if not others:
        return lambda text: first.fullmatch(text) is not None
    *middle, _ = others
    last = re.compile(f"(?:{pieces[-1]})\\Z", re.DOTALL)
    length = len(re.sub(r"\\(.)", r"\1", pieces[-1], flags=re.DOTALL))

    def fits(text: str) -> bool:
        found = first.match(text)
        for piece in middle:
            found = None if found is None else piece.search(text, found.end())
        return found is not None and len(text) - length >= found.end() and bool(last.match(text, len(text) - length))

    return fits
