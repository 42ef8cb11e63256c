"""Browsing: a subscription that looks at the messages of a queue, takes none and comes to an end."""

from __future__ import annotations

import contextlib

from stompy.connection.message import Message
from stompy.connection.subscription import Subscription
from stompy.deadline import Deadline
from stompy.errors import StompError


class Browsing(Subscription):
    """The messages that lie in a queue; iteration ends behind the last of them. Made by `subscribe(browse=True)`."""

    def is_end(self, message: Message) -> bool:
        """Whether it is ActiveMQ's mark behind the last message, which is no message itself."""
        return message.headers.peek("browser") == "end"

    def lost(self, reason: StompError) -> bool:
        """End for good: on another link it would begin anew."""
        self.end(reason)
        return True

    def _next(self, deadline: Deadline) -> Message | None:
        message = super()._next(deadline)
        if message is None:
            # The reader, which met the mark, never writes; to the broker the subscription is still there.
            with contextlib.suppress(StompError):
                self.unsubscribe(timeout=deadline.remaining())
        return message
