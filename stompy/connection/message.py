"""A received message."""

from __future__ import annotations

from typing import Any, Protocol

from stompy.connection.codec import decode_json, decode_text
from stompy.frames.frame import Frame, show_body
from stompy.frames.headers import Headers
from stompy.link.link import Link
from stompy.link.receipts import Receipt


class Acker(Protocol):
    """Sends ACK and NACK; the connection's core."""

    def acknowledge(
        self, message: Message, command: str, *, transaction: str | None = None, receipt: bool = False
    ) -> Receipt | None:
        """Send the right frame for the version."""
        ...


class Message:
    """One MESSAGE frame, as a handler, a listener or an iteration gets it.

    It knows the link it came over: it can be acknowledged on that link and never on another. Any thread may use it.

    Attributes:
        frame: the frame itself.
        ack_mode: of its subscription: `"auto"`, `"client"` or `"client-individual"`.
    """

    __slots__ = ("_acker", "_settled", "ack_mode", "frame", "link")

    def __init__(self, frame: Frame, link: Link, acker: Acker, *, ack_mode: str) -> None:
        self.frame = frame
        self.link = link
        self.ack_mode = ack_mode
        self._acker = acker
        self._settled: str | None = None

    @property
    def body(self) -> bytes:
        """The octets as received."""
        return self.frame.body

    @property
    def text(self) -> str:
        """The body as text, by its declared charset.

        Raises:
            BodyDecodeError: it is not text; the error keeps the bytes.
        """
        return decode_text(self.frame.body, self.frame.headers.peek("content-type"))

    def json(self) -> Any:
        """Return the value in a JSON body.

        Raises:
            BodyDecodeError: it is not JSON; the error keeps the bytes.
        """
        return decode_json(self.frame.body, self.frame.headers.peek("content-type"))

    @property
    def headers(self) -> Headers:
        """All headers; of a repeated one the first value."""
        return self.frame.headers

    @property
    def destination(self) -> str:
        """Where it was sent to."""
        return self.frame.headers.peek("destination") or ""

    @property
    def message_id(self) -> str:
        """The broker's id of this message."""
        return self.frame.headers.peek("message-id") or ""

    @property
    def subscription(self) -> str | None:
        """The id of the subscription it came by; `None` where a 1.0 broker does not say."""
        return self.frame.headers.peek("subscription")

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it was delivered before."""
        return self.frame.headers.get("redelivered", "").lower() == "true"

    @property
    def settled(self) -> str | None:
        """`"ACK"` or `"NACK"` once one of them was sent, else `None`."""
        return self._settled

    def claim(self, command: str | None) -> None:
        """Note which frame settles the message; for stompy's own use."""
        self._settled = command

    def ack(self, *, receipt: bool = False) -> Receipt | None:
        """Tell the broker that the message was consumed.

        In mode `client` it covers all earlier messages of the subscription too (STOMP 1.2, SUBSCRIBE ack Header).

        Raises:
            AckError: in mode `auto`, a second time, or its link is gone: then the broker redelivers it.
        """
        return self._acker.acknowledge(self, "ACK", receipt=receipt)

    def nack(self, *, receipt: bool = False) -> Receipt | None:
        """Tell the broker that the message was not consumed; what it then does is its own choice (STOMP 1.2, NACK).

        Raises:
            AckError: as `ack`.
            LocalProtocolError: STOMP 1.0 has no NACK.
        """
        return self._acker.acknowledge(self, "NACK", receipt=receipt)

    def __repr__(self) -> str:
        state = f" {self._settled}" if self._settled else ""
        return f"<Message {self.message_id!r} from {self.destination!r} {show_body(self.body)}{state}>"
