"""Frames that wait to leave together, so that many share one write."""

from __future__ import annotations

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
        self._frames: list[bytes] = []
        self._size = 0
        self.flushed = False
        """Whether anything has left."""

    def add(
        self,
        command: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        receipt: bool = False,
        content_length: bool = True,
    ) -> Receipt | None:
        """Add a frame, and write all of them out when enough has come together.

        Raises:
            LocalProtocolError: the frame cannot be written; nothing was added.
            NotConnected: the connection was closed.
            ConnectionLost: the link died.
        """
        handle = self.link.receipts.new() if receipt else None
        if handle is not None:
            headers["receipt"] = handle.id
        try:
            data = self.link.encode(command, headers, body, content_length=content_length)
        except BaseException:
            if handle is not None:
                self.link.receipts.forget(handle)
            raise
        self._frames.append(data)
        self._size += len(data)
        if self._size >= _FLUSH_AT:
            self.flush()
        return handle

    def flush(self, *, timeout: float | None = None) -> None:
        """Write everything out; raises as `Link.transmit` does."""
        if not self._frames:
            return
        frames, self._frames, self._size = self._frames, [], 0
        self.flushed = True
        self.link.transmit(b"".join(frames), frames=len(frames), timeout=timeout)
