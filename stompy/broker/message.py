"""A message in the broker: its headers, which many messages share, and its body.

Guarded by the router's lock.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stompy.broker.profile import PLAIN, Profile, SendRequest
from stompy.broker.settings import MemoryBudget, excess
from stompy.frames.encoder import encode_lines
from stompy.frames.frame import Headers, Pairs, headers_from_head
from stompy.frames.grammar import Grammar, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.destinations import Target
    from stompy.broker.selector import Value

_COMMAND = "MESSAGE"

_TIMES = frozenset(("expires", "expiration", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"))
"""Headers that meant the first way of a message, and not that to the dead letters."""

_JMS = {
    "JMSCorrelationID": "correlation-id",
    "JMSDestination": "destination",
    "JMSReplyTo": "reply-to",
    "JMSType": "type",
}
"""Identifiers of selectors, and the headers that they stand for."""


@dataclass(slots=True, eq=False)
class Route:
    """Where messages go, and how their heads are written: the same for every SEND with the same meaning.

    Attributes:
        grammar: how the lines are written; the sender's.
        destination: as subscribers are to see it.
        target: by which the broker keeps its queue or topic.
        options: the requests of the SEND.
        length: frames have a `content-length`, also where they would not need it.
        own_length: the versions of subscribers for which that is so; others always get one.
        start: the first lines of a head.
        end: lines after those of the sender.
    """

    grammar: Grammar
    destination: str
    target: str
    options: SendRequest = PLAIN
    length: bool = True
    own_length: frozenset[Version] = frozenset(Version)
    start: bytes = b""
    end: bytes = b""

    def to(self, target: Target, start: bytes | None) -> Route:
        """Return the route of messages that differ in their target alone, where nothing else is at the start of heads.

        Args:
            target: the other target.
            start: the line of its name, where it is known.

        Raises:
            LocalProtocolError: its name cannot be written in that grammar.
        """
        start = start or _lines([("destination", target.shown)], self.grammar)
        # By `replace` it would take three times as long.
        shown, name, options = target.shown, target.name, self.options
        return Route(self.grammar, shown, name, options, self.length, self.own_length, start, self.end)


class MessageHead:
    """The header lines of a message, which messages with the same headers share.

    The lines are kept in the sender's grammar; for a subscriber of another version they are split and encoded again.

    Args:
        route: where the message goes.
        lines: further header lines, as the route's grammar writes them, each with its line end.
        body_size: bytes of the bodies that it is for.
    """

    __slots__ = ("_headers", "_other", "body_size", "data", "excess", "route", "size")

    def __init__(self, route: Route, lines: bytes, body_size: int) -> None:
        self.route = route
        self.body_size = body_size
        if (body_size and (route.length or route.grammar.version not in route.own_length)) or route.grammar.draft:
            self.data = b"%b%b%bcontent-length:%d\n\n" % (route.start, lines, route.end, body_size)
        else:
            self.data = b"%b%b%b\n" % (route.start, lines, route.end)
        self.size = len(self.data)
        self.excess = excess(self.size + len(route.destination))
        """What of it is more than usual."""
        self._headers: Headers | None = None
        self._other: tuple[Grammar, bytes] | None = None

    def encoded(self, grammar: Grammar) -> bytes:
        """Return the lines and the empty line after them in `grammar`.

        Raises:
            LocalProtocolError: a header cannot be written in `grammar`, as a line end in 1.0.
        """
        if grammar is self.route.grammar:
            return self.data
        if self._other is None or self._other[0] is not grammar:
            route = replace(self.route, grammar=grammar, start=b"", end=b"")
            self._other = (grammar, MessageHead(route, _lines(self.pairs(), grammar), self.body_size).data)
        return self._other[1]

    def lookup(self, name: str) -> Value:
        """Return the value of an identifier in a selector."""
        header = self._split().get
        if name == "JMSPriority":
            return self.route.options.priority
        if name == "JMSDeliveryMode":
            return "PERSISTENT" if self.route.options.persistent else "NON_PERSISTENT"
        if name in ("JMSTimestamp", "JMSExpiration"):
            value = header("timestamp" if name == "JMSTimestamp" else "expires")
            return int(value) if value is not None and value.isdigit() and len(value) < 20 else None
        return header(_JMS.get(name, name))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the headers without `content-length`."""
        return [pair for pair in self._split().pairs if pair[0] != "content-length"]

    def moved(self, destination: str, extra: Pairs, *, without: Iterable[str] = (), keeps: bool = False) -> MessageHead:
        """Return the head of a copy for another queue, in which `extra` replaces headers of the same names.

        Args:
            destination: the queue.
            extra: further headers.
            without: headers to leave out.
            keeps: it has the times and the group of this one.
        """
        replaced = {"destination", *without, *(name for name, _ in extra)}.union(() if keeps else _TIMES)
        pairs = [*extra, *(pair for pair in self.pairs() if pair[0] not in replaced)]
        return MessageHead(_moved(self.route, destination, keeps), _lines(pairs, self.route.grammar), self.body_size)

    def _split(self) -> Headers:
        if self._headers is None:
            self._headers = headers_from_head(b"\n" + self.data, self.route.grammar, _COMMAND)
        return self._headers


