"""What many scenarios do."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from typing import Any

import stompy

SOON = 20.0
"""Seconds that something may take before the test fails."""

_END = "end of "

_PUT_BACK = 0.3
"""Seconds that Artemis needs, after it has answered DISCONNECT, to put back what the session had not acknowledged."""


class Recorder(stompy.Listener):
    """Keeps the frames it is given, and the end."""

    def __init__(self) -> None:
        self.connected: list[stompy.Frame] = []
        self.receipts: list[stompy.Frame] = []
        self.errors: list[stompy.Frame] = []
        self.reasons: list[stompy.StompError | None] = []
        self.over = threading.Event()

    def on_connected(self, event: stompy.ConnectedEvent) -> None:
        self.connected.append(event.frame)

    def on_receipt(self, frame: stompy.Frame) -> None:
        self.receipts.append(frame)

    def on_error(self, frame: stompy.Frame) -> None:
        self.errors.append(frame)

    def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
        self.reasons.append(event.reason)
        self.over.set()


def send_all(connection: stompy.Connection, destination: str, bodies: Iterable[Any], **options: Any) -> None:
    """Send messages, and wait until the broker has them, one after the other."""
    for body in bodies:
        connection.send(destination, body, confirm=True, **options)


def texts(subscription: stompy.Subscription, count: int) -> list[str]:
    """Return the texts of the next messages, which stay unacknowledged."""
    return [subscription.receive(timeout=SOON).text for _ in range(count)]


def until_end(connection: stompy.Connection, subscription: stompy.Subscription) -> list[stompy.Message]:
    """Return what the broker has for a subscription now.

    Found out by round trips through its destination: two, as what a lost session gives back may come after the first.
    """
    messages: list[stompy.Message] = []
    for _ in range(2):
        mark = _END + uuid.uuid4().hex
        connection.send(subscription.destination, mark, confirm=True)
        while (message := subscription.receive(timeout=SOON)).text != mark:
            if not message.text.startswith(_END):
                messages.append(message)
    return messages


def put_back(connection: stompy.Connection) -> None:
    """Wait until what an ended session had not acknowledged is in its queue again, if the broker is slow at that."""
    if "Artemis" in (connection.server or "Artemis"):
        threading.Event().wait(_PUT_BACK)


def left(connection: stompy.Connection, queue: str) -> list[stompy.Message]:
    """Return, and consume, what is in a queue."""
    put_back(connection)
    subscription = connection.subscribe(queue)
    messages = until_end(connection, subscription)
    subscription.close()
    return messages


def acked(message: stompy.Message) -> None:
    """Acknowledge, and wait until the broker has done it."""
    receipt = message.ack_async()
    receipt.result(SOON)


def refused(message: stompy.Message) -> None:
    """Refuse, and wait until the broker has done it; where stompy wants to hear that it will be gone, say so."""
    try:
        receipt = message.nack_async()
    except stompy.ConfigurationError:
        receipt = message.nack_async(requeue=False)
    receipt.result(SOON)


def seen(messages: Iterable[stompy.Message]) -> str:
    """Return the texts, with a star behind what was redelivered."""
    return " ".join(message.text + "*" * message.redelivered for message in messages) or "nothing"


REFUSED = "refused by stompy"
"""What a test has seen where the client knows that the broker cannot do it, and says so before anything is sent."""
