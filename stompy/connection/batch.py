"""Batches: the sends of one thread that share writes."""

from __future__ import annotations

import contextlib
from types import TracebackType

from stompy.connection.sending import Sender
from stompy.errors import ConcurrencyError, StompError


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
