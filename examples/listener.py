"""Print what happens on a connection: `python examples/listener.py [URL]`, without a URL on an embedded broker."""

from __future__ import annotations

import sys
import threading

import stompy
from stompy.broker import Broker


class Audit(stompy.Listener):
    """Prints each event; its methods run on the connection's dispatcher thread."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def on_connected(self, event: stompy.ConnectedEvent) -> None:
        """Called when a session begins."""
        print("connected, STOMP", event.connection.version)

    def on_message(self, message: stompy.Message) -> None:
        """Called for each message."""
        print("message:", message.text)
        if message.text == "bye":
            self.done.set()

    def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
        """Called when the session ends."""
        print("disconnected:", event.reason or "by us")


def main(url: str) -> None:
    """Listen while two messages come."""
    audit = Audit()
    with stompy.connect(url, listeners=[audit]) as conn:
        conn.subscribe("/topic/examples.news")  # without a handler: the listener gets its messages
        conn.send("/topic/examples.news", "hello")
        conn.send("/topic/examples.news", "bye")
        if not audit.done.wait(timeout=5):
            sys.exit("the messages did not arrive")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.url)
