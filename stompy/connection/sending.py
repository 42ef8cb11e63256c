"""Sending messages on the current link, or adding them to this thread's batch; requests and their replies.

| thread | calls | may block on |
|---|---|---|
| any caller | `send`, `flush` | a full resend buffer, a link, the write, receipts: all within one deadline; no lock |
| any caller | `RequestReply.request` | the same; pending requests (leaf), an event without a lock |
| reader | `ReplyInbox.offer` | pending requests (leaf) |
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from stompy.connection.config import Config
from stompy.connection.encoding import SendEncoder, check_destination, check_headers, encode_body, headers_of_send
from stompy.connection.message import Message, release
from stompy.connection.resend_buffer import FrameBuffer, PendingSend, ResendBuffer
from stompy.connection.subscriptions import ActiveSubscription, SubscriptionTable
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default, given
from stompy.dialects.options import SendOptions, check_send_options
from stompy.errors import (
    ConcurrencyError,
    ConfigurationError,
    ConnectionLostError,
    NotConnectedError,
    ReceiptTimeoutError,
    ReceiveTimeoutError,
    SessionError,
    StompError,
)
from stompy.link.receipts import FailedFrames, Receipt, await_outcome, receipt_line
from stompy.locks import Rank, SafeEvent, make_lock
from stompy.world import os, threading, time

if TYPE_CHECKING:
    from stompy.connection.link_manager import LinkManager
    from stompy.frames.encoder import Encoded
    from stompy.link.link import Link

_monotonic = time.monotonic  # called for each message


class _Batches(threading.local):
    """The open batch of each thread."""

    current: FrameBuffer | None = None


class Sender:
    """Sends for all threads of a connection.

    Args:
        config: timeouts, default of `content_length`.
        name: of the connection.
        links: current and later links.
        unconfirmed: resend buffer; empty without a policy to resend.
        failed: counts the frames that fail later.
    """

    def __init__(
        self, config: Config, name: str, links: LinkManager, unconfirmed: ResendBuffer, failed: FailedFrames
    ) -> None:
        self._config = config
        self._failed = failed
        self._name = name
        self._transactions = itertools.count(1)
        self.links = links
        self._unconfirmed = unconfirmed
        self._resends = config.resend is not None
        self._batches = _Batches()
        self._batching = False
        """Whether there ever was a batch: looking for that of a thread takes long."""

    # The open batch of this thread.

    def open_batch(self, owner: object) -> bool:
        """Begin a batch that lasts as long as its owner; return `False` if there is one already."""
        if self._current() is not None:
            return False
        self._batching = True
        self._batches.current = FrameBuffer(self.links.live(), weakref.ref(owner))
        return True

    def close_batch(self) -> None:
        """Write and end the batch; raises as `flush_batch` does."""
        buffer = self._batches.current
        if buffer is None:
            return
        try:
            buffer.close()
        except StompError:
            self._batches.current = None
            raise
        self._batches.current = None

    def flush_batch(self, *, timeout: float | Default | None = DEFAULT) -> None:
        """Write this thread's batch, if there is one; raises as `FrameBuffer.flush` does."""
        batch = self._current()
        if batch is not None:
            batch.flush(timeout=timeout)

    def write(self, link: Link, frame: Encoded, timeout: float | Default | None) -> None:
        """Write a frame to this link and to no other, behind this thread's batch, if it has one for it."""
        batch = self._current()
        if batch is None or batch.link is not link:
            link.writer.write(frame, None, timeout)
        else:
            batch.add(frame)
            batch.flush(timeout=timeout)

    def _current(self) -> FrameBuffer | None:
        """Return the open batch; if its block ended without `close_batch`, close it now."""
        batch = self._batches.current
        if batch is not None and batch.owner() is None:
            self.close_batch()
        return self._batches.current

    def _batch(self, deadline: Deadline) -> FrameBuffer | None:
        batch = self._current()
        if batch is not None and self._resends and batch.replaceable:
            batch = self._batches.current = batch.successor(self.links.live(deadline.remaining()))
        return batch

    # Sending.

    def new_transaction_id(self) -> str:
        """Return a transaction id that is unique in the connection."""
        return f"{self._name}-tx{next(self._transactions)}"

    def send(
        self,
        destination: str,
        body: object,
        content_type: str | None,
        headers: Mapping[str, object] | None,
        options: Mapping[str, object],
        receipt: bool = False,
        timeout: float | Default | None = DEFAULT,
    ) -> Receipt | None:
        """Send a message, or add it to this thread's batch; see `Connection.send`."""
        if receipt and self._resends:
            options = SendEncoder.whole(content_type, options)
            return self._send_resendable(destination, body, headers, options, timeout)
        handle, extra = None, b""
        encoder = self.links.ready
        if self._batching:
            batch = self._batches.current
            if batch is not None and (self._resends or batch.owner() is None):
                batch = self._batch(self._deadline(timeout))
            if batch is not None:
                if encoder is None or encoder.link is not batch.link:
                    encoder = self.links.encoder(batch.link)
                if receipt:
                    handle = batch.link.receipts.make()
                    extra = receipt_line(handle)
                batch.add(encoder.send(destination, body, content_type, headers, options, extra), handle)
                if handle is not None:
                    self._failed.watch(handle)
                return handle
        began = _monotonic()
        if encoder is None:
            # While no link is ready, the last one determines what can be encoded.
            self.links.encoder(self.links.link).send(destination, body, content_type, headers, options)
            encoder, timeout, began = self._next(began, timeout)
        while True:
            if receipt:
                handle = encoder.link.receipts.make()
                extra = receipt_line(handle)
            try:
                # Without a keyword, which costs more.
                encoder.link.writer.write(
                    encoder.send(destination, body, content_type, headers, options, extra), handle, timeout, began
                )
                if handle is not None:
                    self._failed.watch(handle)
                return handle
            except SessionError as error:
                # Nothing was written, so the message can go to the next link without a duplicate.
                if error.outcome != "not-sent" or self._config.reconnect is None:
                    raise
                if self._remaining(began, timeout) == 0:
                    raise
            encoder, timeout, began = self._next(began, timeout)

    def _next(self, began: float, timeout: float | Default | None) -> tuple[SendEncoder, float | None, float]:
        """Wait until a link can be used; return its encoder, the seconds left of the timeout, and the time."""
        link = self.links.live(self._remaining(began, timeout))
        return self.links.encoder(link), self._remaining(began, timeout), _monotonic()

    def _deadline(self, timeout: float | Default | None) -> Deadline:
        return Deadline(given(timeout, self._config.timeouts.send))

    def _remaining(self, began: float, timeout: float | Default | None) -> float | None:
        seconds = given(timeout, self._config.timeouts.send)
        return None if seconds is None else max(0.0, began + seconds - _monotonic())

    def flush(self, timeout: float | None) -> None:
        """Write this thread's batch and wait for all pending receipts; see `Connection.flush`."""
        deadline = Deadline(timeout)
        self.flush_batch(timeout=deadline.remaining())
        late: StompError | None = None
        try:
            pending = (*self._unconfirmed.receipts(), *self.links.link.receipts.outstanding())
            for receipt in dict.fromkeys(pending):
                await_outcome(receipt, deadline, timeout)
        except ReceiptTimeoutError as error:
            late = error
        # Not only of the receipts waited for: others failed before, and their link may have been replaced.
        failed = self._failed.take() or late
        if failed is not None:
            raise failed.with_traceback(None)
        try:
            self.links.live(deadline.remaining())
        except SessionError as error:
            error.outcome = "unknown"  # of what was sent without a receipt
            raise

    def _send_resendable(
        self,
        destination: str,
        body: object,
        headers: Mapping[str, object] | None,
        options: SendOptions,
        timeout: float | Default | None,
    ) -> Receipt:
        check_destination(destination)
        check_send_options(options)
        data, kind = encode_body(body, options.get("content_type"))
        fields = headers_of_send(self.links.link, destination, kind, headers, options)
        deadline = self._deadline(timeout)
        link = self.links.live(deadline.remaining())
        content_length = options.get("content_length")
        unconfirmed = self._unconfirmed
        pending = unconfirmed.prepare(
            link,
            fields,
            data,
            content_length=self._config.content_length if content_length is None else content_length,
            identity=options.get("dedupe_id"),
        )
        try:
            unconfirmed.make_room(pending, link, deadline, lambda: self.flush_batch(timeout=deadline.remaining()))
            self._hand_over(pending, deadline)
        except BaseException:
            unconfirmed.drop(pending)
            raise
        self._failed.watch(pending.receipt)
        return pending.receipt

    def _hand_over(self, pending: PendingSend, deadline: Deadline) -> None:
        """Give a send to a link; once registered, it is resent without the caller if that link ends."""
        while True:
            batch = self._batch(deadline)
            try:
                if batch is not None:
                    batch.add(pending.frame(batch.link), pending.receipt)
                else:
                    link = self.links.live(deadline.remaining())
                    link.writer.write(pending.frame(link), receipt=pending.receipt, timeout=deadline.remaining())
            except SessionError as error:
                # The batch also had frames that cannot be resent: report their loss.
                if batch is not None and not batch.link.alive and not batch.replaceable:
                    if pending.registered:
                        error.outcome = "unknown"  # the next session may be resending it already
                    raise
                if pending.registered:
                    return
                if deadline.expired:
                    raise
            else:
                return


