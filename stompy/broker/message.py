"""What the broker keeps of a message: its content, its place in a queue, and each delivery of it.

Everything here is guarded by the router's lock, except that the writers read finished deliveries.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.budget import excess
from stompy.broker.options import PLAIN
from stompy.broker.profile import OWN, Profile
from stompy.frames.encoder import encode
from stompy.frames.frame import Headers, Pairs
from stompy.frames.grammar import Limits, Version
from stompy.frames.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.budget import MemoryBudget
    from stompy.broker.conditions import Value
    from stompy.broker.consumer import Consumer
    from stompy.broker.options import SendOptions
    from stompy.broker.queues import Queue
    from stompy.frames.frame import Frame
    from stompy.frames.grammar import Grammar

_COMMAND = "MESSAGE"
_COMMAND_LINE = len(_COMMAND) + 1
_NO_LIMITS = Limits(max_headers=sys.maxsize, max_header_line=sys.maxsize, max_body=sys.maxsize)  # it was let in already

# The broker writes these itself or they speak of the SEND alone, so that a sender's own must not show (SRV-07).
_NOT_PASSED_ON = frozenset(
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


class Message:
    """The content of a SEND, ready to be written: the same for all subscribers, whatever the version each speaks.

    Only the head in the sender's grammar is kept; for a subscriber of another version it is split and encoded again.

    Args:
        pairs: the headers to pass on, without destination and content-length.
        destination: as subscribers are to see it.
        target: by which the broker keeps its queue or topic.
        options: what the SEND asked for.
        length: its frames have a `content-length`, also where they would not need it.
        body: bytes, never changed.
        grammar: how the head is written first; the sender's.
        budget: counts it while it exists, and what of its head is more than usual as state.

    Raises:
        LocalProtocolError: a header cannot be written in that grammar.
    """

    __slots__ = (
        "_budget",
        "_grammar",
        "_head",
        "_headers",
        "_length",
        "_other",
        "body",
        "destination",
        "excess",
        "options",
        "size",
        "target",
    )

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        destination: str,
        body: bytes,
        grammar: Grammar,
        budget: MemoryBudget | None = None,
        target: str | None = None,
        options: SendOptions = PLAIN,
        length: bool = True,
    ) -> None:
        self._length = length
        self._budget: MemoryBudget | None = None
        self._headers: Headers | None = None
        self.destination = destination
        self.target = destination if target is None else target
        self.options = options
        self.body = body
        self._grammar = grammar
        self._head = _encoded_head([("destination", destination), *pairs], body, grammar, length=length)
        self._other: tuple[Grammar, bytes] | None = None
        self.size = len(self._head) + len(body)
        """Bytes that count towards the limits."""
        self.excess = excess(len(self._head) + len(destination))
        if budget is not None:
            budget.take(self.size, self.excess)
            self._budget = budget

    def __del__(self) -> None:
        # The last reference goes wherever a message ends: acknowledged, refused, aborted, dropped with its session.
        if getattr(self, "_budget", None) is not None:
            self._budget.give_back(self.size, self.excess)  # type: ignore[union-attr]

    @classmethod
    def of(
        cls,
        frame: Frame,
        grammar: Grammar,
        budget: MemoryBudget | None = None,
        *,
        destination: str | None = None,
        target: str | None = None,
        options: SendOptions = PLAIN,
        replaced: Pairs = (),
        profile: Profile = OWN,
        added: Pairs = (),
    ) -> Message:
        """Return the message of a SEND frame.

        Args:
            frame: the SEND.
            grammar: the sender's.
            budget: see above.
            destination: see above; as the frame names it where it is `None`.
            target: see above.
            options: see above.
            replaced: headers in the place of the sender's own of these names.
            profile: what is passed on.
            added: further headers, but for those that the sender wrote.

        Raises:
            LimitExceeded: the broker has no room for it.
        """
        headers = frame.headers
        own = _NOT_PASSED_ON.union(name for name, _ in replaced) if replaced else _NOT_PASSED_ON
        if profile.own_headers:
            own -= profile.own_headers
        pairs = [*replaced, *(pair for pair in headers.pairs if pair[0] not in own)]
        body, told = frame.body, True
        if profile is not OWN:
            pairs = _of_profile(pairs, profile, grammar, added)
            told = headers._peek("content-length") is not None
            if profile.text and not told:
                body = body.decode("utf-8", "replace").encode()
        return cls(
            pairs,
            destination=destination or headers._peek("destination") or "",
            body=body,
            length=told or grammar.version not in profile.own_length,
            grammar=grammar,
            budget=budget,
            target=target,
            options=options,
        )

    def head(self, grammar: Grammar) -> bytes:
        """Return the header lines and the empty line after them.

        Raises:
            LocalProtocolError: a header cannot be written in `grammar`, as a line end in 1.0.
        """
        if grammar is self._grammar:
            return self._head
        if self._other is None or self._other[0] is not grammar:
            self._other = (grammar, _encoded_head(self._pairs(), self.body, grammar, length=self._length))
        return self._other[1]

    def moved(self, destination: str, extra: Pairs) -> Message:
        """Return a copy for another queue, in which `extra` replaces headers of the same names, and without times."""
        replaced = {"destination", *_TIMES, *(name for name, _ in extra)}
        pairs = [*extra, *(pair for pair in self._pairs() if pair[0] not in replaced)]
        options = replace(self.options, expires=None, due=None, group=None, dedupe_id=None)
        copy = Message(pairs, destination=destination, body=self.body, grammar=self._grammar, options=options)
        if self._budget is not None:
            # Not refused for want of room: it is here already, and the original is about to go.
            self._budget.take(copy.size, copy.excess, force=True)
            copy._budget = self._budget
        return copy

    def lookup(self, name: str) -> Value:
        """Return the value of an identifier in a selector."""
        if self._headers is None:
            self._headers = Headers._from_head(b"\n" + self._head, self._grammar, _COMMAND)
        if name == "JMSPriority":
            return self.options.priority
        if name == "JMSDeliveryMode":
            return "PERSISTENT" if self.options.persistent else "NON_PERSISTENT"
        if name in ("JMSTimestamp", "JMSExpiration"):
            value = self._headers._peek("timestamp" if name == "JMSTimestamp" else "expires")
            return int(value) if value is not None and value.isdigit() and len(value) < 20 else None
        return self._headers._peek(_JMS.get(name, name))

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name, without those that differ from delivery to delivery."""
        return dict(reversed(self._pairs()))

    def _pairs(self) -> list[tuple[str, str]]:
        data = b"".join((_COMMAND.encode("ascii"), b"\n", self._head, self.body, b"\0"))
        (frame,) = Parser(self._grammar, _NO_LIMITS).feed(data)
        return [pair for pair in frame.headers.pairs if pair[0] != "content-length"]

    def __repr__(self) -> str:
        return f"<Message {self.destination!r} {len(self.body)} bytes>"


