"""stompy, measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import stompy
from benchmarks.clients import worker
from benchmarks.clients.worker import (
    BATCH,
    BODY,
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
from stompy import Connection, Message
from stompy.broker import Broker


def connect(port: int, feed: Feed) -> Connection:
    """Connect to the peer."""
    if "url" in feed:
        return stompy.connect(feed["url"], heartbeat=(0, 0))
    if "certificate" in feed:
        tls = stompy.Tls(ca=feed["certificate"])
        return stompy.connect(f"stomp+ssl://localhost:{port}", heartbeat=(0, 0), tls=tls)
    return stompy.connect(f"{'ws' if 'ws' in feed else 'stomp'}://127.0.0.1:{port}", heartbeat=(0, 0))


def untouched(message: Message) -> None:
    """Take the body alone."""
    message.body  # noqa: B018


def read_headers(message: Message) -> None:
    """Take the body and two headers."""
    message.body, message.headers["message-id"], message.headers["priority"]


def acknowledged(message: Message) -> None:
    """Take the body and acknowledge the message."""
    message.body  # noqa: B018
    message.ack()


class Counter:
    """Counts messages down and knows when all have come."""

    def __init__(self, look: Callable[[Message], object]) -> None:
        self._look = look
        self._left = 0
        self._done = threading.Event()

    def expect(self, count: int) -> None:
        """Begin a round."""
        self._left = count
        self._done.clear()

    def handle(self, message: Message) -> None:
        """Take a message."""
        self._look(message)
        self._left -= 1
        if not self._left:
            self._done.set()

    def wait(self) -> None:
        """Wait for the last message."""
        if not self._done.wait(WAIT):
            raise TimeoutError(f"{self._left} messages did not come")


def handled(look: Callable[[Message], object], ack: str = "auto") -> Action:
    """Return an action that gives each message to a handler."""

    def action(port: int, feed: Feed) -> Round:
        connection = connect(port, feed)
        counter = Counter(look)
        for number in range(feed.get("subscriptions", 1)):
            connection.subscribe(f"/control/{number}", counter.handle, ack=feed.get("mode", ack))

        def run(count: int) -> None:
            counter.expect(count)
            connection.send("/control/give", order(feed, count))
            counter.wait()

        return run

    return action


def iterate(port: int, feed: Feed) -> Round:
    """Take messages in a loop."""
    connection = connect(port, feed)
    subscription = connection.subscribe("/control/0", ack=feed.get("mode", "auto"))

    def run(count: int) -> None:
        connection.send("/control/give", order(feed, count))
        left = count
        for message in subscription:
            untouched(message)
            left -= 1
            if not left:
                break

    return run


def message_of(feed: Feed) -> tuple[Any, dict[str, Any]]:
    """Return the body that a feed wants sent, and the options of the call."""
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "plain": (b"x" * feed.get("body", len(BODY)), {}),
        "typed": (TEXT, TYPED),
        "persistent": (TEXT, {"persistent": True}),
        "json": (DOCUMENT, {}),
    }
    return kinds[feed.get("kind", "plain")]


def send(port: int, feed: Feed) -> Round:
    """Send messages, one call and one write each."""
    connection = connect(port, feed)
    body, options = message_of(feed)

    def run(count: int) -> None:
        for _ in range(count):
            connection.send(QUEUE, body, **options)

    return run


def send_differing(port: int, feed: Feed) -> Round:
    """Send messages with a header that differs each time."""
    connection = connect(port, feed)

    def run(count: int) -> None:
        for number in range(count):
            connection.send(QUEUE, BODY, headers={"number": str(number)})

    return run


def send_batch(port: int, feed: Feed) -> Round:
    """Send batches."""
    connection = connect(port, feed)
    body, options = message_of(feed)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            with connection.batch():
                for _ in range(min(BATCH, count - start)):
                    connection.send(QUEUE, body, **options)

    return run


def send_transaction(port: int, feed: Feed) -> Round:
    """Send transactions."""
    connection = connect(port, feed)
    body, options = message_of(feed)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            with connection.transaction() as transaction:
                for _ in range(min(BATCH, count - start)):
                    transaction.send(QUEUE, body, **options)

    return run


def send_receipts(port: int, feed: Feed) -> Round:
    """Send messages with receipts, as many in flight as the feed says, and wait for each."""
    connection = connect(port, feed)

    def run(count: int) -> None:
        for start in range(0, count, feed.get("window", BATCH)):
            window = min(feed.get("window", BATCH), count - start)
            if "window" in feed:
                connection.send("/control/hold", str(window))
            receipts = [connection.send_async(QUEUE, BODY) for _ in range(window)]
            for receipt in receipts:
                receipt.result()

    return run


def send_threads(port: int, feed: Feed) -> Round:
    """Send messages from several threads on one connection."""
    connection = connect(port, feed)

    def work(count: int) -> None:
        for _ in range(count):
            connection.send(QUEUE, BODY)

    def run(count: int) -> None:
        threads = [threading.Thread(target=work, args=(count // feed["threads"],)) for _ in range(feed["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def latency(port: int, feed: Feed) -> Round:
    """Send a message, and wait until the handler has its reply."""
    connection = connect(port, feed)
    came = threading.Event()
    connection.subscribe("/control/0", lambda message: came.set(), ack="auto")

    def run(count: int) -> None:
        for _ in range(count):
            came.clear()
            connection.send("/control/echo", BODY)
            if not came.wait(WAIT):
                raise TimeoutError("no reply came")

    return run


def through(port: int, feed: Feed) -> Round:
    """Send messages to a queue of a broker and receive them from there."""
    sender, receiver, counter = connect(port, feed), connect(port, feed), Counter(untouched)
    receiver.subscribe(OWN_QUEUE, counter.handle, ack="auto")

    def run(count: int, _held: Connection = receiver) -> None:  # what nobody holds is closed
        counter.expect(count)
        for _ in range(count):
            sender.send(OWN_QUEUE, BODY)
        counter.wait()

    return run


def hold(port: int, feed: Feed) -> Round:
    """Keep messages, and return what each takes."""
    connection, kept = connect(port, feed), list[Message]()
    counter = Counter(kept.append)
    connection.subscribe("/control/0", counter.handle, ack="auto")

    def grow(count: int) -> None:
        counter.expect(count)
        connection.send("/control/give", order(feed, count))
        counter.wait()

    return lambda count: worker.growth(grow, count)


def idle(port: int, feed: Feed) -> Round:
    """Open connections, and return what each takes."""
    kept: list[Connection] = []
    return lambda count: worker.growth(lambda number: kept.extend(connect(port, feed) for _ in range(number)), count)


def embedded_broker(port: int, feed: Feed) -> Round:
    """Be the embedded broker, between producers in a second process and a consumer in a third."""
    port = urlsplit(Broker(like=feed.get("like")).start().url).port or 0
    consumer, producer = worker.Other("consume", port, feed), worker.Other("produce", port, feed)

    def run(count: int) -> None:
        producer.begin(count)
        if feed.get("waiting"):
            producer.read()
        consumer.begin(count)
        consumer.read()
        if not feed.get("waiting"):
            producer.read()

    return run


def embedded_broker_hop(port: int, feed: Feed) -> Round:
    """Be the embedded broker between two processes; return how long a message takes from one to the other."""
    return worker.hops(urlsplit(Broker(like=feed.get("like")).start().url).port or 0, feed)


def run_worker(port: int, feed: Feed) -> Round:
    """Run a task in a worker with eight threads."""
    runner = stompy.Worker(f"stomp://127.0.0.1:{port}", concurrency=8, heartbeat=(0, 0))
    done = threading.Event()
    numbers = iter(range(0))

    @runner.task("/control/0", prefetch=feed["window"])
    def take(message: Message) -> None:
        message.body  # noqa: B018
        if next(numbers, None) is None:
            done.set()

    runner.start()
    assert runner._engine is not None
    connection = runner._engine.connection

    def run(count: int) -> None:
        nonlocal numbers
        numbers = iter(range(count - 1))  # whose `next` needs no lock
        done.clear()
        connection.send("/control/give", order(feed, count))
        if not done.wait(WAIT):
            raise TimeoutError("not all messages came")

    return run


ACTIONS: Mapping[str, Action] = {
    "receive": handled(untouched),
    "receive-headers": handled(read_headers),
    "receive-ack": handled(acknowledged, ack="client-individual"),
    "receive-handled": handled(untouched, ack="handled"),
    "iterate": iterate,
    "send": send,
    "send-differing": send_differing,
    "send-batch": send_batch,
    "send-transaction": send_transaction,
    "send-receipts": send_receipts,
    "send-threads": send_threads,
    "latency": latency,
    "worker": run_worker,
    "through": through,
    "hold": hold,
    "idle": idle,
    "embedded-broker": embedded_broker,
    "embedded-broker-hop": embedded_broker_hop,
    "import": worker.importing("import stompy; stompy.connect"),
}

if __name__ == "__main__":
    worker.main(ACTIONS)
