"""A message in the broker: its headers, which many messages share, and its body.

Guarded by the router's lock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.profile import PLAIN
from stompy.broker.settings import excess
from stompy.frames.encoder import encode_lines
from stompy.frames.frame import Headers, Pairs, headers_from_head
from stompy.frames.grammar import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.profile import DeliveryRules, SendRequest
    from stompy.broker.selector import Value
    from stompy.broker.settings import MemoryBudget
    from stompy.frames.grammar import Grammar

_COMMAND = "MESSAGE"

# The broker writes these itself or they speak of the SEND alone, so that a sender's own must not show (SRV-07).
NOT_PASSED_ON = frozenset(
    [
        "destination",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "redelivery-count",
        "browser",
        "receipt",
        "transaction",
        "content-length",
    ]
)
_TIMES = frozenset(("expires", "expiration", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"))
"""Headers that meant the first way of a message, and not that to the dead letters."""

_JMS = {
    "JMSCorrelationID": "correlation-id",
    "JMSDestination": "destination",
    "JMSReplyTo": "reply-to",
    "JMSType": "type",
}
"""Identifiers of selectors, and the headers that they stand for."""


class MessageHead:
    """The header lines of a message, which messages with the same headers share.

    The lines are kept in the sender's grammar; for a subscriber of another version they are split and encoded again.

    Args:
        pairs: the headers to pass on, without destination and content-length.
        grammar: how the lines are written; the sender's.
        body_size: bytes of the bodies that it is for.
        destination: as subscribers are to see it.
        target: by which the broker keeps its queue or topic.
        options: the requests of its SEND.
        length: frames have a `content-length`, also where they would not need it.

    Raises:
        LocalProtocolError: a header cannot be written in that grammar.
    """

    __slots__ = (
        "_headers",
        "_other",
        "body_size",
        "data",
        "destination",
        "excess",
        "grammar",
        "length",
        "options",
        "size",
        "target",
    )

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        grammar: Grammar,
        *,
        body_size: int,
        destination: str,
        target: str,
        options: SendRequest = PLAIN,
        length: bool = True,
    ) -> None:
        self.body_size = body_size
        self.length = length
        self.data = self._lines([("destination", destination), *pairs], grammar)
        self.size = len(self.data)
        self.destination = destination
        self.target = target
        self.options = options
        self.excess = excess(len(self.data) + len(destination))
        """What of it is more than usual."""
        self.grammar = grammar
        self._headers: Headers | None = None
        self._other: tuple[Grammar, bytes] | None = None

    def encoded(self, grammar: Grammar) -> bytes:
        """Return the lines and the empty line after them in `grammar`.

        Raises:
            LocalProtocolError: a header cannot be written in `grammar`, as a line end in 1.0.
        """
        if grammar is self.grammar:
            return self.data
        if self._other is None or self._other[0] is not grammar:
            self._other = (grammar, self._lines(self.pairs(), grammar))
        return self._other[1]

    def _lines(self, pairs: list[tuple[str, str]], grammar: Grammar) -> bytes:
        if grammar.draft or (self.length and self.body_size):
            pairs = [*pairs, ("content-length", str(self.body_size))]
        return encode_lines(_COMMAND, pairs, grammar=grammar) + b"\n"

    def lookup(self, name: str) -> Value:
        """Return the value of an identifier in a selector."""
        header = self._split().get
        if name == "JMSPriority":
            return self.options.priority
        if name == "JMSDeliveryMode":
            return "PERSISTENT" if self.options.persistent else "NON_PERSISTENT"
        if name in ("JMSTimestamp", "JMSExpiration"):
            value = header("timestamp" if name == "JMSTimestamp" else "expires")
            return int(value) if value is not None and value.isdigit() and len(value) < 20 else None
        return header(_JMS.get(name, name))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the headers without `content-length`."""
        return [pair for pair in self._split().pairs if pair[0] != "content-length"]

    def moved(self, destination: str, extra: Pairs, *, without: Iterable[str] = ()) -> MessageHead:
        """Return the head of a copy for another queue, see `StoredMessage.moved`."""
        replaced = {"destination", *_TIMES, *without, *(name for name, _ in extra)}
        options = self.options
        if options is not PLAIN:
            options = replace(options, expires=None, due=None, group=None, dedupe_id=None)
        return MessageHead(
            [*extra, *(pair for pair in self.pairs() if pair[0] not in replaced)],
            self.grammar,
            body_size=self.body_size,
            destination=destination,
            target=destination,
            options=options,
            length=self.length,
        )

    def _split(self) -> Headers:
        if self._headers is None:
            self._headers = headers_from_head(b"\n" + self.data, self.grammar, _COMMAND)
        return self._headers


class StoredMessage:
    """The content of a SEND, ready to be written: the same for subscribers of all versions.

    Args:
        shared: its headers.
        body: bytes, never changed.
        budget: has counted it, and the excess of its head as state; it counts no more when it is gone.
    """

    __slots__ = ("_budget", "body", "shared", "size")

    def __init__(self, shared: MessageHead, body: bytes, budget: MemoryBudget | None = None) -> None:
        self.shared = shared
        self.body = body
        self.size = shared.size + len(body)
        """Bytes that count towards the limits."""
        self._budget = budget

    def __del__(self) -> None:
        # The last reference goes wherever a message ends: acknowledged, refused, aborted, dropped with its session.
        budget = self._budget
        if budget is not None:
            budget.give_back(self.size, self.shared.excess)

    @property
    def destination(self) -> str:
        """As subscribers see it."""
        return self.shared.destination

    @property
    def target(self) -> str:
        """By which the broker keeps its queue or topic."""
        return self.shared.target

    @property
    def options(self) -> SendRequest:
        """The requests of the SEND."""
        return self.shared.options

    def moved(self, destination: str, extra: Pairs, *, without: Iterable[str] = ()) -> StoredMessage:
        """Return a copy for another queue, in which `extra` replaces headers of the same names, and without times.

        Args:
            destination: the queue.
            extra: further headers.
            without: headers to leave out.
        """
        return self.with_head(self.shared.moved(destination, extra, without=without))

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


def passed_on(headers: Headers, grammar: Grammar, rules: DeliveryRules, added: Pairs = ()) -> list[tuple[str, str]]:
    """Return the headers of a SEND that its MESSAGE frames have, without destination and content-length.

    Args:
        headers: of the SEND.
        grammar: the sender's.
        rules: of the broker for MESSAGE frames.
        added: further headers, unless the sender wrote them.
    """
    dropped = NOT_PASSED_ON - rules.own_headers
    pairs = [pair for pair in headers.pairs if pair[0] not in dropped]
    if rules.repeated != "all":
        last = rules.repeated == "last before 1.2" and grammar.version is not Version.V1_2
        pairs = list(dict(pairs if last else reversed(pairs)).items())
    if rules.value is not None:
        pairs = [(name, rules.value(value, grammar.version)) for name, value in pairs]
    names = {name for name, _ in pairs}
    return [*pairs, *(pair for pair in added if pair[0] not in names)]
