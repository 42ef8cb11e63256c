"""The limit: a socket and prepared bytes, without a client."""

from __future__ import annotations

import itertools
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Mapping

from benchmarks.clients import worker
from benchmarks.clients.worker import BATCH, BODY, OWN_QUEUE, QUEUE, Action, Feed, Round, order

READ = 1 << 18


def connect(port: int, feed: Feed) -> socket.socket:
    """Connect to the peer, with as many subscriptions as the feed asks for."""
    raw = socket.create_connection((feed.get("host", "127.0.0.1"), port))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if "certificate" in feed:
        context = ssl.create_default_context(cafile=feed["certificate"])
        raw = context.wrap_socket(raw, server_hostname="localhost")
    login = "login:{login}\npasscode:{passcode}\n".format(**feed) if "login" in feed else ""
    raw.sendall(f"CONNECT\naccept-version:1.2\nhost:{feed.get('vhost', '/')}\n{login}\n\0".encode())
    take(raw, 1)
    for number in range(feed.get("subscriptions", 1)):
        raw.sendall(f"SUBSCRIBE\nid:{number}\ndestination:/control/{number}\n\n\0".encode())
    return raw


def take(raw: socket.socket, frames: int) -> None:
    """Read so many frames."""
    while frames:
        data = raw.recv(READ)
        assert data, "the peer has ended"
        frames -= data.count(0)


def frame(destination: str, body: bytes, header: str = "") -> bytes:
    """Return a SEND frame."""
    return f"SEND\ndestination:{destination}\ncontent-length:{len(body)}\n{header}\n".encode() + body + b"\0"


def receive(port: int, feed: Feed) -> Round:
    """Read, and count the ends of frames; a binary body contains one NUL."""
    raw = connect(port, feed)
    nuls = 2 if feed.get("binary") else 1

    def run(count: int) -> None:
        raw.sendall(frame("/control/give", order(feed, count).encode()))
        take(raw, count * nuls)

    return run


def send(port: int, feed: Feed) -> Round:
    """Write one prepared frame, one call each."""
    raw = connect(port, feed)
    data = frame(QUEUE, b"x" * feed.get("body", len(BODY)))

    def run(count: int) -> None:
        for _ in range(count):
            raw.sendall(data)

    return run


def send_differing(port: int, feed: Feed) -> Round:
    """Write frames with a header that differs."""
    raw = connect(port, feed)

    def run(count: int) -> None:
        for number in range(count):
            raw.sendall(frame(QUEUE, BODY, f"number:{number}\n"))

    return run


def send_batch(port: int, feed: Feed) -> Round:
    """Write frames by the thousand."""
    raw = connect(port, feed)
    data = frame(QUEUE, BODY)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            raw.sendall(b"".join([data for _ in range(min(BATCH, count - start))]))

    return run


def send_receipts(port: int, feed: Feed) -> Round:
    """Write frames with receipts, one call each, and read the answers after each thousand."""
    raw = connect(port, feed)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            window = min(BATCH, count - start)
            for number in range(window):
                raw.sendall(frame(QUEUE, BODY, f"receipt:{number}\n"))
            take(raw, window)

    return run


def latency(port: int, feed: Feed) -> Round:
    """Write a frame and read its reply."""
    raw = connect(port, feed)
    data = frame("/control/echo", BODY)

    def run(count: int) -> None:
        for _ in range(count):
            raw.sendall(data)
            take(raw, 1)

    return run


def through(port: int, feed: Feed) -> Round:
    """Send messages to a queue of a broker and receive them from there."""
    sender, receiver = (connect(port, {**feed, "subscriptions": 0}) for _ in range(2))
    receiver.sendall(f"SUBSCRIBE\nid:0\ndestination:{OWN_QUEUE}\nack:auto\nreceipt:0\n\n\0".encode())
    take(receiver, 1)
    data = frame(OWN_QUEUE, BODY)

    def produce(count: int) -> None:
        for _ in range(count):
            sender.sendall(data)

    def run(count: int) -> None:
        producer = threading.Thread(target=produce, args=(count,))
        producer.start()
        take(receiver, count)
        producer.join()

    return run


def destinations(feed: Feed) -> list[str]:
    """Return where producers send to and consumers subscribe."""
    return [f"{feed.get('destination', QUEUE)}-{number}" for number in range(feed.get("queues", 1))]


