"""Have many sends confirmed at once: `python examples/receipts.py [URL]`, without a URL on an embedded broker."""

from __future__ import annotations

import sys

import stompy
from stompy.broker import Broker

QUEUE = "/queue/examples.receipts"


def main(url: str) -> None:
    """Send a thousand messages with receipts in flight, then wait for all of them."""
    with stompy.connect(url) as conn:
        receipts = [conn.send_async(QUEUE, f"message {number}") for number in range(1000)]
        for receipt in receipts:
            receipt.result(timeout=10)
        print("confirmed by the broker:", len(receipts))
        subscription = conn.subscribe(QUEUE)
        for _ in receipts:
            subscription.receive(timeout=5)
        print("and received again")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.url)