def _of_profile(
    pairs: list[tuple[str, str]], profile: Profile, grammar: Grammar, added: Pairs
) -> list[tuple[str, str]]:
    """Return the headers that a broker passes on, with those that it adds."""
    last = profile.repeated == "last before 1.2" and grammar.version is not Version.V1_2
    if profile.repeated != "all":
        pairs = list(dict(pairs if last else reversed(pairs)).items())
    if profile.value is not None:
        pairs = [(name, profile.value(value, grammar.version)) for name, value in pairs]
    names = {name for name, _ in pairs}
    return [*pairs, *(pair for pair in added if pair[0] not in names)]


def _encoded_head(pairs: list[tuple[str, str]], body: bytes, grammar: Grammar, *, length: bool = True) -> bytes:
    data = encode(_COMMAND, pairs, body, grammar=grammar, content_length=length)
    return data[_COMMAND_LINE : len(data) - len(body) - 1]


class Item:
    """A message in one queue or backlog.

    Attributes:
        queue: where it is, or was taken from.
        order: its place; the broker counts, so that it holds for a queue that was forgotten and made again.
        priority: items of a higher one go first.
        expires: see `SendOptions`.
        group: see `SendOptions`.
        group_ends: see `SendOptions`.
        deliveries: how often it was handed to a subscriber.
        nacks: how often it was refused.
        named: the consumer's key and the count of its first delivery, of which its message-id is made.
    """

    __slots__ = (
        "__weakref__",
        "deliveries",
        "expires",
        "group",
        "group_ends",
        "message",
        "nacks",
        "named",
        "order",
        "priority",
        "queue",
    )

    queue: Queue

    def __init__(self, message: Message, order: int) -> None:
        options = message.options
        self.message = message
        self.order = order
        self.priority = options.priority
        self.expires = options.expires
        self.group = options.group
        self.group_ends = options.group_ends
        self.deliveries = 0
        self.nacks = 0
        self.named: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"<Item {self.order} {self.message!r} deliveries={self.deliveries} nacks={self.nacks}>"


class Delivery:
    """One MESSAGE frame on its way to a subscriber.

    Attributes:
        head: everything before the body; empty once it was written.
    """

    __slots__ = ("consumer", "head", "item")

    def __init__(self, head: bytes, item: Item, consumer: Consumer) -> None:
        self.head = head
        self.item = item
        self.consumer = consumer

    @property
    def transient(self) -> bool:
        """Whether it is gone where it does not arrive, as a copy for one subscriber of a topic is."""
        return self.item.queue is self.consumer.backlog
