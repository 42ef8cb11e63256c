"""Received messages, and their ACK and NACK.

Any thread. A message is claimed under a leaf lock, so that two threads cannot acknowledge it twice.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from stompy.arguments import check_arguments, check_value
from stompy.connection.encoding import (
    Body,
    check_destination,
    check_headers,
    decode_json,
    decode_text,
    encode_body,
    user_headers,
)
from stompy.default import DEFAULT, Default
from stompy.dialects.brokers import dialect_named
from stompy.dialects.dialect import Dialect
from stompy.dialects.options import SendOptions
from stompy.errors import AckError, MessageError, NotConnectedError, StompError
from stompy.frames.encoder import encode_head, encode_lines
from stompy.frames.frame import Frame, Headers, headers_from_head, show_body, show_text, table_of, text_on_the_wire
from stompy.frames.grammar import Version
from stompy.link.flow import FlowControl
from stompy.link.link import Link
from stompy.link.receipts import FailedFrames, Receipt, Receipts, receipt_line
from stompy.locks import Rank, make_lock
from stompy.protocol.ack import ack_headers
from stompy.world import threading

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stompy.connection.subscriptions import ActiveSubscription
    from stompy.dialects.options import show_send_options

_LOG = logging.getLogger("stompy.connection")

AckMode = Literal["handled", "auto", "client", "client-individual"]

DELIVERY_HEADERS = frozenset((
    "ack", "content-length", "content-type", "destination", "message-id", "receipt", "redelivered", "subscription",
    "timestamp", "transaction", "persistent", "breadcrumbId", "JMSXUserID", "JMSXDeliveryCount", "_AMQ_DUPL_ID",
    "_AMQ_GROUP_SEQUENCE", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "AMQ_SCHEDULED_REPEAT",
    "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_CRON", "scheduledJobId", "redelivery-count", "x-delivery-count", "browser",
    "destination-type", "subscription-type",
))  # fmt: skip
"""Headers of a message that a copy does not have: the broker sets them, or they must not take effect twice."""

_MAX_SHARED = 1_000
"""Frames that may wait for the thread that writes; then others wait for it too."""


_MAX_LOGGED = 200
"""Characters of an id or a destination in a log record."""


def log_fields(message: Message) -> dict[str, object]:
    """Return the `extra` of a log record about a message."""
    return {
        "stompy_message_id": message.message_id[:_MAX_LOGGED],
        "stompy_destination": message.destination[:_MAX_LOGGED],
    }


def headers_to_copy(message: Message) -> dict[str, str]:
    """Return the headers that belong to a message, and not to its delivery."""
    made = {name: value for name, value in message.headers.items() if name not in DELIVERY_HEADERS}
    if made.get("expires") == "0":
        del made["expires"]
    return made


def persistent_option(message: Message, dialect: Dialect) -> bool | None:
    """Return the option `persistent` for a copy of a message; `None` leaves it to the broker."""
    able = dialect.supports("persistent")
    return True if able and message.headers.get("persistent", "").lower() == "true" else None


def options_to_forward(message: Message, dialect: Dialect, **options: Unpack[SendOptions]) -> SendOptions:
    """Return the options to send a message on: its own, updated by `options`."""
    if TYPE_CHECKING:
        show_send_options(**options)
    check_headers(options.get("headers") or {})
    taken = dialect.headers_of(options).values()
    own = {name: value for name, value in headers_to_copy(message).items() if name not in taken}
    made: SendOptions = {"content_type": message.headers.get("content-type"), **options}
    made["headers"] = headers = {**own, **(options.get("headers") or {})}
    if made.get("persistent") is None and "persistent" not in headers:
        made["persistent"] = persistent_option(message, dialect)
    return made


class MessageSender(Protocol):
    """Sends replies and copies of messages: the connection, or its recorder in a test."""

    @property
    def dialect(self) -> str:
        """The name of the broker's dialect."""

    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        confirm: bool = False,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message; see `Connection.send`."""


class Delivery:
    """The shared state of the messages of one subscription on one link, such as that of cumulative acknowledgement.

    When the link ends, the broker redelivers unacknowledged messages, so the next link has a `Delivery` of its own.

    Attributes:
        link: that delivered the messages.
        acker: sends ACK and NACK for them.
        source: the subscription, or `None` if the broker named an unknown one.
        ack_mode: of the subscription.
        cumulative: whether ACK also acknowledges earlier messages.
        failed: unacknowledged messages of a cumulative subscription whose handler raised, in order.
    """

    __slots__ = (
        "_command", "_covered", "_shared", "_writing",
        "ack_mode", "acker", "cumulative", "delivered", "failed", "link", "source",
    )  # fmt: skip

    def __init__(self, link: Link, acker: Acker, source: ActiveSubscription | None) -> None:
        self.link = link
        self.acker = acker
        self.source = source
        self.ack_mode = "auto" if source is None else source.ack
        self.cumulative = self.ack_mode == "client"
        self.delivered = 0
        """Number of the last message, if cumulative."""
        self._covered = 0
        self._command: str | None = None
        self.failed: list[Message] = []
        self._shared: deque[bytes] = deque()
        self._writing = threading.Lock()

    def check_subscribed(self) -> None:
        """Check that the broker still takes an ACK or NACK of these messages.

        Raises:
            AckError: the subscription has ended.
        """
        source = self.source
        if source is not None and source.unsubscribing and not self.link.dialect.ack_after_unsubscribe:
            raise AckError("the subscription of this message has ended; the broker will deliver it again")

    def covered(self, order: int) -> str | None:
        """Return the command of a cumulative ACK or NACK for this message or a later one, or `None`."""
        return self._command if order <= self._covered else None

    def cover(self, order: int, command: str) -> None:
        """Record a cumulative ACK or NACK."""
        if order > self._covered:
            self._covered, self._command = order, command
            if self.failed:
                # By number, as an aborted transaction may still give back a message.
                self.failed = [message for message in self.failed if message._order > order]

    def write_shared(self, frame: bytes) -> None:
        """Write a frame, or leave it to another thread that is in this method; raises as `Writer.write` does.

        So threads that acknowledge at the same time do not wait for one another. If it raises, frames of other threads
        may be lost, and the caller must end the link. Not for the main thread: a signal could leave the lock held.
        """
        shared = self._shared
        shared.append(frame)
        while shared and self._writing.acquire(len(shared) > _MAX_SHARED):
            try:
                frames = [shared.popleft() for _ in range(len(shared))]
                if frames:
                    self.link.writer.write(frames, frames=len(frames), check=self.check_subscribed)
            except AckError:
                pass  # the broker delivers all of them again
            finally:
                self._writing.release()


class Message:
    """A received MESSAGE frame, made by `Connection.subscribe` and its like. Thread-safe.

    It can only be acknowledged in the session that delivered it.

    Attributes:
        body: as received.
        size: bytes of the body and, approximately, the headers, as counted by `Limits`.
    """

    __slots__ = (
        "_claimant", "_counted", "_delivery", "_explicit", "_failed", "_head", "_headers", "_order", "_settled",
        "body", "size",
    )  # fmt: skip

    body: bytes
    size: int
    _delivery: Delivery
    _head: bytes | None
    """Its header lines as they arrived, if its head was learned."""
    _headers: Headers | None
    """Parsed on first use, if its head was learned."""
    _order: int
    """Its number in its `Delivery`, if cumulative; else 0."""
    _settled: str | None
    _claimant: object
    """May undo the claim."""
    _counted: bool
    """Whether flow control counts it."""
    _failed: bool
    """Set when its handler raised."""
    _explicit: bool
    """Set when an explicit ACK or NACK of it failed, or its transaction was aborted."""

    @property
    def frame(self) -> Frame:
        """The frame."""
        return Frame("MESSAGE", self.headers, self.body)

    @property
    def ack_mode(self) -> str:
        """The mode of its subscription: `"handled"`, `"auto"`, `"client"` or `"client-individual"`."""
        return self._delivery.ack_mode

    @property
    def text(self) -> str:
        """The body as text, decoded with its declared charset.

        Raises:
            BodyDecodeError: it is not text; the error has the bytes.
        """
        return decode_text(self.body, self.headers.get("content-type"))

    def json(self) -> Any:
        """Return the value in a JSON body.

        Raises:
            BodyDecodeError: it is not JSON; the error has the bytes.
        """
        return decode_json(self.body, self.headers.get("content-type"))

    @property
    def headers(self) -> Headers:
        """The headers; of a repeated header, the first value."""
        headers = self._headers
        if headers is None:
            assert self._head is not None
            # If two threads do so, the results are equal.
            headers = self._headers = headers_from_head(self._head, self._delivery.link.protocol.grammar, "MESSAGE")
        return headers

    @property
    def destination(self) -> str:
        """The destination it was sent to."""
        return self.headers.get("destination") or ""

    @property
    def message_id(self) -> str:
        """The broker's id of this message."""
        return self.headers.get("message-id") or ""

    @property
    def subscription(self) -> str | None:
        """The id of its subscription, or `None` if a 1.0 broker does not send it."""
        return self.headers.get("subscription")

    @property
    def redelivered(self) -> bool:
        """Whether the broker marked it as delivered before."""
        return self.headers.get("redelivered", "").lower() == "true"

    @property
    def session_ended(self) -> bool:
        """Whether the session that delivered it has ended: it cannot be acknowledged, and the broker redelivers it."""
        return not self._delivery.link.alive

    @property
    def settled(self) -> str | None:
        """`"ACK"` or `"NACK"` if one was sent for it or, in mode `client`, for a later message; else `None`."""
        if self._settled is None and self._order:
            return self._delivery.covered(self._order)
        return self._settled

    def ack(self, *, confirm: bool = False) -> None:
        """Acknowledge the message; in mode `client`, and all earlier ones of the subscription (STOMP 1.2, ACK).

        Args:
            confirm: wait until the broker has confirmed the ACK by a receipt.

        Raises:
            AckError: the mode is `auto`, the message is already settled, or its session or (for most brokers) its
                subscription has ended, so that the broker redelivers it.
            ConnectionLostError: the connection was lost.
            ReceiptTimeoutError: with `confirm`, the broker did not confirm within the receipt timeout.
        """
        if confirm:
            check_value("confirm", confirm, bool)
            self.ack_async().result()
        else:
            self._delivery.acker.acknowledge(self, "ACK")

    def ack_async(self) -> Receipt:
        """Acknowledge the message as `ack` does, and return the receipt by which the broker will confirm the ACK."""
        receipt = self._delivery.acker.acknowledge(self, "ACK", receipt=True)
        assert receipt is not None
        return receipt

    def nack(self, *, requeue: bool | None = None, confirm: bool = False) -> None:
        """Reject the message (STOMP 1.2, NACK).

        RabbitMQ redelivers it immediately. ActiveMQ dead-letters it, or drops it if not persistent. Artemis drops it.

        Args:
            requeue: `True`: only if the broker then redelivers the message; `False`: only if it does not; `None`: what
                the broker does by default, unless that is to drop every message.
            confirm: wait until the broker has confirmed the NACK by a receipt.

        Raises:
            AckError: as `ack`.
            LocalProtocolError: STOMP 1.0 has no NACK.
            ConfigurationError: the broker does not do what `requeue` requires; nothing was sent.
            ConnectionLostError: the connection was lost.
            ReceiptTimeoutError: with `confirm`, the broker did not confirm within the receipt timeout.
        """
        check_arguments(Message.nack, {"requeue": requeue, "confirm": confirm})
        receipt = self._delivery.acker.acknowledge(self, "NACK", receipt=confirm, requeue=requeue)
        if receipt is not None:
            receipt.result()

    def nack_async(self, *, requeue: bool | None = None) -> Receipt:
        """Reject the message as `nack` does, and return the receipt by which the broker will confirm the NACK."""
        check_arguments(Message.nack_async, {"requeue": requeue})
        receipt = self._delivery.acker.acknowledge(self, "NACK", receipt=True, requeue=requeue)
        assert receipt is not None
        return receipt

    def reply(
        self,
        body: Body = b"",
        *,
        confirm: bool = False,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send an answer to the destination in its `reply-to`, with its `correlation-id` or else its message id.

        Args:
            body: as for `Connection.send`.
            confirm: as for `Connection.send`.
            timeout: as for `Connection.send`.
            options: those of `Connection.send`.

        Raises:
            MessageError: it has no `reply-to`; nothing was sent.
            StompError: as `Connection.send`.
        """
        if TYPE_CHECKING:
            show_send_options(**options)
        to = self.headers.get("reply-to")
        if not to:
            raise MessageError(f"message {self.message_id!r} from {self.destination!r} has no reply-to header")
        correlation = self.headers.get("correlation-id") or self.message_id
        check_headers(options.get("headers") or {})
        options["headers"] = {"correlation-id": correlation, **(options.get("headers") or {})}
        self._connection().send(to, body, confirm=confirm, timeout=timeout, **options)

    def forward(
        self,
        destination: str,
        *,
        confirm: bool = False,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send its body and headers to another destination, without the headers of its delivery, such as `message-id`.

        It is not acknowledged by that: `Transaction.forward` and `Transaction.ack` do both or nothing.

        Args:
            destination: as for `Connection.send`.
            confirm: as for `Connection.send`.
            timeout: as for `Connection.send`.
            options: those of `Connection.send`; by default those of the message.

        Raises:
            StompError: as `Connection.send`.
        """
        connection = self._connection()
        whole = options_to_forward(self, dialect_named(connection.dialect), **options)
        connection.send(destination, self.body, confirm=confirm, timeout=timeout, **whole)

    def _connection(self) -> MessageSender:
        connection = self._delivery.acker.connection()
        if connection is None:
            raise NotConnectedError("the connection was closed")
        return connection

    def __enter__(self) -> Message:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Acknowledge after the block, or refuse if it raised, unless the mode is `auto` or the block did so.

        A message that the broker would drop if refused stays unacknowledged, with a warning; see `on_exception` of
        `Connection.subscribe`.
        """
        if self.ack_mode == "auto" or self.settled is not None:
            return
        if kind is None:
            self.ack()
        else:
            self._delivery.acker.raised(self, nack=True)

    def __repr__(self) -> str:
        state = f" {self._settled}" if self._settled else ""
        identity, destination = show_text(self.message_id), show_text(self.destination)
        return f"<Message {identity} from {destination} {show_body(self.body)}{state}>"


def received(delivery: Delivery, headers: bytes | Headers, body: bytes) -> Message:
    """Return a message; a call of `Message.__init__` for each would cost more than this one."""
    message = Message()
    message._delivery = delivery
    message.body = body
    if isinstance(headers, bytes):
        message._head, message._headers = headers, None
        message.size = len(body) + len(headers)
    else:
        message._head, message._headers = None, headers
        message.size = len(body) + headers.size
    message._settled = message._claimant = None
    message._counted = False
    if delivery.cumulative:
        delivery.delivered += 1  # on the reader
        message._order = delivery.delivered
    else:
        message._order = 0
    return message


delivery_of: Callable[[Message], Delivery] = attrgetter("_delivery")
"""Returns the link, the acker and the subscription of a message, for the rest of stompy.

In C, as it is called for each message.
"""


def header_table(messages: Sequence[Message]) -> tuple[list[str], list[tuple[str, ...]]] | None:
    """Return the headers of messages of one link, at least one, as `table_of` does."""
    rows = [message._head or message.headers for message in messages]
    return table_of(rows, messages[0]._delivery.link.protocol.grammar)


flow_of: Callable[[Message], FlowControl] = attrgetter("_delivery.link.flow")
"""Returns the flow control that counts a message."""


def release(messages: Iterable[Message]) -> None:
    """Tell flow control that messages no longer wait for user code."""
    for message in messages:
        flow_of(message).taken(message)


class Acker:
    """Sends ACK and NACK for the messages of one connection, once per message and on the link that delivered it."""

    def __init__(self) -> None:
        self._warned = False
        self.failed = FailedFrames()
        """Counts the frames of the connection that fail after the call that sent them."""
        self.claims = make_lock(Rank.LEAF, "claims")
        self.connection: Callable[[], MessageSender | None] = lambda: None
        """Returns the connection, for what is sent because of a message."""

    def acknowledge(
        self,
        message: Message,
        command: str,
        receipt: bool = False,
        requeue: bool | None = None,
        shared: bool = False,
    ) -> Receipt | None:
        """Send ACK or NACK for a message; raises as `claim` and `Writer.write` do.

        Args:
            message: to settle.
            command: `"ACK"` or `"NACK"`.
            receipt: request a receipt and return it.
            requeue: of `Message.nack`.
            shared: without a receipt; see `Delivery.write_shared`.
        """
        delivery, unsent = message._delivery, [message]
        link = delivery.link
        written = unsent.clear if not message._order else partial(self._written, message, unsent)
        try:
            head = self.claim(message, command, unsent, requeue)
            if shared:
                delivery.write_shared(head + b"\n\0")
                written()
                return None
            handle = link.receipts.make() if receipt else None
            frame = head + b"\n\0" if handle is None else b"%b%b\n\0" % (head, receipt_line(handle))
            # Checked again with the write lock: another thread may have ended the subscription since, and some brokers
            # end the session at an ACK that comes after its UNSUBSCRIBE.
            link.writer.write(frame, handle, DEFAULT, 0.0, 1, delivery.check_subscribed, written)
            if handle is not None:
                self.failed.watch(handle)
            return handle
        except BaseException:
            if unsent:
                self.give_back(message, unsent)
            raise

    def _written(self, message: Message, unsent: list[Message]) -> None:
        unsent.clear()
        if message._settled == "ACK" or not message._delivery.link.dialect.nack_is_individual:
            self.cover(message)

    def cover(self, message: Message) -> None:
        """Record that earlier messages of a cumulative subscription are settled with this one."""
        if message._order and message._settled is not None:
            with self.claims:
                message._delivery.cover(message._order, message._settled)

    def handled(self, message: Message) -> None:
        """Acknowledge in mode `handled`, unless the handler raised, or the user has settled the message or tried to."""
        if message.settled is not None or hasattr(message, "_failed") or hasattr(message, "_explicit"):
            return
        try:
            self.acknowledge(message, "ACK")
        except StompError as error:
            if message.settled is None:  # else another thread was faster
                _log_unsettled(message, "ACK", error)

    def raised(self, message: Message, *, nack: bool) -> None:
        """Record that the handler raised; send NACK if requested and if the broker would not drop the message."""
        if message.ack_mode == "auto" or hasattr(message, "_failed"):
            return
        message._failed = True
        if message._order:
            message._delivery.failed.append(message)
        if nack and message.settled is None:
            try:
                self.refuse(message)
            except StompError as error:
                _log_unsettled(message, "NACK", error)

    def refuse(self, message: Message) -> None:
        """Send NACK for a message whose handler failed, unless the broker would drop it or refuse others with it.

        Raises:
            AckError: the message stays unacknowledged, for the reason given.
            StompError: as `acknowledge`.
        """
        dialect = message._delivery.link.dialect
        reason = dialect.why_nack_loses(message.headers.get)
        settles_others = message._order > 1 and message._delivery.covered(message._order - 1) is None
        if reason is None and settles_others and not dialect.nack_is_individual:
            reason = "in mode 'client' a NACK would also reject earlier unacknowledged messages"
        if reason is not None:
            raise AckError(reason)
        # Explicit, as RabbitMQ's default depends on its configuration.
        self.acknowledge(message, "NACK", requeue=True if dialect.nack == "requeued" else None)

    def claim(
        self,
        message: Message,
        command: str,
        claimant: object,
        requeue: bool | None = None,
        transaction: bool = False,
    ) -> bytes:
        """Claim a message for ACK or NACK and return the command and header lines that name it.

        `claimant` may give it back, even if this raised, as a signal may arrive after the claim was made.

        Raises:
            AckError: the message needs no acknowledgement, already has one, its link has ended, or the frame would also
                acknowledge a message whose handler raised.
            LocalProtocolError: the version has no NACK.
            ConfigurationError: the broker does not support the request.
        """
        delivery = message._delivery
        if delivery.ack_mode == "auto":
            raise AckError("a message of an 'auto' subscription needs no ACK: it was consumed when the broker sent it")
        link, source = delivery.link, delivery.source
        if not link.alive:
            raise AckError("the session that delivered this message has ended; the broker will deliver it again")
        head, alone = _ack_head(message, command), False
        if transaction or command == "NACK" or (source is not None and source.unsubscribing):
            dialect = link.dialect
            delivery.check_subscribed()
            if transaction:
                dialect.check_transacted(command)
            if command == "NACK":
                alone = dialect.nack_is_individual
                head += encode_lines(command, dialect.nack_headers(requeue).items(), grammar=link.protocol.grammar)
                self._warn(message, dialect, requeue)
        with self.claims:
            if message.settled is not None:
                raise AckError(f"{message.settled} was already sent for message {message.message_id!r}")
            # In mode `client`: the first earlier message that this frame would settle although its handler raised.
            failed = None
            if delivery.failed and not alone:
                earlier = (each for each in delivery.failed if each._order < message._order)
                failed = next((each for each in earlier if each.settled is None), None)
            if failed is not None:
                raise AckError(
                    f"in mode 'client' this {command} would settle message {failed.message_id!r} too, whose handler"
                    " raised: settle that one first, by an ack() or nack() of its own"
                )
            # The claimant first: a signal in between leaves a message that can still be given back.
            message._claimant = claimant
            message._settled = command
        return head

    def _warn(self, message: Message, dialect: Dialect, requeue: bool | None) -> None:
        """Warn once per connection if the broker will drop the message instead of dead-lettering it."""
        lost = dialect.why_nack_loses(message.headers.get) if dialect.nack == "dead letter" else None
        if lost is not None and requeue is None and not self._warned:
            self._warned = True
            _LOG.warning(
                "NACK of %.200r from %.200r drops the message (requeue=False silences this warning): %s",
                message.message_id,
                message.destination,
                lost,
                extra=log_fields(message),
            )

    def give_back(self, message: Message, claimant: object) -> None:
        """Undo a claim, if there is one: the frame was not written, or its transaction was aborted.

        From then on only the caller knows whether the message was handled, so it is not acknowledged by itself.
        """
        with self.claims:
            message._explicit = True
            if message._claimant is claimant:
                message._settled = message._claimant = None


def _log_unsettled(message: Message, command: str, error: StompError) -> None:
    source = message._delivery.source
    if message.session_ended or (source is not None and source.unsubscribing):
        level, why = logging.INFO, "as the broker redelivers it"
    else:
        level, why = logging.WARNING, "which stays unacknowledged and counts towards the prefetch"
    _LOG.log(
        level,
        "sent no %s for message %.200r from %.200r, %s: %s",
        command,
        message.message_id,
        message.destination,
        why,
        error,
        extra=log_fields(message),
    )


def _ack_head(message: Message, command: str) -> bytes:
    """Return the command of an ACK or NACK and the lines that name a message; raises as `ack_headers` does."""
    link = message._delivery.link
    grammar = link.protocol.grammar
    if link.version is Version.V1_2:
        # Sent back as received, still escaped.
        head = message._head
        if head is None:
            head = (text_on_the_wire(message.headers) or "").encode("utf-8", grammar.utf8_errors)
        start = head.find(b"\nack:") + 5
        if start > 4:
            token = head[start : head.index(b"\n", start)]
            if token.find(b"\r") < 0:  # CPython 3.11 first makes the text of an error for `in`
                return b"%b\nid:%b\n" % (command.encode(), token)
    headers = ack_headers(command, message.headers.get, link.version)
    if grammar.draft:
        headers["content-length"] = "0"  # every frame has one there
    return encode_head(command, headers.items(), grammar=grammar)


# Messages that no broker has delivered, for tests of the code that handles them.

_DETACHED_NUMBERS = itertools.count(1)


def detached(
    body: Body,
    *,
    destination: str,
    headers: Mapping[str, object],
    content_type: str | None,
    ack: AckMode,
    sender: object,
) -> Message:
    """Return a message as if it had been received.

    Args:
        body: as for `Connection.send`.
        destination: it was sent to.
        headers: any others; `message-id` is generated unless it is one of them.
        content_type: as for `Connection.send`.
        ack: the mode of its subscription.
        sender: its method `send` is called by `Message.reply` and `Message.forward`.

    Raises:
        LocalProtocolError: as `Connection.send`.
    """
    check_destination(destination)
    data, kind = encode_body(body, content_type)
    fields = {"destination": destination, "message-id": f"detached-{next(_DETACHED_NUMBERS)}", **user_headers(headers)}
    if kind is not None:
        fields["content-type"] = kind
    link = cast("Link", SimpleNamespace(alive=True))
    source = cast("ActiveSubscription", SimpleNamespace(ack=ack, unsubscribing=False))
    return received(Delivery(link, _DetachedAcker(cast("MessageSender", sender)), source), Headers(fields), data)


class _DetachedAcker(Acker):
    """Records ACK and NACK in the message."""

    def __init__(self, sender: MessageSender) -> None:
        super().__init__()
        self.connection = lambda: sender
        self._receipts = Receipts("detached-", cast("Link", None))

    def acknowledge(
        self,
        message: Message,
        command: str,
        receipt: bool = False,
        requeue: bool | None = None,
        shared: bool = False,
    ) -> Receipt | None:
        if message.ack_mode == "auto":
            raise AckError("a message of an 'auto' subscription needs no ACK")
        with self.claims:
            if message.settled is not None:
                raise AckError(f"{message.settled} was already sent for message {message.message_id!r}")
            message._settled = command
        if not receipt:
            return None
        handle = self._receipts.make()
        self._receipts.register(handle)
        self._receipts.confirm(handle.id)
        return handle

    def refuse(self, message: Message) -> None:
        self.acknowledge(message, "NACK")
