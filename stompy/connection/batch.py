"""Batches: the sends of one thread that share writes."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from stompy.connection.buffer import FrameBuffer
from stompy.errors import ConcurrencyError
from stompy.link.link import Link


class Current(Protocol):
    """Where the open batch of the calling thread is kept."""

    current: FrameBuffer | None


class Batching(Protocol):
    """The connection's core, as a batch sees it."""

    @property
    def batches(self) -> Current:
        """The open batch of the calling thread."""
        ...

    def live_link(self) -> Link:
        """Return the link to use now."""
        ...


class Batch:
    """A `with` block whose sends are coalesced; made by `Connection.batch`. It belongs to the thread that opens it.

    Args:
        core: of the connection.
    """

    def __init__(self, core: Batching) -> None:
        self._core = core

    def __enter__(self) -> Batch:
        if self._core.batches.current is not None:
            raise ConcurrencyError("this thread has an open batch on this connection already")
        self._core.batches.current = FrameBuffer(self._core.live_link())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        buffer, self._core.batches.current = self._core.batches.current, None
        if buffer is not None:
            buffer.flush()
