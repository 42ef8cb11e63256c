"""What the broker keeps of a message: its content, its place in a queue, and each delivery of it.

Everything here is guarded by the router's lock, except that the writers read finished deliveries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.profile import OWN, PLAIN, Profile
from stompy.broker.settings import excess
from stompy.frames.encoder import encode, encode_lines
from stompy.frames.frame import Headers, Pairs, headers_from_head
from stompy.frames.grammar import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.profile import SendRequest
    from stompy.broker.queues import Queue
    from stompy.broker.selector import Value
    from stompy.broker.session_state import Consumer
    from stompy.broker.settings import MemoryBudget
    from stompy.frames.frame import Frame
    from stompy.frames.grammar import Grammar

_COMMAND = "MESSAGE"
_COMMAND_LINE = len(_COMMAND) + 1

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
        data: the header lines and the empty line after them.
        grammar: how they are written; the sender's.
        destination: as subscribers are to see it.
        target: by which the broker keeps its queue or topic.
        options: what the SEND asked for.
        length: frames have a `content-length`, also where they would not need it.
        body_size: the length of the bodies that it is for.
    """

    __slots__ = (
        "_headers",
        "_other",
        "body_size",
        "data",
        "destination",
        "excess",
        "grammar",
        "later",
        "length",
        "options",
        "size",
        "stamp",
        "target",
    )

    def __init__(
        self,
        data: bytes,
        grammar: Grammar,
        *,
        destination: str,
        target: str,
        options: SendRequest,
        body_size: int,
        length: bool = True,
    ) -> None:
        self.data = data
        self.size = len(data)
        self.body_size = body_size
        self.destination = destination
        self.target = target
        self.options = options
        self.excess = excess(len(data) + len(destination))
        """What of it is more than usual."""
        self.grammar = grammar
        self.stamp = b""
        """The line with its time, between line ends, where the broker has added one."""
        self.later: MessageHead | None = None
        """The same head with another time."""
        self.length = length
        self._headers: Headers | None = None
        self._other: tuple[Grammar, bytes] | None = None

    def encoded(self, grammar: Grammar, body: bytes) -> bytes:
        """Return the lines in `grammar`, of a message with that body; raises what `StoredMessage.head` does."""
        if grammar is self.grammar:
            return self.data
        if self._other is None or self._other[0] is not grammar:
            self._other = (grammar, _encoded_head(self.pairs(), body, grammar, length=self.length))
        return self._other[1]

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
        pairs = [("destination", destination), *extra]
        pairs += [pair for pair in self._split().pairs if pair[0] not in replaced]
        options = self.options
        if options is not PLAIN:
            options = replace(options, expires=None, due=None, group=None, dedupe_id=None)
        return MessageHead(
            encode_lines(_COMMAND, pairs, grammar=self.grammar) + b"\n",
            self.grammar,
            destination=destination,
            target=destination,
            options=options,
            body_size=self.body_size,
            length=self.length,
        )

    def _split(self) -> Headers:
        if self._headers is None:
            self._headers = headers_from_head(b"\n" + self.data, self.grammar, _COMMAND)
        return self._headers


class StoredMessage:
    """The content of a SEND, ready to be written: the same for all subscribers, whatever the version each speaks.

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

    __slots__ = ("_budget", "body", "shared", "size")

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        destination: str,
        body: bytes,
        grammar: Grammar,
        budget: MemoryBudget | None = None,
        target: str | None = None,
        options: SendRequest = PLAIN,
        length: bool = True,
    ) -> None:
        self._budget: MemoryBudget | None = None
        self.body = body
        self.shared = MessageHead(
            _encoded_head([("destination", destination), *pairs], body, grammar, length=length),
            grammar,
            destination=destination,
            target=destination if target is None else target,
            options=options,
            body_size=len(body),
            length=length,
        )
        self.size = len(self.shared.data) + len(body)
        """Bytes that count towards the limits."""
        if budget is not None:
            budget.take(self.size, self.shared.excess)
            self._budget = budget

    @classmethod
    def sharing(cls, shared: MessageHead, body: bytes, budget: MemoryBudget | None) -> StoredMessage:
        """Return a message with a head that others have too; the budget has counted it already."""
        self = cls.__new__(cls)
        self.shared = shared
        self.body = body
        self.size = shared.size + len(body)
        self._budget = budget
        return self

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
        """What the SEND asked for."""
        return self.shared.options

    @classmethod
    def of(
        cls,
        frame: Frame,
        grammar: Grammar,
        budget: MemoryBudget | None = None,
        *,
        destination: str | None = None,
        target: str | None = None,
        options: SendRequest = PLAIN,
        replaced: Pairs = (),
        profile: Profile = OWN,
        added: Pairs = (),
    ) -> StoredMessage:
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
            LimitExceededError: the broker has no room for it.
        """
        headers = frame.headers
        own = NOT_PASSED_ON.union(name for name, _ in replaced) if replaced else NOT_PASSED_ON
        if profile.own_headers:
            own -= profile.own_headers
        pairs = [*replaced, *(pair for pair in headers.pairs if pair[0] not in own)]
        body, counted = frame.body, True
        if profile is not OWN:
            pairs = _of_profile(pairs, profile, grammar, added)
            counted = headers.get("content-length") is not None
            if profile.text and not counted:
                body = body.decode("utf-8", "replace").encode()
        return cls(
            pairs,
            destination=destination or headers.get("destination") or "",
            body=body,
            length=counted or grammar.version not in profile.own_length,
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
        return self.shared.encoded(grammar, self.body)

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
        copy = StoredMessage.sharing(head, self.body, self._budget)
        if self._budget is not None:
            self._budget.take(copy.size, head.excess, force=True)  # room for it is there
        return copy

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name, without those that differ from delivery to delivery."""
        headers: dict[str, str] = {}
        for name, value in self.shared.pairs():
            headers.setdefault(name, value)
        return headers

    def __repr__(self) -> str:
        return f"<StoredMessage {self.destination!r} {len(self.body)} bytes>"


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
        expires: see `SendRequest`.
        group: see `SendRequest`.
        group_ends: see `SendRequest`.
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

    def __init__(self, message: StoredMessage, order: int) -> None:
        options = message.shared.options
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


class OutgoingMessage:
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
