"""stomp.py, measured."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import stomp

from benchmarks.clients import worker
from benchmarks.clients.worker import (
    BATCH,
    DOCUMENT,
    OWN_QUEUE,
    QUEUE,
    TEXT,
    TYPED,
    WAIT,
    Action,
    Feed,
    Round,
    order,
)


class Listener:
    """Counts messages down and knows when all have come."""

    def __init__(self, look: Callable[[Any], object]) -> None:
        self._look = look
        self._left = 0
        self._done = threading.Event()

    def expect(self, count: int) -> None:
        """Begin a round."""
        self._left = count
        self._done.clear()

    def on_message(self, frame: Any) -> None:
        """Take a message."""
        self._look(frame)
        self._left -= 1
        if not self._left:
            self._done.set()

    def wait(self) -> None:
        """Wait for the last message."""
        if not self._done.wait(WAIT):
            raise TimeoutError(f"{self._left} messages did not come")


def connect(port: int, feed: Feed) -> Any:
    """Connect to the peer."""
    host = "localhost" if "certificate" in feed else feed.get("host", "127.0.0.1")
    connection = stomp.Connection12([(host, port)], vhost=feed.get("vhost"))
    if "certificate" in feed:
        connection.set_ssl([(host, port)], ca_certs=feed["certificate"])
    connection.connect(feed.get("login"), feed.get("passcode"), wait=True)
    return connection


def handled(look: Callable[[Any, Any], object], ack: str = "auto") -> Action:
    """Return an action that gives each message to a listener."""

    def action(port: int, feed: Feed) -> Round:
        connection = connect(port, feed)
        listener = Listener(lambda frame: look(connection, frame))
        connection.set_listener("", listener)
        for number in range(feed.get("subscriptions", 1)):
            connection.subscribe(f"/control/{number}", id=str(number), ack=ack)

        def run(count: int) -> None:
            listener.expect(count)
            connection.send("/control/give", order(feed, count))
            listener.wait()

        return run

    return action


def untouched(connection: Any, frame: Any) -> None:
    """Take the body alone."""
    frame.body  # noqa: B018


def read_headers(connection: Any, frame: Any) -> None:
    """Take the body and two headers."""
    frame.body, frame.headers["message-id"], frame.headers["priority"]


def acknowledged(connection: Any, frame: Any) -> None:
    """Take the body and acknowledge the message."""
    frame.body  # noqa: B018
    connection.ack(frame.headers["ack"])


def message_of(feed: Feed) -> tuple[str, dict[str, Any]]:
    """Return the body that a feed wants sent, and the arguments of the call."""
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": ("x" * feed.get("body", len(TEXT)), {}),
        "typed": (TEXT, TYPED),
        "persistent": (TEXT, {"headers": {"persistent": "true"}}),
        "json": (json.dumps(DOCUMENT), {"content_type": "application/json"}),
    }
    return kinds[feed.get("kind", "plain")]


def send(port: int, feed: Feed) -> Round:
    """Send messages."""
    connection = connect(port, feed)
    body, options = message_of(feed)

    def run(count: int) -> None:
        for _ in range(count):
            connection.send(QUEUE, body, **options)

    def run_json(count: int) -> None:
        for _ in range(count):
            connection.send(QUEUE, json.dumps(DOCUMENT), **options)

    return run_json if feed.get("kind") == "json" else run


def send_differing(port: int, feed: Feed) -> Round:
    """Send messages with a header that differs each time."""
    connection = connect(port, feed)

    def run(count: int) -> None:
        for number in range(count):
            connection.send(QUEUE, TEXT, headers={"number": str(number)})

    return run


def send_transaction(port: int, feed: Feed) -> Round:
    """Send transactions."""
    connection = connect(port, feed)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            name = connection.begin()
            for _ in range(min(BATCH, count - start)):
                connection.send(QUEUE, TEXT, transaction=name)
            connection.commit(name)

    return run


def send_threads(port: int, feed: Feed) -> Round:
    """Send messages from several threads on one connection."""
    connection = connect(port, feed)

    def work(count: int) -> None:
        for _ in range(count):
            connection.send(QUEUE, TEXT)

    def run(count: int) -> None:
        threads = [threading.Thread(target=work, args=(count // feed["threads"],)) for _ in range(feed["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def latency(port: int, feed: Feed) -> Round:
    """Send a message, and wait until the listener has its reply."""
    connection = connect(port, feed)
    listener = Listener(lambda frame: None)
    connection.set_listener("", listener)
    connection.subscribe("/control/0", id="0")

    def run(count: int) -> None:
        for _ in range(count):
            listener.expect(1)
            connection.send("/control/echo", TEXT)
            listener.wait()

    return run


def through(port: int, feed: Feed) -> Round:
    """Send messages to a queue of a broker and receive them from there."""
    sender, receiver, listener = connect(port, feed), connect(port, feed), Listener(lambda frame: None)
    receiver.set_listener("", listener)
    receiver.subscribe(OWN_QUEUE, id="0")

    def run(count: int) -> None:
        listener.expect(count)
        for _ in range(count):
            sender.send(OWN_QUEUE, TEXT)
        listener.wait()

    return run


def hold(port: int, feed: Feed) -> Round:
    """Keep messages, and return what each takes."""
    connection, kept = connect(port, feed), list[Any]()
    listener = Listener(kept.append)
    connection.set_listener("", listener)
    connection.subscribe("/control/0", id="0")

    def grow(count: int) -> None:
        listener.expect(count)
        connection.send("/control/give", order(feed, count))
        listener.wait()

    return lambda count: worker.growth(grow, count)


def idle(port: int, feed: Feed) -> Round:
    """Open connections, and return what each takes."""
    kept: list[Any] = []
    return lambda count: worker.growth(lambda number: kept.extend(connect(port, feed) for _ in range(number)), count)


ACTIONS: Mapping[str, Action] = {
    "receive": handled(untouched),
    "receive-headers": handled(read_headers),
    "receive-ack": handled(acknowledged, ack="client-individual"),
    "receive-handled": handled(acknowledged, ack="client-individual"),  # its listener acknowledges
    "iterate": handled(untouched),  # it has no iteration
    "send": send,
    "send-differing": send_differing,
    "send-batch": send,  # it has no batch
    "send-transaction": send_transaction,
    "send-receipts": send,  # it does not wait for receipts
    "send-threads": send_threads,
    "latency": latency,
    "through": through,
    "hold": hold,
    "idle": idle,
    "import": worker.importing("import stomp"),
}

if __name__ == "__main__":
    worker.main(ACTIONS)
