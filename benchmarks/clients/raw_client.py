"""The limit: a socket and prepared octets, without a client."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

from benchmarks.clients import worker
from benchmarks.clients.worker import BODY, QUEUE, Action, Feed, Round, order

BATCH = 1000
READ = 1 << 18


def connect(port: int, feed: Feed) -> socket.socket:
    """Connect to the peer, with one subscription for each that the feed asks for."""
    raw = socket.create_connection(("127.0.0.1", port))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if "certificate" in feed:
        context = ssl.create_default_context(cafile=feed["certificate"])
        raw = context.wrap_socket(raw, server_hostname="localhost")
    raw.sendall(b"CONNECT\naccept-version:1.2\nhost:bench\n\n\0")
    take(raw, 1)
    for number in range(feed.get("subscriptions", 1)):
        raw.sendall(f"SUBSCRIBE\nid:{number}\ndestination:/control/{number}\n\n\0".encode())
    return raw


def take(raw: socket.socket, frames: int) -> None:
    """Read so many frames."""
    while frames:
        frames -= raw.recv(READ).count(0)


def frame(destination: str, body: bytes, header: str = "") -> bytes:
    """Return a SEND frame."""
    return f"SEND\ndestination:{destination}\ncontent-length:{len(body)}\n{header}\n".encode() + body + b"\0"


def receive(port: int, feed: Feed) -> Round:
    """Read, and count the ends of frames."""
    raw = connect(port, feed)

    def run(count: int) -> None:
        raw.sendall(frame("/control/give", order(feed, count).encode()))
        take(raw, count)

    return run


def send(port: int, feed: Feed) -> Round:
    """Write one prepared frame, one call each."""
    raw = connect(port, feed)
    octets = frame(QUEUE, BODY)

    def run(count: int) -> None:
        for _ in range(count):
            raw.sendall(octets)

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
    octets = frame(QUEUE, BODY)

    def run(count: int) -> None:
        for start in range(0, count, BATCH):
            raw.sendall(b"".join([octets for _ in range(min(BATCH, count - start))]))

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
    octets = frame("/control/echo", BODY)

    def run(count: int) -> None:
        for _ in range(count):
            raw.sendall(octets)
            take(raw, 1)

    return run


ACTIONS: Mapping[str, Action] = {
    "receive": receive,
    "send": send,
    "send-differing": send_differing,
    "send-batch": send_batch,
    "send-transaction": send_batch,
    "send-receipts": send_receipts,
    "latency": latency,
    "import": worker.importing("import socket, ssl, threading, logging, dataclasses, json"),
}

if __name__ == "__main__":
    worker.main(ACTIONS)
