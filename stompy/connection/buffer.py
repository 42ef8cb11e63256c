"""Frames that wait to leave together, so that many share one write."""

from __future__ import annotations

import threading

from stompy.errors import ConnectionLost, StompError
from stompy.link.link import Link
from stompy.link.receipts import Receipt

_FLUSH_AT = 64 * 1024
"""Octets that are worth a write of their own."""


class FrameBuffer:
    """Encoded frames for one link; what is in it has passed every check, but has not left. One thread at a time.

    Args:
        link: where they go; the buffer dies with it.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._held: list[tuple[bytes, Receipt | None]] = []
        self._size = 0
        self._thread = threading.get_ident()
        self.flushed = False
        """Whether anything has left."""
        self._failed = False

    @property
    def replaceable(self) -> bool:
        """Whether another may take over without a loss: the link is gone, and all that was in it goes to the next."""
        return not self.link.alive and not self._failed and self._all_kept(self._held)

    def add(
        self,
        command: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        receipt: bool | Receipt = False,
        content_length: bool = True,
    ) -> Receipt | None:
        """Add a frame, and write all of them out when enough has come together.

        Raises:
            LocalProtocolError: the frame cannot be written; nothing was added.
            NotConnected: the connection was closed.
            ConnectionLost: the link died.
        """
        link = self.link
        link.check_open()
        handle = link.receipt_for(receipt)
        try:
            data = link.encode_asking(command, headers, body, handle, content_length=content_length)
            if handle is not None:
                handle.before_wait(self._flush_in_own_thread)
            self._size += len(data)
            self._held.append((data, handle))
        except BaseException as error:
            link.withdraw(command, handle, error)
            raise
        if self._size >= _FLUSH_AT:
            self.flush()
        return handle

    def flush(self, *, timeout: float | None = None) -> None:
        """Write everything out; raises as `Link.transmit` does.

        What is kept for the next link is no loss, so a buffer of nothing else does not complain of a dead one.
        """
        if not self._held:
            return
        held = self._held
        data = b"".join([data for data, _ in held])
        try:
            self.link.transmit(data, frames=len(held), on_left=self._left, timeout=timeout)
        except ConnectionLost:
            if self.link.alive:  # another frame was in the way for too long: all of it may still leave
                raise
            self._left()
            if not self._all_kept(held):
                self._failed = True
                raise
        for _, handle in held:
            if handle is not None:
                handle.before_wait(None)

    def _left(self) -> None:
        self._held, self._size, self.flushed = [], 0, True

    def abandon(self, error: StompError) -> None:
        """Drop what did not leave, though the link lives on; receipts end with `error`, as no answer can come."""
        held, self._held = self._held, []
        for _, handle in held:
            if handle is not None:
                self.link.receipts.forget(handle)
                handle.settle("unknown", error)

    def _flush_in_own_thread(self) -> None:
        if threading.get_ident() == self._thread:
            self.flush()

    @staticmethod
    def _all_kept(held: list[tuple[bytes, Receipt | None]]) -> bool:
        return all(handle is not None and handle.kept for _, handle in held)
