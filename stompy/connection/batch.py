"""Batches: the sends of one thread that share writes."""

from __future__ import annotations

from types import TracebackType

from stompy.connection.sending import Sender
from stompy.errors import ConcurrencyError


class Batch:
    """A `with` block whose sends are coalesced; made by `Connection.batch`. It belongs to the thread that opens it.

    Args:
        sender: of the connection.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __enter__(self) -> Batch:
        if not self._sender.open_batch():
            raise ConcurrencyError("this thread has an open batch on this connection already")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sender.close_batch()