class StoredMessage:
    """The content of a SEND, ready to be written: the same for subscribers of all versions.

    Args:
        shared: its headers.
        body: bytes, never changed.
        budget: has counted it, and the excess of its head as state; it counts no more when it is gone.
    """

    __slots__ = ("_budget", "body", "shared", "size", "transformation")

    def __init__(self, shared: MessageHead, body: bytes, budget: MemoryBudget | None = None) -> None:
        self.shared = shared
        self.body = body
        self.size = shared.size + len(body)
        """Bytes that count towards the limits."""
        self._budget = budget
        self.transformation: str | None = None
        """The header that the last subscription which asked for one has written into it."""

    def __del__(self) -> None:
        # The last reference goes wherever a message ends: acknowledged, refused, aborted, dropped with its session.
        budget = self._budget
        if budget is not None:
            budget.give_back(self.size, self.shared.excess)

    @property
    def destination(self) -> str:
        """As subscribers see it."""
        return self.shared.route.destination

    @property
    def target(self) -> str:
        """By which the broker keeps its queue or topic."""
        return self.shared.route.target

    @property
    def options(self) -> SendRequest:
        """The requests of the SEND."""
        return self.shared.route.options

    def with_head(self, head: MessageHead) -> StoredMessage:
        """Return a message with the same body, which is about to take the place of this one."""
        if self._budget is not None:
            self._budget.take(head.size + len(self.body), head.excess, force=True)  # room for it is there
        return StoredMessage(head, self.body, self._budget)

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name, without the headers of a single delivery."""
        return dict(Headers(self.shared.pairs()).items())

    def __repr__(self) -> str:
        return f"<StoredMessage {self.destination!r} {len(self.body)} bytes>"


def route_to(
    destination: str,
    grammar: Grammar,
    *,
    target: str | None = None,
    options: SendRequest = PLAIN,
    length: bool = True,
    own_length: frozenset[Version] = frozenset(Version),
    first: Iterable[tuple[str, str]] = (),
    last: Iterable[tuple[str, str]] = (),
) -> Route:
    """Return the route of messages whose heads have these headers first, after the destination, and these last.

    Raises:
        LocalProtocolError: a header cannot be written in that grammar.
    """
    start = _lines([("destination", destination), *first], grammar)
    end = _lines(last, grammar)
    return Route(grammar, destination, target or destination, options, length, own_length, start, end)


@functools.lru_cache(maxsize=64)
def _moved(route: Route, destination: str, keeps: bool) -> Route:
    options = route.options
    if options is not PLAIN and not keeps:
        options = replace(options, expires=None, due=None, group=None, dedupe_id=None)
    return route_to(destination, route.grammar, options=options, length=route.length, own_length=route.own_length)


def passed_on(raw: bytes, grammar: Grammar, rules: Profile, without: Iterable[str] = ()) -> bytes:
    """Return the header lines of a SEND that its MESSAGE frames have, each with its line end.

    Lines that the broker would write as they are stay bytes, so that a header that differs each time costs little.

    Args:
        raw: the checked header lines, which start and end with LF.
        grammar: the sender's.
        rules: of the broker for MESSAGE frames.
        without: the names of headers that the broker writes itself.

    Raises:
        LocalProtocolError: a header cannot be written in that grammar.
    """
    lines = lines_named(rules.dropped_headers).sub(b"", raw)
    if not without and _as_written(lines, grammar, rules):
        return lines[1:]
    dropped = rules.dropped_headers.union(without)
    pairs = [pair for pair in headers_from_head(raw, grammar, "SEND").pairs if pair[0] not in dropped]
    if rules.repeated_headers != "all":
        last = rules.repeated_headers == "last before 1.2" and grammar.version is not Version.V1_2
        kept = dict(pairs if last else reversed(pairs))
        pairs = list(kept.items())[:: 1 if last else -1]
    if rules.passed_value is not None:
        pairs = [(name, rules.passed_value(value, grammar.version)) for name, value in pairs]
    return _lines(pairs, grammar)


def _as_written(lines: bytes, grammar: Grammar, rules: Profile) -> bool:
    """Whether the broker would write header lines as they came: no escapes, padding or repetition."""
    # By `find`, as CPython 3.11 first makes the text of an error where `in` is asked for bytes in bytes.
    if lines.count(b":") != lines.count(b"\n") - 1 or lines.find(b"\\") >= 0 or grammar.draft:
        return False
    if grammar.trim and (lines.find(b": ") >= 0 or lines.find(b" \n") >= 0):
        return False
    if rules.repeated_headers != "all" and lines.count(b"\n") > 1 + len(set(_NAME.findall(lines))):
        return False
    return lines.find(b"\r") < 0 and (rules.passed_value is None or lines.isascii())


_NAME = re.compile(rb"\n([^:\n]+)")


@functools.cache
def lines_named(names: frozenset[str]) -> re.Pattern[bytes]:
    """Return a pattern for the header lines of these names, each from the line end before it."""
    return re.compile(rb"\n(?:%b):[^\n]*" % b"|".join(sorted(re.escape(name.encode()) for name in names)))


def _lines(pairs: Iterable[tuple[str, str]], grammar: Grammar) -> bytes:
    return encode_lines(_COMMAND, pairs, grammar=grammar)
