"""Selectors: conditions on headers, in the SQL-92 subset of the Java Message Service.

Pure: text in, a function of headers out. Logic has three values: `None` stands for unknown, as a header that is missing
makes a comparison, and a message is selected only where the condition is true.

Source: Jakarta Messaging 3.1, 3.8, Message Selection, and 3.8.1.2, Null values.
"""

from __future__ import annotations

import fnmatch
import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

Value: TypeAlias = "str | int | float | bool | None"
Lookup: TypeAlias = "Callable[[str], Value]"
Node: TypeAlias = "Callable[[Lookup], Value]"
T = TypeVar("T")

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
            bits, and never one in arithmetic; missing headers are equal to each other and not to present ones;
            whole numbers are not cut by a division; NOT comes before a comparison.
        unknown: identifiers of JMS that have no value.
        message_id: what stands for the `JMSMessageID` of every message.
    """

    convert: bool = True
    activemq: bool = False
    unknown: frozenset[str] = frozenset()
    message_id: str | None = None


JMS = Evaluation()


def _condition(value: Value) -> bool | None:
    """Return a value as a condition; a value that is neither a boolean nor missing is not fulfilled."""
    return value if value is None or isinstance(value, bool) else False


def joined(parts: Sequence[Node], *, decisive: bool) -> Node:
    """Return a condition that one part alone decides where it is `decisive`; without one, an unknown part does."""
    if len(parts) == 1:
        return parts[0]

    def evaluate(lookup: Lookup) -> Value:
        result: bool | None = not decisive
        for part in parts:
            value = _condition(part(lookup))
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


any_of = functools.partial(joined, decisive=True)
"""Return the OR of conditions."""
all_of = functools.partial(joined, decisive=False)
"""Return the AND of conditions."""


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
    """Return `value` with the type of `other`, if it is a text that spells such a value."""
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


def tested(value: Node, fits: Callable[[str], bool]) -> Node:
    """Return whether a value is a text that fits."""

    def evaluate(lookup: Lookup) -> Value:
        text = value(lookup)
        return None if text is None else isinstance(text, str) and fits(text)

    return evaluate


def calculated(parts: list[tuple[str, Node]], *, ways: Evaluation) -> Node:
    """Return the result of values, each with the sign before it, from left to right."""
    (_, first), *rest = parts
    if not rest:
        return first
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


_RESULTS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _calculate(left: int | float, sign: str, right: int | float, *, cut: bool) -> Any:
    try:
        if sign in _RESULTS:
            return _RESULTS[sign](left, right)
        if cut and isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)  # whole numbers are cut towards zero
            return quotient if (left < 0) == (right < 0) else -quotient
        return left / right
    except (ZeroDivisionError, OverflowError):
        return None


def pattern_test(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Return a test for LIKE that takes no longer than pattern times text, as the patterns of `fnmatch` do."""
    pieces, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise SelectorError("a LIKE pattern ends with its escape character")
            pieces += _literally(literal)
        else:
            pieces += {"%": "*", "_": "?"}.get(character) or _literally(character)
    matches = re.compile(fnmatch.translate(pieces)).match
    return lambda text: matches(text) is not None


def _literally(character: str) -> str:
    return f"[{character}]" if character in "*?[" else character


MAX_LENGTH = 4096
"""Characters of a selector."""
MAX_DEPTH = 30
"""Parentheses, NOTs and signs within each other."""

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>'(?:[^']|'')*')
    |(?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?|\d+[eE][+-]?\d+[fFdD]?|\d+[fFdD])
    |(?P<int>0[xX][0-9a-fA-F]+|\d+)[lL]?
    |(?P<word>[^\W\d][\w$.]*|[$][\w$.]*)
    |(?P<sign><>|<=|>=|[=<>()+\-*/,])
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset(("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"))
_EQUALITY: dict[str, Callable[[Any, Any], Any]] = {"=": operator.eq, "<>": operator.ne}
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge} | _EQUALITY


