"""stompest, measured: its synchronous client, which reads when it is asked to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stompest.config import StompConfig
from stompest.sync import Stomp

from benchmarks.clients import worker
from benchmarks.clients.worker import BATCH, BODY, QUEUE, Action, Feed, Round, order


def connect(port: int, feed: Feed) -> Any:
    """Connect to the peer."""
    client = Stomp(StompConfig(f"tcp://127.0.0.1:{port}", version="1.2"))
    client.connect()
    return client


def received(look: Callable[[Any, Any], object], ack: str = "auto") -> Action:
    """Return an action that takes messages in a loop."""

    def action(port: int, feed: Feed) -> Round:
        client = connect(port, feed)
        for number in range(feed.get("subscriptions", 1)):
            client.subscribe(f"/control/{number}", {"id": str(number), "ack": ack})

        def run(count: int) -> None:
            client.send("/control/give", order(feed, count).encode())
            for _ in range(count):
                look(client, client.receiveFrame())

        return run

    return action


def sent(headers: Callable[[int], dict[str, str] | None]) -> Action:
    """Return an action that sends messages, each with the headers of its number."""

    def action(port: int, feed: Feed) -> Round:
        client = connect(port, feed)

        def run(count: int) -> None:
            for number in range(count):
                client.send(QUEUE, BODY, headers(number))

        return run

    return action


def send_transaction(port: int, feed: Feed) -> Round:
    """Send transactions."""
    client = connect(port, feed)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            with client.transaction() as name:
                for _ in range(min(BATCH, count - start)):
                    client.send(QUEUE, BODY, {"transaction": name})

    return run


def send_receipts(port: int, feed: Feed) -> Round:
    """Send messages with receipts, and take these after each thousand."""
    client = connect(port, feed)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            window = min(BATCH, count - start)
            for number in range(window):
                client.send(QUEUE, BODY, receipt=str(number))
            for _ in range(window):
                client.receipt(client.receiveFrame())

    return run


def latency(port: int, feed: Feed) -> Round:
    """Send a message and take its reply."""
    client = connect(port, feed)
    client.subscribe("/control/0", {"id": "0", "ack": "auto"})

    def run(count: int) -> None:
        for _ in range(count):
            client.send("/control/echo", BODY)
            client.receiveFrame()

    return run


ACTIONS: Mapping[str, Action] = {
    "receive": received(lambda client, frame: frame.body),
    "receive-headers": received(lambda client, frame: (frame.headers["message-id"], frame.headers["priority"])),
    "receive-ack": received(lambda client, frame: client.ack(frame), ack="client-individual"),
    "iterate": received(lambda client, frame: frame.body),
    "send": sent(lambda number: None),
    "send-differing": sent(lambda number: {"number": str(number)}),
    "send-batch": sent(lambda number: None),  # it has no batch
    "send-transaction": send_transaction,
    "send-receipts": send_receipts,
    "latency": latency,
}

if __name__ == "__main__":
    worker.main(ACTIONS)
