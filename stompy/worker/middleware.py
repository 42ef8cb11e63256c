"""`Middleware`: what a worker calls when something happens."""

from __future__ import annotations

from stompy.connection.message import Message
from stompy.worker.task import Task


class Middleware:
    """Base class of what a worker calls: override the methods that you need.

    Those with a message run on the thread of its task; what they raise is logged.
    """

    def started(self) -> None:
        """Called when the worker takes messages."""

    def stopping(self) -> None:
        """Called when the worker takes no more messages."""

    def before(self, task: Task, message: Message, /) -> None:
        """Called before an attempt."""

    def after(self, task: Task, message: Message, /) -> None:
        """Called after the message was processed and acknowledged."""

    def failed(self, task: Task, message: Message, error: BaseException, /) -> None:
        """Called after a failed attempt."""

    def retried(self, task: Task, message: Message, /) -> None:
        """Called after the next attempt was sent to its queue."""

    def deferred(self, task: Task, message: Message, /) -> None:
        """Called after the message was put off without counting an attempt."""

    def dead_lettered(self, task: Task, message: Message, /) -> None:
        """Called after the message was moved to the dead letters."""

    def duplicate(self, task: Task, message: Message, /) -> None:
        """Called after a message that was processed before was acknowledged without calling the task."""

    def unsettled(self, task: Task, message: Message, /) -> None:
        """Called when the message was not settled, so that the broker redelivers it."""
