"""What a program can hear of a connection."""

from __future__ import annotations

from stompy.connection.message import Message
from stompy.errors import StompError
from stompy.frames.frame import Frame


class ConnectionListener:
    """Base of listeners: override what you want to hear.

    All methods run on the connection's dispatcher thread, one at a time, in the order the listeners were added. They
    may call anything, `send`, `subscribe`, `ack` and `disconnect` included. What they raise is logged and does no harm.
    """

    def on_connected(self, frame: Frame) -> None:
        """Hear, before any frame of it, that a session is open; `frame` is CONNECTED.

        A session may be lost again before it is used, as while subscriptions are made on it: `on_disconnected` follows.
        """

    def on_message(self, message: Message) -> None:
        """Hear of every message of the connection, before the handler of its subscription."""

    def on_handler_error(self, message: Message, error: BaseException) -> None:
        """Called when the handler of a subscription raised `error`; before its next message if they share a thread.

        Where `message.settled` is `None` and its `ack_mode` not `"auto"`, the message was not refused: it holds a place
        in the prefetch until it is settled, which may be done here, or the session ends.
        """

    def on_receipt(self, frame: Frame) -> None:
        """Hear of every RECEIPT."""

    def on_error(self, frame: Frame) -> None:
        """Hear of an ERROR frame; `on_disconnected` follows."""

    def on_heartbeat_timeout(self) -> None:
        """Hear that the broker fell silent; `on_disconnected` follows."""

    def on_reconnecting(self, attempt: int, delay: float) -> None:
        """Hear that attempt number `attempt` at a new session comes in `delay` seconds.

        Also at the first session, with `connect(startup_timeout=...)`.
        """

    def on_closed(self, reason: StompError | None) -> None:
        """Called once per connection, as the last event, when there will be no other session.

        `reason` is why the last attempt to reconnect failed or, without a policy, why the session was lost; `None`
        where `disconnect` or the end of the program closed the connection. Not called where `connect` itself raised.
        """

    def on_disconnected(self, reason: StompError | None) -> None:
        """Hear, once a session, that it is over; `None` where `disconnect` ended it."""
