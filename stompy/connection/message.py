"""A received message."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from stompy.connection.codec import decode_json, decode_text
from stompy.errors import StompError
from stompy.frames.frame import Frame, Headers, show_body
from stompy.link.link import Link
from stompy.link.receipts import Receipt

if TYPE_CHECKING:
    from stompy.connection.acking import Acker
    from stompy.connection.subscription import Subscription

_LOG = logging.getLogger("stompy.connection")


class Delivery:
    """What the messages of one subscription that came by one link have in common.

    Also which of them a cumulative ACK or NACK has settled. The broker takes the others back when that link ends, so
    that no ACK on the next one can settle them.

    Attributes:
        link: the link.
        acker: settles them.
        source: the subscription, or `None` where the broker named an unknown one.
        ack_mode: of the subscription.
        failed: messages of a cumulative subscription whose handler raised, in order, until they are covered.
    """

    __slots__ = ("_by", "_covered", "_delivered", "ack_mode", "acker", "cumulative", "failed", "link", "source")

    def __init__(self, link: Link, acker: Acker, source: Subscription | None) -> None:
        self.link = link
        self.acker = acker
        self.source = source
        self.ack_mode = "auto" if source is None else source.ack
        # A cumulative ACK settles earlier messages too, so those of such a subscription are numbered.
        self.cumulative = self.ack_mode == "client"
        self._delivered = 0
        self._covered = 0
        self._by: str | None = None
        self.failed: list[Message] = []

    def number(self) -> int:
        """Return the place of the next message; on the reader."""
        self._delivered += 1
        return self._delivered

    def covered(self, order: int) -> str | None:
        """Return the command of a cumulative ACK or NACK that named this message or a later one."""
        return self._by if order <= self._covered else None

    def cover(self, order: int, command: str) -> None:
        """Note a cumulative ACK or NACK."""
        if order > self._covered:
            self._covered, self._by = order, command
            if self.failed:
                # By place: one that an open transaction has claimed may yet be given back.
                self.failed = [one for one in self.failed if one._order > order]


class Message:
    """One MESSAGE frame, as a handler, a listener or an iteration gets it.

    It knows the link it came over: it can be acknowledged on that link and never on another. Any thread may use it; the
    headers are split when somebody first looks.

    Attributes:
        size: bytes of its body and, about, its headers: what it counts for in the inbox.
    """

    __slots__ = ("_body", "_claimant", "_counted", "_delivery", "_failed", "_headers", "_order", "_settled", "size")

    _failed: bool

    def __init__(self, delivery: Delivery, headers: bytes | Headers, body: bytes) -> None:
        self._delivery = delivery
        """What it has in common with others; for stompy's own use."""
        self._headers = headers
        self._body = body
        self.size = len(body) + (len(headers) if isinstance(headers, bytes) else headers.size)
        self._settled: str | None = None
        self._claimant: object = None
        """Who may undo the claim; for stompy's own use."""
        self._counted = False
        """Whether it waits in an inbox; for stompy's own use."""
        self._order = delivery.number() if delivery.cumulative else 0

    @property
    def frame(self) -> Frame:
        """The frame itself."""
        return Frame("MESSAGE", self.headers, self._body)

    @property
    def _link(self) -> Link:
        """The link it came by."""
        return self._delivery.link

    @property
    def ack_mode(self) -> str:
        """Of its subscription: `"auto"`, `"client"` or `"client-individual"`."""
        return self._delivery.ack_mode

    @property
    def body(self) -> bytes:
        """The bytes as received."""
        return self._body

    @property
    def text(self) -> str:
        """The body as text, by its declared charset.

        Raises:
            BodyDecodeError: it is not text; the error keeps the bytes.
        """
        return decode_text(self._body, self.headers.peek("content-type"))

    def json(self) -> Any:
        """Return the value in a JSON body.

        Raises:
            BodyDecodeError: it is not JSON; the error keeps the bytes.
        """
        return decode_json(self._body, self.headers.peek("content-type"))

    @property
    def headers(self) -> Headers:
        """All headers; of a repeated one the first value."""
        headers = self._headers
        if isinstance(headers, bytes):
            # Two threads may both make them, which does no harm: they are alike, and one stays.
            headers = self._headers = Headers.from_head(headers, self._delivery.link.protocol.grammar, "MESSAGE")
        return headers

    @property
    def destination(self) -> str:
        """Where it was sent to."""
        return self.headers.peek("destination") or ""

    @property
    def message_id(self) -> str:
        """The broker's id of this message."""
        return self.headers.peek("message-id") or ""

    @property
    def subscription(self) -> str | None:
        """The id of the subscription it came by; `None` where a 1.0 broker does not say."""
        return self.headers.peek("subscription")

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it was delivered before."""
        return self.headers.get("redelivered", "").lower() == "true"

    @property
    def settled(self) -> str | None:
        """`"ACK"` or `"NACK"` once one of them was sent for it or, in mode `client`, for a later one; else `None`."""
        if self._settled is None and self._order:
            return self._delivery.covered(self._order)
        return self._settled

    @property
    def _orphaned(self) -> bool:
        """Whether its subscription was ended, so that the broker has taken it back; for stompy's own use."""
        source = self._delivery.source
        return source is not None and source._leaving

    @property
    def _is_first(self) -> bool:
        """Whether a cumulative ACK or NACK of it would settle no other message; for stompy's own use."""
        return self._order <= 1 or self._delivery.covered(self._order - 1) is not None

    @property
    def _failed_before(self) -> Message | None:
        """The first message that a cumulative ACK or NACK of this one would settle though its handler raised."""
        failed = self._delivery.failed
        if not failed:
            return None
        return next((one for one in failed if one._order < self._order and one.settled is None), None)

    def _fail(self, *, nack: bool) -> None:
        """Note that its handler raised, and refuse it if asked to and if that costs nothing; for stompy's own use."""
        if self.ack_mode == "auto" or hasattr(self, "_failed"):
            return
        self._failed = True
        if self._order:
            self._delivery.failed.append(self)
        if not nack or self.settled is not None:
            return
        try:
            self._delivery.acker.refuse(self)
        except StompError as failed:
            if not self._link.alive or self._orphaned:
                _LOG.info("message %r was not refused, as the broker takes it back: %s", self.message_id, failed)
                return
            _LOG.warning(
                "message %r of %r could not be refused, is unacknowledged and holds a place in the prefetch: %s",
                self.message_id,
                self.destination,
                failed,
            )

    def _claim(self, command: str | None, claimant: object) -> None:
        """Note which frame settles the message, and for whom; for stompy's own use."""
        self._claimant = claimant
        self._settled = command

    def _cover(self) -> None:
        """Note that earlier messages of a cumulative subscription are settled with this one; for stompy's own use."""
        if self._order and self._settled is not None:
            with self._delivery.acker.claims:
                self._delivery.cover(self._order, self._settled)

    @overload
    def ack(self, *, receipt: Literal[True]) -> Receipt: ...
    @overload
    def ack(self, *, receipt: bool = False) -> Receipt | None: ...
    def ack(self, *, receipt: bool = False) -> Receipt | None:
        """Tell the broker that the message was consumed.

        In mode `client` it covers all earlier messages of the subscription too (STOMP 1.2, SUBSCRIBE ack Header).

        Raises:
            AckError: in mode `auto`, a second time, or its link or (at most brokers) its subscription is gone: then the
                broker redelivers it.
        """
        return self._delivery.acker.acknowledge(self, "ACK", receipt=receipt)

    @overload
    def nack(self, *, requeue: bool | None = None, receipt: Literal[True]) -> Receipt: ...
    @overload
    def nack(self, *, requeue: bool | None = None, receipt: bool = False) -> Receipt | None: ...
    def nack(self, *, requeue: bool | None = None, receipt: bool = False) -> Receipt | None:
        """Tell the broker that the message was not consumed (STOMP 1.2, NACK).

        What it then does is its own choice: RabbitMQ delivers it again at once, ActiveMQ makes a dead letter of it (or
        drops it, if it is not persistent), Artemis drops it.

        Args:
            requeue: `True`: only if the broker then delivers it again; `False`: only if it does not; `None`: as the
                broker does, unless that is to lose it.
            receipt: ask the broker to confirm, and return the `Receipt`.

        Raises:
            AckError: as `ack`.
            LocalProtocolError: STOMP 1.0 has no NACK.
            ConfigurationError: the broker would do another thing than was asked; nothing was sent.
        """
        return self._delivery.acker.acknowledge(self, "NACK", receipt=receipt, requeue=requeue)

    def __enter__(self) -> Message:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Acknowledge at the end of the block; refuse when it raised. Nothing in mode `auto`, or if the block did it.

        A message that the broker would not keep when it is refused stays unacknowledged, with a warning; see
        `Connection.subscribe`, `on_error`.
        """
        if self.ack_mode == "auto" or self.settled is not None:
            return
        if kind is None:
            self.ack()
        else:
            self._fail(nack=True)

    def __repr__(self) -> str:
        state = f" {self._settled}" if self._settled else ""
        return f"<Message {self.message_id!r} from {self.destination!r} {show_body(self.body)}{state}>"
