"""Batches: frames that are collected and written together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from stompy.default import DEFAULT, Default
from stompy.errors import ConcurrencyError, SessionError, StompError
from stompy.frames.encoder import Encoded
from stompy.link.link import Link
from stompy.link.receipts import Receipt, is_resendable, reported, resolve, write_before_wait
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.connection.sending import Sender

_FLUSH_AT = 64 * 1024
"""Bytes at which a buffer is written."""


class FrameBuffer:
    """Encoded frames that are waiting to be written to one link. One thread at a time.

    Args:
        link: to write to; the buffer ends with it.
        owner: returns the `Batch`, or `None` once its block is over, however it ended; for a buffer without a `Batch`,
            any object.
    """

    def __init__(self, link: Link, owner: Callable[[], object] = object) -> None:
        self.link = link
        self.owner = owner
        self._data: list[bytes] = []
        self._receipts: list[Receipt] = []
        self._size = 0
        self._thread = threading.get_ident()
        self.flushed = False
        """Whether anything was written, or will be resent."""
        self._failed = False

    @property
    def replaceable(self) -> bool:
        """Whether the link has ended and everything in the buffer will be resent on the next one."""
        return not self.link.alive and not self._failed and self._all_resendable()

    def successor(self, link: Link) -> FrameBuffer:
        """Return the buffer that takes the place of a replaceable one."""
        buffer = FrameBuffer(link, self.owner)
        buffer.flushed = self.flushed or bool(self._data)
        return buffer

    def add(self, data: Encoded, receipt: Receipt | None = None) -> None:
        """Add a frame; write the buffer when it is large enough.

        Args:
            data: the frame.
            receipt: of the frame.

        Raises:
            LimitExceededError: too many receipts are pending; nothing was added.
            NotConnectedError: the connection was closed.
            ConnectionLostError: the link was lost.
        """
        link = self.link
        if not isinstance(data, bytes):
            data = b"".join(data)
        if not link.alive:
            link.check_open()
        try:
            if receipt is not None:
                link.receipts.register(receipt)
                write_before_wait(receipt, self._flush_in_own_thread)
                self._receipts.append(receipt)
            self._data.append(data)
        except BaseException:
            if receipt is not None:
                link.receipts.forget(receipt)
                self._receipts = [each for each in self._receipts if each is not receipt]
            raise
        self._size += len(data)
        if self._size >= _FLUSH_AT:
            try:
                self._write(DEFAULT)
            except SessionError:
                if self.link.alive and not (receipt is not None and is_resendable(receipt)):
                    self._take_back(data, receipt)
                raise

    def _take_back(self, data: bytes, receipt: Receipt | None) -> None:
        """Remove the newest frame, as the error says that it was not sent."""
        self._data.pop()
        self._size -= len(data)
        if receipt is not None:
            self._receipts.remove(receipt)
            self.link.receipts.forget(receipt)

    def flush(self, *, timeout: float | Default | None = DEFAULT) -> None:
        """Write the buffer now, unless all of it will be resent on the next link.

        Raises:
            SendTimeoutError: another thread was writing for too long. The frames stay in the buffer and may be written
                later, so the outcome is unknown.
            ConnectionLostError: as `Writer.write`, or unknown if some frames were written; the others are dropped.
        """
        before = self.flushed
        try:
            self._write(timeout)
        except SessionError as error:
            if before or self._data:
                error.outcome = "unknown"
            raise

    def close(self) -> None:
        """Write the buffer for the last time; raises as `flush`, but drops what could not be written in time."""
        before = self.flushed
        try:
            self._write(DEFAULT)
        except StompError as error:
            if before and isinstance(error, SessionError):
                error.outcome = "unknown"
            self._abandon(error)
            raise

    def _write(self, timeout: float | Default | None) -> None:
        """Write the buffer; raises as `Writer.write` does, about all that is in it."""
        if not self._data:
            return
        receipts, all_resendable = self._receipts, self._all_resendable()
        try:
            self.link.writer.write(self._data, frames=len(self._data), on_written=self._written, timeout=timeout)
        except SessionError as error:
            if self.link.alive:  # another thread was writing for too long: the buffer can still be written
                raise
            self._written()
            if not all_resendable:
                self._failed = True
                for receipt in receipts:
                    if is_resendable(receipt):
                        error.outcome = "unknown"  # it will be resent
                    else:
                        reported(receipt)
                raise
        for receipt in receipts:
            write_before_wait(receipt, None)

    def _written(self) -> None:
        self._data, self._receipts, self._size, self.flushed = [], [], 0, True

    def _abandon(self, error: StompError) -> None:
        """Drop what was not written, and resolve its receipts as unknown with `error`."""
        receipts = self._receipts
        self._data, self._receipts, self._size = [], [], 0
        for receipt in receipts:
            self.link.receipts.forget(receipt)
            reported(receipt)
            resolve(receipt, error)

    def _flush_in_own_thread(self, timeout: float | Default | None) -> None:
        if threading.get_ident() == self._thread:
            self.flush(timeout=timeout)

    def _all_resendable(self) -> bool:
        return len(self._receipts) == len(self._data) and all(map(is_resendable, self._receipts))


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
