"""Sending: from what a program gives to a frame on the link of the moment, or in this thread's batch.

| thread | does here | may block on |
|---|---|---|
| any caller | `send`, `flush_batch` | room, a link and the write, all under one deadline; without a lock |
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Protocol, TypedDict

from stompy.connection.buffer import FrameBuffer
from stompy.connection.composing import Composer
from stompy.connection.config import Config
from stompy.connection.dialects.options import SendOptions
from stompy.connection.unconfirmed import Kept, Unconfirmed
from stompy.deadline import Deadline
from stompy.errors import ConnectionLost, StompError
from stompy.link.link import Link
from stompy.link.receipts import Receipt


class SendArguments(TypedDict, total=False):
    """The keywords of `Connection.send` but for those that decide on what it returns."""

    content_type: str | None
    headers: Mapping[str, object] | None
    content_length: bool | None
    persistent: bool | None
    priority: int | None
    expires: float | None
    delay: float | None
    group: str | None
    dedupe_id: str | None
    timeout: float | None


class _Batches(threading.local):
    """The open batch of each thread."""

    current: FrameBuffer | None = None
    owner: Callable[[], object] | None = None
    """A weak reference to the `with` block's object: it goes with the block, even if a signal struck as that ended."""


class Linking(Protocol):
    """The connection's core, as a sender sees it."""

    config: Config
    composer: Composer

    def live_link(self, timeout: float | None = None) -> Link:
        """Return the link to use now."""
        ...


class Sender:
    """Sends for all threads of a connection.

    Args:
        core: has the links.
        unconfirmed: keeps receipted sends for the next link; `None` where they are not sent again.
    """

    def __init__(self, core: Linking, unconfirmed: Unconfirmed | None) -> None:
        self._core = core
        self._unconfirmed = unconfirmed
        self._batches = _Batches()

    # The open batch of this thread.

    def open_batch(self, owner: object) -> bool:
        """Begin a batch that lives as long as its owner; return whether there was none."""
        if self._current() is not None:
            return False
        self._batches.owner = weakref.ref(owner)
        self._batches.current = FrameBuffer(self._core.live_link())
        return True

    def close_batch(self) -> None:
        """End the batch, and write it out; raises as `flush_batch` does."""
        buffer = self._batches.current
        if buffer is None:
            return
        try:
            buffer.flush()
        except StompError as error:
            self._batches.current = None
            buffer.abandon(error)
            raise
        self._batches.current = None

    def flush_batch(self, *, timeout: float | None = None) -> None:
        """Write out what this thread's open batch holds, if it has one; raises as `FrameBuffer.flush` does."""
        batch = self._current()
        if batch is not None:
            batch.flush(timeout=timeout)

    def _current(self) -> FrameBuffer | None:
        """Return the open batch; one whose block has ended without `close_batch` is written out now."""
        batches = self._batches
        if batches.current is not None and (batches.owner is None or batches.owner() is None):
            self.close_batch()
        return batches.current

    def _batch(self, deadline: Deadline) -> FrameBuffer | None:
        batch = self._current()
        if batch is not None and self._unconfirmed is not None and batch.replaceable:
            batch = self._batches.current = FrameBuffer(self._core.live_link(deadline.remaining()))
        return batch

    # Sending.

    def send(
        self,
        destination: str,
        body: object,
        *,
        content_type: str | None = None,
        headers: Mapping[str, object] | None = None,
        receipt: bool = False,
        content_length: bool | None = None,
        timeout: float | None = None,
        options: SendOptions | None = None,
    ) -> Receipt | None:
        """Send a message, or add it to this thread's open batch."""
        fields, octets = self._core.composer.send(
            destination, body, content_type=content_type, headers=headers, options=options
        )
        config = self._core.config
        counted = config.content_length if content_length is None else content_length
        deadline = Deadline(config.send_timeout if timeout is None else timeout)
        if receipt and self._unconfirmed is not None:
            identity = None if options is None else options.dedupe_id
            return self._send_kept(self._unconfirmed, fields, octets, counted, identity, deadline)
        batch = self._batch(deadline)
        if batch is not None:
            return batch.add("SEND", fields, octets, receipt=receipt, content_length=counted)
        while True:
            link = self._core.live_link(deadline.remaining())
            try:
                return link.request(
                    "SEND", fields, octets, receipt=receipt, content_length=counted, timeout=deadline.remaining()
                )
            except ConnectionLost as lost:
                # Of a link that died just now nothing left, so the next one can have it without any doubt.
                if lost.outcome != "not-sent" or config.reconnect is None or deadline.expired:
                    raise

    def outstanding(self) -> list[Receipt]:
        """Return the receipts under way: those of the live link, and those that wait for the next one."""
        kept = [] if self._unconfirmed is None else self._unconfirmed.receipts()
        return list(dict.fromkeys([*kept, *self._core.live_link().receipts.outstanding()]))

    def _send_kept(
        self,
        unconfirmed: Unconfirmed,
        fields: dict[str, str],
        octets: bytes,
        counted: bool,
        identity: str | None,
        deadline: Deadline,
    ) -> Receipt:
        link = self._core.live_link(deadline.remaining())
        one = unconfirmed.prepare(link, fields, octets, content_length=counted, identity=identity)
        try:
            unconfirmed.make_room(one, link, deadline, lambda: self.flush_batch(timeout=deadline.remaining()))
            self._hand_over(unconfirmed, one, deadline)
        except BaseException:
            unconfirmed.drop(one)
            raise
        return one.receipt

    def _hand_over(self, unconfirmed: Unconfirmed, one: Kept, deadline: Deadline) -> None:
        """Give a kept send to a link; from then on it is not the caller's care any more whether that link dies."""
        while True:
            batch = self._batch(deadline)
            try:
                if batch is not None:
                    headers = unconfirmed.headers(one, batch.link)
                    batch.add("SEND", headers, one.body, receipt=one.receipt, content_length=one.content_length)
                else:
                    link = self._core.live_link(deadline.remaining())
                    link.request(
                        "SEND",
                        unconfirmed.headers(one, link),
                        one.body,
                        receipt=one.receipt,
                        content_length=one.content_length,
                        timeout=deadline.remaining(),
                    )
            except ConnectionLost:
                # What is not kept and was in the batch has died with the link, and must not do so unheard.
                if batch is not None and not batch.link.alive and not batch.replaceable:
                    raise
                if one.admitted:
                    return
                if deadline.expired:
                    raise
            else:
                return
