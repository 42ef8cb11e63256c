"""Messages for unit tests of handlers."""

from __future__ import annotations

from collections.abc import Mapping

from stompy.connection.codec import Body
from stompy.connection.message import Message, detached
from stompy.connection.subscription import AckMode
from stompy.worker.once import SendRecorder, SentMessage


def message(
    body: Body = b"",
    *,
    headers: Mapping[str, object] | None = None,
    destination: str = "/queue/test",
    content_type: str | None = None,
    ack: AckMode = "handled",
    sent: list[SentMessage] | None = None,
) -> Message:
    """Return a message that no broker has delivered, to call a handler with in a unit test.

    Its `ack` and `nack` are recorded in its `settled`.

    Args:
        body: as for `Connection.send`.
        headers: such as `reply-to`; `message-id` is generated unless it is one of them.
        destination: it was sent to.
        content_type: as for `Connection.send`.
        ack: the mode of its subscription.
        sent: gets what `Message.reply` and `Message.forward` send.

    Raises:
        LocalProtocolError: the body, a header or the destination could not have been sent.
    """
    recorder = SendRecorder(sent)
    return detached(
        body, destination=destination, headers=headers or {}, content_type=content_type, ack=ack, sender=recorder
    )
