"""A received message."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Protocol

from stompy.connection.codec import decode_json, decode_text
from stompy.errors import StompError
from stompy.frames.frame import Frame, show_body
from stompy.frames.headers import Headers
from stompy.link.link import Link
from stompy.link.receipts import Receipt

_LOG = logging.getLogger("stompy.connection")


class MessageAcker(Protocol):
    """Sends ACK and NACK."""

    def acknowledge(
        self, message: Message, command: str, *, receipt: bool = False, requeue: bool | None = None
    ) -> Receipt | None:
        """Send the right frame for the version."""
        ...


class Source(Protocol):
    """A subscription, as far as acknowledgement goes."""

    @property
    def leaving(self) -> bool:
        """Whether the broker was told that it ends."""
        ...

    def number(self) -> int:
        """Return the place of the next message."""
        ...

    def covered(self, order: int) -> str | None:
        """Return the command that settled all messages up to a place at or behind `order`."""
        ...

    def cover(self, order: int, command: str) -> None:
        """Note that all messages up to `order` are settled."""
        ...


class Message:
    """One MESSAGE frame, as a handler, a listener or an iteration gets it.

    It knows the link it came over: it can be acknowledged on that link and never on another. Any thread may use it.

    Attributes:
        frame: the frame itself.
        ack_mode: of its subscription: `"auto"`, `"client"` or `"client-individual"`.
        size: octets of its body and, about, its headers: what it counts for in the inbox.
    """

    __slots__ = ("_acker", "_covering", "_order", "_settled", "_source", "ack_mode", "frame", "link", "size")

    def __init__(
        self, frame: Frame, link: Link, acker: MessageAcker, *, ack_mode: str, subscription: Source | None = None
    ) -> None:
        self.frame = frame
        self.size = len(frame.body) + frame.headers.size
        self.link = link
        self.ack_mode = ack_mode
        self._acker = acker
        self._settled: str | None = None
        self._source = subscription
        # A cumulative ACK settles earlier messages too, so those of such a subscription are numbered.
        self._covering = subscription if ack_mode == "client" else None
        self._order = self._covering.number() if self._covering is not None else 0

    @property
    def body(self) -> bytes:
        """The octets as received."""
        return self.frame.body

    @property
    def text(self) -> str:
        """The body as text, by its declared charset.

        Raises:
            BodyDecodeError: it is not text; the error keeps the bytes.
        """
        return decode_text(self.frame.body, self.frame.headers.peek("content-type"))

    def json(self) -> Any:
        """Return the value in a JSON body.

        Raises:
            BodyDecodeError: it is not JSON; the error keeps the bytes.
        """
        return decode_json(self.frame.body, self.frame.headers.peek("content-type"))

    @property
    def headers(self) -> Headers:
        """All headers; of a repeated one the first value."""
        return self.frame.headers

    @property
    def destination(self) -> str:
        """Where it was sent to."""
        return self.frame.headers.peek("destination") or ""

    @property
    def message_id(self) -> str:
        """The broker's id of this message."""
        return self.frame.headers.peek("message-id") or ""

    @property
    def subscription(self) -> str | None:
        """The id of the subscription it came by; `None` where a 1.0 broker does not say."""
        return self.frame.headers.peek("subscription")

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it was delivered before."""
        return self.frame.headers.get("redelivered", "").lower() == "true"

    @property
    def settled(self) -> str | None:
        """`"ACK"` or `"NACK"` once one of them was sent for it or, in mode `client`, for a later one; else `None`."""
        if self._settled is None and self._covering is not None:
            return self._covering.covered(self._order)
        return self._settled

    @property
    def orphaned(self) -> bool:
        """Whether its subscription was ended, so that the broker has taken it back; for stompy's own use."""
        return self._source is not None and self._source.leaving

    def claim(self, command: str | None) -> None:
        """Note which frame settles the message; for stompy's own use."""
        self._settled = command

    def cover(self) -> None:
        """Note that earlier messages of a cumulative subscription are settled with this one; for stompy's own use."""
        if self._covering is not None and self._settled is not None:
            self._covering.cover(self._order, self._settled)

    def ack(self, *, receipt: bool = False) -> Receipt | None:
        """Tell the broker that the message was consumed.

        In mode `client` it covers all earlier messages of the subscription too (STOMP 1.2, SUBSCRIBE ack Header).

        Raises:
            AckError: in mode `auto`, a second time, or its link or (at most brokers) its subscription is gone: then the
                broker redelivers it.
        """
        return self._acker.acknowledge(self, "ACK", receipt=receipt)

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
        return self._acker.acknowledge(self, "NACK", receipt=receipt, requeue=requeue)

    def __enter__(self) -> Message:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Acknowledge at the end of the block; refuse when it raised. Nothing in mode `auto`, or if the block did it.

        In STOMP 1.0, which has no NACK, and at brokers that would drop the message, a block that raised leaves it
        unacknowledged.
        """
        if self.ack_mode == "auto" or self.settled is not None:
            return
        if kind is None:
            self.ack()
            return
        try:
            self.nack()
        except StompError as failed:
            _LOG.warning("message %r could not be refused: %s", self.message_id, failed)

    def __repr__(self) -> str:
        state = f" {self._settled}" if self._settled else ""
        return f"<Message {self.message_id!r} from {self.destination!r} {show_body(self.body)}{state}>"