def produce(port: int, feed: Feed) -> Round:
    """Write messages to the destinations in turn, on several connections; end when the broker has taken all."""
    raws = [connect(port, {**feed, "subscriptions": 0}) for _ in range(feed.get("producers", 1))]
    used = destinations(feed)[: feed.get("used")]
    frames = [frame(destination, BODY, feed.get("header", "")) for destination in used]

    def work(raw: socket.socket, count: int) -> None:
        turns, batch = itertools.cycle(frames), feed.get("batch", 1)
        for start in range(0, count, batch):
            raw.sendall(b"".join(itertools.islice(turns, min(batch, count - start))))
        raw.sendall(b"BEGIN\ntransaction:1\n\n\0ABORT\ntransaction:1\nreceipt:1\n\n\0")
        take(raw, 1)

    def run(count: int) -> None:
        threads = [threading.Thread(target=work, args=(raw, count // len(raws))) for raw in raws]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def consume(port: int, feed: Feed) -> Round:
    """Subscribe to the destinations, with one selector or several, take messages, and end the subscriptions."""
    selectors = [f"selector:{feed['selector'] % number}\n" for number in range(feed.get("selectors", 0))]
    subscriptions = list(itertools.product(destinations(feed), selectors or [""]))
    raw = connect(port, {**feed, "subscriptions": 0})

    def each(command: str) -> None:
        for number, (destination, selector) in enumerate(subscriptions):
            header = f"destination:{destination}\n{selector}" if command == "SUBSCRIBE" else ""
            receipt = "receipt:1\n" if number + 1 == len(subscriptions) else ""
            raw.sendall(f"{command}\nid:{number}\n{header}{receipt}\n\0".encode())

    def take_all(count: int) -> None:
        each("SUBSCRIBE")
        take(raw, count + 1)
        each("UNSUBSCRIBE")
        take(raw, 1)

    if feed.get("waiting"):
        return take_all
    each("SUBSCRIBE")
    take(raw, 1)
    return lambda count: take(raw, count)


def hop(port: int, feed: Feed) -> Round:
    """Exchange messages with `echo` in another process, one in flight; return the median of half the way in µs."""
    raw, data = connect(port, {**feed, "subscriptions": 0}), frame(f"{QUEUE}-there", BODY)
    raw.sendall(f"SUBSCRIBE\nid:0\ndestination:{QUEUE}-back\nreceipt:1\n\n\0".encode())
    take(raw, 1)

    def run(count: int) -> float:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            raw.sendall(data)
            take(raw, 1)
            times.append(time.perf_counter() - began)
        return 1e6 * statistics.median(times) / 2

    return run


def echo(port: int, feed: Feed) -> Round:
    """Answer what `hop` sends."""
    raw, data = connect(port, {**feed, "subscriptions": 0}), frame(f"{QUEUE}-back", BODY)
    raw.sendall(f"SUBSCRIBE\nid:0\ndestination:{QUEUE}-there\nreceipt:1\n\n\0".encode())
    take(raw, 1)

    def run(count: int) -> None:
        for _ in range(count):
            take(raw, 1)
            raw.sendall(data)

    return run


def relay(port: int, feed: Feed) -> Round:
    """Be the least that a broker can be between `hop` and `echo`: a thread for each that passes bytes to the other."""
    raws: list[socket.socket] = []

    def welcome(listener: socket.socket) -> None:
        for _ in range(2):
            raw, _ = listener.accept()
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for answer in (b"CONNECTED\nversion:1.2\n\n\0", b"RECEIPT\nreceipt-id:1\n\n\0"):
                take(raw, 1)
                raw.sendall(answer)
            raws.append(raw)

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(READ):
            target.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        welcoming = threading.Thread(target=welcome, args=(listener,))
        welcoming.start()
        run = worker.hops(listener.getsockname()[1], feed)
        welcoming.join()
    for ends in (raws, raws[::-1]):
        threading.Thread(target=pass_on, args=ends, daemon=True).start()
    return run


ACTIONS: Mapping[str, Action] = {
    "receive": receive,
    "send": send,
    "send-differing": send_differing,
    "send-batch": send_batch,
    "send-transaction": send_batch,
    "send-receipts": send_receipts,
    "latency": latency,
    "through": through,
    "produce": produce,
    "consume": consume,
    "hop": hop,
    "echo": echo,
    "embedded-broker-hop": relay,
    "import": worker.importing("import socket, ssl, threading, logging, dataclasses, json"),
}

if __name__ == "__main__":
    worker.main(ACTIONS)
