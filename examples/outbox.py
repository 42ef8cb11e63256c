"""Send while the broker is away: `python examples/outbox.py [URL]`, without a URL on an embedded broker."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import stompy
from stompy.broker import Broker

QUEUE = "/queue/examples.outbox"


def main(url: str, path: Path) -> None:
    """Put messages on disk, have them sent, and receive them."""
    with stompy.Outbox(path, url) as outbox:
        for number in range(10):
            outbox.put(QUEUE, f"message {number}")
        outbox.flush(timeout=10)
        print("confirmed by the broker:", outbox.stats().sent)
    with stompy.connect(url) as conn:
        subscription = conn.subscribe(QUEUE)
        for _ in range(10):
            message = subscription.receive(timeout=5)
            print(message.text, message.headers["stompy-dedupe-id"])


def outage(path: Path) -> None:
    """Put a message while no broker runs; it arrives when one is there."""
    broker = Broker()
    with broker:
        url = broker.url
    with stompy.Outbox(path, url, backoff=stompy.Backoff(first=0.1, longest=0.5)) as outbox:
        outbox.put(QUEUE, "written while the broker was away")
        print("waiting on disk:", outbox.stats().waiting)
        with broker:
            outbox.flush(timeout=10)
            print("in the broker's queue:", broker.depth(QUEUE))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            main(sys.argv[1], Path(folder, "example.outbox"))
        else:
            outage(Path(folder, "outage.outbox"))
            with Broker() as running:
                main(running.url, Path(folder, "example.outbox"))