class Batch:
    """A `with` block whose sends are written together; returned by `Connection.batch`. For the thread that enters it.

    Args:
        sender: of the connection.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __enter__(self) -> Batch:
        if not self._sender.open_batch(self):
            raise ConcurrencyError("this thread has an open batch on this connection already")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._sender.close_batch()
        except StompError as failed:
            if error is None or isinstance(error, Exception):
                raise
            # Such as Ctrl-C, which must reach the caller. The receipts have the outcome of the frames.
            error.__context__ = error.__context__ or failed
        except BaseException:
            with contextlib.suppress(StompError):
                self._sender.close_batch()  # a signal: write what is left
            raise


class _PendingRequest(SafeEvent):
    """Set when it has its answer: the reply, or why there will be none."""

    answer: Message | StompError | None = None


class ReplyInbox(ActiveSubscription):
    """The subscription to the connection's temporary queue; the reader resolves requests through it."""

    def __init__(self, subscriptions: SubscriptionTable, *, name: str, late: int = 0) -> None:
        super().__init__(subscriptions, id=name, destination=name, ack="auto")
        self.has_reader = True
        self.late = late
        """Number of replies that came after their timeout, with those of the inboxes before."""
        self.pending: dict[str, _PendingRequest] = {}
        """Requests by correlation id; whoever takes one out answers it."""

    def offer(self, messages: Sequence[Message]) -> None:
        """Resolve the requests that these messages answer; drop and count late replies."""
        release(messages)
        for message in messages:
            correlation = message.headers.get("correlation-id")
            request = self.pending.pop(correlation, None) if correlation is not None else None
            if request is None:
                self.late += 1
                continue
            request.answer = message
            request.set()

    def link_lost(self, reason: StompError) -> bool:
        """End: a temporary queue exists only in its session."""
        self.end(reason)
        return True

    def end(self, reason: StompError | None) -> None:
        """End, and fail all pending requests."""
        super().end(reason)
        while self.pending:
            with contextlib.suppress(KeyError):  # its caller was faster, and has taken out the last one
                _, request = self.pending.popitem()
                request.answer = reason or NotConnectedError("the connection was closed before the reply came")
                request.set()


