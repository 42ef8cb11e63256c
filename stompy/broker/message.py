"""What the broker keeps of a message: its content, its place in a queue, and each delivery of it.

Everything here is guarded by the router's lock, except that the writers read finished deliveries.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stompy.broker.pool import excess
from stompy.frames.encoder import encode
from stompy.frames.frame import Pairs
from stompy.frames.grammar import Limits
from stompy.frames.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.consumer import Consumer
    from stompy.broker.pool import Pool
    from stompy.frames.frame import Frame
    from stompy.frames.grammar import Grammar

_COMMAND = "MESSAGE"
_COMMAND_LINE = len(_COMMAND) + 1
_NO_LIMITS = Limits(max_headers=sys.maxsize, max_header_line=sys.maxsize, max_body=sys.maxsize)  # it was let in already

# The broker writes these itself or they speak of the SEND alone, so that a sender's own must not show (SRV-07).
_NOT_PASSED_ON = frozenset(
    ("destination", "message-id", "subscription", "ack", "redelivered", "receipt", "transaction", "content-length")
)


class Message:
    """The content of a SEND, ready to be written: the same for all subscribers, whatever the version each speaks.

    Only the head in the sender's grammar is kept; for a subscriber of another version it is split and encoded again.

    Args:
        pairs: the headers to pass on, without destination and content-length.
        destination: as the SEND named it.
        body: octets, never changed.
        grammar: how the head is written first; the sender's.
        pool: counts it while it exists, and what of its head is more than usual as state.

    Raises:
        LocalProtocolError: a header cannot be written in that grammar.
    """

    __slots__ = ("_grammar", "_head", "_other", "_pool", "body", "destination", "excess", "size")

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        destination: str,
        body: bytes,
        grammar: Grammar,
        pool: Pool | None = None,
    ) -> None:
        self._pool: Pool | None = None
        self.destination = destination
        self.body = body
        self._grammar = grammar
        self._head = _encoded_head([("destination", destination), *pairs], body, grammar)
        self._other: tuple[Grammar, bytes] | None = None
        self.size = len(self._head) + len(body)
        """Octets that count towards the limits."""
        self.excess = excess(len(self._head) + len(destination))
        if pool is not None:
            pool.take(self.size, self.excess)
            self._pool = pool

    def __del__(self) -> None:
        # The last reference goes wherever a message ends: acknowledged, refused, aborted, dropped with its session.
        if getattr(self, "_pool", None) is not None:
            self._pool.give_back(self.size, self.excess)  # type: ignore[union-attr]

    @classmethod
    def of(cls, frame: Frame, grammar: Grammar, pool: Pool | None = None) -> Message:
        """Return the message of a SEND frame.

        Raises:
            LimitExceeded: the broker has no room for it.
        """
        headers = frame.headers
        return cls(
            [pair for pair in headers.pairs if pair[0] not in _NOT_PASSED_ON],
            destination=headers.peek("destination") or "",
            body=frame.body,
            grammar=grammar,
            pool=pool,
        )

    def head(self, grammar: Grammar) -> bytes:
        """Return the header lines and the empty line behind them.

        Raises:
            LocalProtocolError: a header cannot be written in `grammar`, as a line end in 1.0.
        """
        if grammar is self._grammar:
            return self._head
        if self._other is None or self._other[0] is not grammar:
            self._other = (grammar, _encoded_head(self._pairs(), self.body, grammar))
        return self._other[1]

    def moved(self, destination: str, extra: Pairs) -> Message:
        """Return a copy for another destination, in which `extra` replaces headers of the same names."""
        replaced = {"destination", *(name for name, _ in extra)}
        pairs = [*extra, *(pair for pair in self._pairs() if pair[0] not in replaced)]
        copy = Message(pairs, destination=destination, body=self.body, grammar=self._grammar)
        if self._pool is not None:
            # Not refused for want of room: it is here already, and the original is about to go.
            self._pool.take(copy.size, copy.excess, force=True)
            copy._pool = self._pool
        return copy

    def _pairs(self) -> list[tuple[str, str]]:
        octets = b"".join((_COMMAND.encode("ascii"), b"\n", self._head, self.body, b"\0"))
        (frame,) = Parser(self._grammar, _NO_LIMITS).feed(octets)
        return [pair for pair in frame.headers.pairs if pair[0] != "content-length"]

    def __repr__(self) -> str:
        return f"<Message {self.destination!r} {len(self.body)} octets>"


def _encoded_head(pairs: list[tuple[str, str]], body: bytes, grammar: Grammar) -> bytes:
    data = encode(_COMMAND, pairs, body, grammar=grammar)
    return data[_COMMAND_LINE : len(data) - len(body) - 1]


class Item:
    """A message in one queue or backlog.

    Attributes:
        order: its place; the broker counts, so that it holds for a queue that was forgotten and made again.
        deliveries: how often it was handed to a subscriber.
        nacks: how often it was refused.
        named: the consumer's key and the count of its first delivery, of which its message-id is made.
    """

    __slots__ = ("deliveries", "message", "nacks", "named", "order")

    def __init__(self, message: Message, order: int) -> None:
        self.message = message
        self.order = order
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
