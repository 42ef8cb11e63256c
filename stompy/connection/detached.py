"""Messages that no broker has delivered, for tests of the code that handles them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from stompy.connection.codec import Body, encode_body, user_headers
from stompy.connection.encoding import check_destination
from stompy.connection.message import Acker, Delivery, Message
from stompy.errors import AckError
from stompy.frames.frame import Headers
from stompy.link.link import Link
from stompy.link.receipts import Receipt, Receipts

if TYPE_CHECKING:
    from stompy.connection.connection import Connection
    from stompy.connection.subscription import AckMode, Subscription

_NUMBERS = itertools.count(1)


def detached(
    body: Body,
    *,
    destination: str,
    headers: Mapping[str, object],
    content_type: str | None,
    ack: AckMode,
    sender: object,
) -> Message:
    """Return a message as if it had been received.

    Args:
        body: as for `Connection.send`.
        destination: it was sent to.
        headers: any others; `message-id` is generated unless it is one of them.
        content_type: as for `Connection.send`.
        ack: the mode of its subscription.
        sender: whose method `send` gets what `Message.reply` and `Message.forward` send.

    Raises:
        LocalProtocolError: as `Connection.send`.
    """
    check_destination(destination)
    data, kind = encode_body(body, content_type)
    fields = {"destination": destination, "message-id": f"detached-{next(_NUMBERS)}", **user_headers(headers)}
    if kind is not None:
        fields["content-type"] = kind
    link = cast("Link", SimpleNamespace(alive=True))
    source = cast("Subscription", SimpleNamespace(ack=ack, _unsubscribing=False))
    return Message(Delivery(link, _Acker(cast("Connection", sender)), source), Headers(fields), data)


class _Acker(Acker):
    """Records ACK and NACK in the message."""

    def __init__(self, sender: Connection) -> None:
        super().__init__()
        self.connection = lambda: sender
        self._receipts = Receipts("detached-", cast("Link", None))

    def acknowledge(
        self,
        message: Message,
        command: str,
        *,
        receipt: bool = False,
        requeue: bool | None = None,
        shared: bool = False,
    ) -> Receipt | None:
        if message.ack_mode == "auto":
            raise AckError("a message of an 'auto' subscription needs no ACK")
        with self.claims:
            if message.settled is not None:
                raise AckError(f"{message.settled} was already sent for message {message.message_id!r}")
            message._claim(command, self)
        if not receipt:
            return None
        handle = self._receipts.make()
        self._receipts.register(handle)
        self._receipts.confirm(handle.id)
        return handle

    def refuse(self, message: Message) -> None:
        self.acknowledge(message, "NACK")
