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
        """Hear that a session is open; `frame` is CONNECTED."""

    def on_message(self, message: Message) -> None:
        """Hear of every message of the connection, before the handler of its subscription."""

    def on_receipt(self, frame: Frame) -> None:
        """Hear of every RECEIPT."""

    def on_error(self, frame: Frame) -> None:
        """Hear of an ERROR frame; `on_disconnected` follows."""

    def on_heartbeat_timeout(self) -> None:
        """Hear that the broker fell silent; `on_disconnected` follows."""

    def on_reconnecting(self, attempt: int, delay: float) -> None:
        """Hear that attempt number `attempt` at a new session comes in `delay` seconds."""

    def on_disconnected(self, reason: StompError | None) -> None:
        """Hear, once a session, that it is over; `None` where `disconnect` ended it."""