class Selector:
    """A compiled selector.

    Args:
        text: the condition.
        ways: how it is evaluated.

    Raises:
        SelectorError: it is not a selector, or too long or too deep.
    """

    __slots__ = ("_root", "equality", "text")

    def __init__(self, text: str, ways: Evaluation = JMS) -> None:
        self.text = text
        parser = _Parser(text, ways)
        self._root = parser.parse()
        self.equality = parser.equality
        """Name and value, where the whole condition is that this header has this value."""

    def matches(self, lookup: Lookup) -> bool:
        """Whether the condition is true; `lookup` returns the value of an identifier, or `None`."""
        return self._root(lookup) is True

    def __repr__(self) -> str:
        return f"<Selector {self.text!r}>"


@functools.lru_cache(maxsize=1024)
def compiled(text: str, ways: Evaluation = JMS) -> Selector:
    """Return the selector of a text: the same object for the same text, while it is remembered."""
    return Selector(text, ways)


class _Parser:
    """A parser by recursive descent, one method for each level of precedence."""

    def __init__(self, text: str, ways: Evaluation) -> None:
        if len(text) > MAX_LENGTH:
            raise SelectorError(f"a selector has at most {MAX_LENGTH} characters")
        self._ways = ways
        self._tokens = _tokens(text, ways)
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._or()
        if self._next[0] != "end":
            raise self._unexpected()
        return node

    @property
    def equality(self) -> tuple[str, str] | None:
        """See `Selector`; the identifiers of JMS, which are not all texts, are left out."""
        if len(self._tokens) != 4:
            return None
        (kind, name), sign, (other, text), _ = self._tokens
        if kind != "word" or name.startswith("JMS") or sign != ("sign", "=") or other != "text":
            return None
        return name, _unquoted(text)

    # Tokens

    @property
    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _accept(self, *wanted: str) -> str | None:
        kind, text = self._next
        if kind not in ("keyword", "sign") or text not in wanted:
            return None
        self._at += 1
        return text

    def _expect(self, wanted: str) -> None:
        if self._accept(wanted) is None:
            raise self._unexpected()

    def _unexpected(self) -> SelectorError:
        kind, text = self._next
        return SelectorError("the selector ends too early" if kind == "end" else f"unexpected {text!r} in the selector")

    def _deeper(self, part: Callable[[], Node]) -> Node:
        """Return a part that is one level below this one."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SelectorError(f"a selector has at most {MAX_DEPTH} levels")
        node = part()
        self._depth -= 1
        return node

    # Conditions

    def _or(self) -> Node:
        return any_of([part for _, part in self._list(self._and, "OR")])

    def _and(self) -> Node:
        return all_of([part for _, part in self._list(self._not, "AND")])

    def _list(self, part: Callable[[], T], *signs: str) -> list[tuple[str, T]]:
        """Return parts with these signs between them, each with the sign before it."""
        found = [("", part())]
        while sign := self._accept(*signs):
            found.append((sign, part()))
        return found

    def _not(self) -> Node:
        return self._comparison() if self._ways.activemq else self._negated(self._not) or self._comparison()

    def _negated(self, part: Callable[[], Node]) -> Node | None:
        return negated(self._deeper(part)) if self._accept("NOT") else None

    def _comparison(self) -> Node:
        start, left = self._at, self._sum()
        if sign := self._accept(*_ORDER):
            second, right = self._at, self._sum()
            if sign not in _EQUALITY:
                self._refuse_literals(start, second)
            return compared(left, _ORDER[sign], right, equality=sign in _EQUALITY, ways=self._ways)
        if self._accept("IS"):
            wanted = self._accept("NOT") is None
            self._expect("NULL")
            return lambda lookup: (left(lookup) is None) is wanted
        negative = self._accept("NOT") is not None
        if self._accept("BETWEEN"):
            return self._between(left, negative=negative)
        if self._accept("IN"):
            self._expect("(")
            texts = frozenset(text for _, text in self._list(self._text, ","))
            self._expect(")")
            node = tested(left, texts.__contains__)
        elif self._accept("LIKE"):
            node = self._like(left)
        elif negative:
            raise self._unexpected()
        else:
            return left
        return negated(node) if negative else node

    def _refuse_literals(self, *places: int) -> None:
        """Refuse to order values without an order: a text or a boolean written in the selector."""
        for place in places:
            kind, text = self._tokens[place]
            if kind == "text" or text in ("TRUE", "FALSE"):
                raise SelectorError(f"{text} can be compared by = and <> only")

    def _between(self, value: Node, *, negative: bool) -> Node:
        low = self._sum()
        self._expect("AND")
        high = self._sum()
        order = functools.partial(compared, equality=False, ways=self._ways)
        if negative:
            return any_of([order(value, operator.lt, low), order(value, operator.gt, high)])
        return all_of([order(value, operator.ge, low), order(value, operator.le, high)])

    def _text(self) -> str:
        kind, text = self._next
        if kind != "text":
            raise self._unexpected()
        self._at += 1
        return _unquoted(text)

    def _like(self, value: Node) -> Node:
        pattern = self._text()
        escape = self._text() if self._accept("ESCAPE") else None
        if escape is not None and len(escape) != 1:
            raise SelectorError("ESCAPE takes one character")
        return tested(value, pattern_test(pattern, escape))

    # Arithmetic

    def _sum(self) -> Node:
        return calculated(self._list(self._product, "+", "-"), ways=self._ways)

    def _product(self) -> Node:
        return calculated(self._list(self._signed, "*", "/"), ways=self._ways)

    def _signed(self) -> Node:
        if self._ways.activemq and (node := self._negated(self._signed)) is not None:
            return node
        sign = self._accept("+", "-")
        if sign is None:
            return self._operand()
        node = self._deeper(self._signed)
        if sign == "+" and self._ways.activemq:
            return node
        return calculated([("", lambda lookup: 0), (sign, node)], ways=self._ways)

    def _operand(self) -> Node:
        if self._accept("("):
            node = self._deeper(self._or)
            self._expect(")")
            return node
        kind, text = self._next
        if kind in ("end", "sign") or (kind == "keyword" and text not in ("TRUE", "FALSE")):
            raise self._unexpected()
        self._at += 1
        if text == "XPATH" and self._ways.activemq and self._next[0] == "text":
            self._at += 1
            return lambda lookup: False  # of a body that is no XML
        if text in self._ways.unknown:
            return lambda lookup: None
        if text == "JMSMessageID" and self._ways.message_id is not None:
            kind, text = "text", f"'{self._ways.message_id}'"
        if kind == "word":
            return lambda lookup: lookup(text)
        value = _literal(kind, text)
        return lambda lookup: value


def _tokens(text: str, ways: Evaluation) -> list[tuple[str, str]]:
    found = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or (ways.activemq and match["word"] and "." in match["word"]):
            raise SelectorError(f"unexpected {text[place : place + 20]!r}")
        kind = match.lastgroup or ""
        token = match[kind]
        if kind == "word" and token.upper() in _KEYWORDS:
            kind, token = "keyword", token.upper()
        found.append((kind, token))
        place = match.end()
    return [*found, ("end", "")]


def _literal(kind: str, text: str) -> Value:
    if kind == "text":
        return _unquoted(text)
    if kind == "float":
        return float(text.rstrip("fFdD"))
    if kind == "int":
        octal = len(text) > 1 and text[0] == "0" and text.isdigit()
        try:
            return int(text, 8 if octal else 0 if text[:2] in ("0x", "0X") else 10)
        except ValueError:
            raise SelectorError(f"{text} is not a number") from None
    return text == "TRUE"


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