class RequestReply:
    """Sends requests and waits for their replies.

    Args:
        subscriptions: to subscribe to the reply queue.
        sender: to send the requests.
    """

    def __init__(self, subscriptions: SubscriptionTable, sender: Sender) -> None:
        self._subscriptions = subscriptions
        self._sender = sender
        self._opening = make_lock(Rank.CALL, "opening the reply inbox")
        self._inbox: ReplyInbox | None = None
        self._numbers = itertools.count(1)

    @property
    def late(self) -> int:
        """Replies that came after their timeout."""
        return 0 if self._inbox is None else self._inbox.late

    def request(self, destination: str, body: object, options: SendOptions, *, timeout: float | None) -> Message:
        """Send a request and return its reply; see `Connection.request`."""
        check_destination(destination)
        headers = options.pop("headers", None) or {}
        check_headers(headers)
        for name in {"reply-to", "correlation-id"}.intersection(headers):
            raise ConfigurationError(f"header {name!r} is set by request, to recognise the reply")
        deadline = Deadline(timeout)
        inbox = self._open_inbox(deadline)
        link = self._sender.links.live(deadline.remaining())
        correlation = f"{inbox.id.rpartition('/')[2]}-{next(self._numbers)}"
        request, flow = _PendingRequest(), link.flow
        try:
            inbox.pending[correlation] = request
            if inbox.closed:  # and maybe before it had the request, so that nobody would answer it
                raise ConnectionLostError("the session ended before the request was sent", outcome="not-sent")
            own = {"reply-to": inbox.destination, "correlation-id": correlation}
            encoder = self._sender.links.encoder(link)
            frame = encoder.send(destination, body, options.pop("content_type", None), {**headers, **own}, options)
            self._sender.write(link, frame, DEFAULT if timeout is None else deadline.remaining())
            flow.hold(request)
            request.wait(deadline.remaining())
        finally:
            flow.holders.discard(request)
            inbox.pending.pop(correlation, None)
        if isinstance(request.answer, Message):
            return request.answer
        text = f"no reply from {destination!r} within {timeout or 0:g} s"
        raise request.answer or ReceiveTimeoutError(text, outcome="unknown")

    def _open_inbox(self, deadline: Deadline) -> ReplyInbox:
        """Return the reply inbox; subscribe at the first request, with the lock held until the deadline at most."""
        remaining = deadline.remaining()
        try:
            if not self._opening.acquire(timeout=-1 if remaining is None else remaining):
                raise ReceiveTimeoutError("the reply queue could not be subscribed to in time")
            if self._inbox is None or self._inbox.closed:
                dialect = self._subscriptions.links.link.dialect
                inbox = ReplyInbox(self._subscriptions, name=f"/temp-queue/{os.urandom(8).hex()}", late=self.late)
                self._subscriptions.add(inbox, timeout=deadline.remaining(), announce=dialect.subscribes_temporary)
                self._inbox = inbox
            return self._inbox
        except ReceiptTimeoutError as error:
            raise ReceiveTimeoutError("the reply queue could not be subscribed to in time") from error
        finally:
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may arrive first
                self._opening.release()
            except RuntimeError:
                pass  # it was not acquired
