"""Batches: frames that wait to leave together, so that many share one write."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from stompy.errors import ConcurrencyError, ConnectionLost, StompError
from stompy.frames.encoder import Encoded
from stompy.link.link import Link
from stompy.link.receipts import Receipt

if TYPE_CHECKING:
    from stompy.connection.sending import Sender

_FLUSH_AT = 64 * 1024
"""Bytes that are worth a write of their own."""


class FrameBuffer:
    """Encoded frames for one link; what is in it has passed every check, but has not left. One thread at a time.

    Args:
        link: where they go; the buffer dies with it.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._data: list[bytes] = []
        self._receipts: list[Receipt] = []
        self._size = 0
        self._thread = threading.get_ident()
        self.flushed = False
        """Whether anything has left."""
        self._failed = False

    @property
    def replaceable(self) -> bool:
        """Whether another may take over without a loss: the link is gone, and all that was in it goes to the next."""
        return not self.link.alive and not self._failed and self._all_kept()

    def add(self, data: Encoded, receipt: Receipt | None = None) -> None:
        """Add a frame, and write all of them out when enough has come together.

        Args:
            data: the frame.
            receipt: that of the frame.

        Raises:
            LimitExceeded: too many receipts are under way; nothing was added.
            NotConnected: the connection was closed.
            ConnectionLost: the link died.
        """
        link = self.link
        if not isinstance(data, bytes):
            data = b"".join(data)
        if not link.alive:
            link.check_open()
        try:
            if receipt is not None:
                link.receipts.register(receipt)
                receipt._before_wait = self._flush_in_own_thread
                self._receipts.append(receipt)
            self._data.append(data)
        except BaseException:
            if receipt is not None:
                link.receipts.forget(receipt)
                self._receipts = [one for one in self._receipts if one is not receipt]
            raise
        self._size += len(data)
        if self._size >= _FLUSH_AT:
            try:
                self.flush()
            except ConnectionLost:
                if self.link.alive and not (receipt is not None and receipt._kept):
                    self._take_back(data, receipt)
                raise

    def _take_back(self, data: bytes, receipt: Receipt | None) -> None:
        """Forget the newest frame, as its sender is told that it was not sent."""
        self._data.pop()
        self._size -= len(data)
        if receipt is not None:
            self._receipts.remove(receipt)
            self.link.receipts.forget(receipt)

    def flush(self, *, timeout: float | None = None) -> None:
        """Write everything out; raises as `Writer.write` does.

        What is kept for the next link is no loss, so a buffer of nothing else does not complain of a dead one.
        """
        if not self._data:
            return
        receipts, all_kept = self._receipts, self._all_kept()
        try:
            self.link.writer.write(b"".join(self._data), frames=len(self._data), on_left=self._left, timeout=timeout)
        except ConnectionLost:
            if self.link.alive:  # another frame was in the way for too long: all of it may still leave
                raise
            self._left()
            if not all_kept:
                self._failed = True
                raise
        for receipt in receipts:
            receipt._before_wait = None

    def _left(self) -> None:
        self._data, self._receipts, self._size, self.flushed = [], [], 0, True

    def abandon(self, error: StompError) -> None:
        """Drop what did not leave, though the link lives on; receipts end with `error`, as no answer can come."""
        receipts = self._receipts
        self._data, self._receipts = [], []
        for receipt in receipts:
            self.link.receipts.forget(receipt)
            receipt._settle("unknown", error)

    def _flush_in_own_thread(self) -> None:
        if threading.get_ident() == self._thread:
            self.flush()

    def _all_kept(self) -> bool:
        return len(self._receipts) == len(self._data) and all(receipt._kept for receipt in self._receipts)


class Batch:
    """A `with` block whose sends are coalesced; made by `Connection.batch`. It belongs to the thread that opens it.

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
            # Ctrl-C, say: it must arrive. The receipts tell what became of the frames.
            error.__context__ = error.__context__ or failed
        except BaseException:
            with contextlib.suppress(StompError):
                self._sender.close_batch()  # a signal: what has not left yet leaves now
            raise
