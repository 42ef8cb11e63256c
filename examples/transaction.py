"""All or nothing: `python examples/transaction.py [URL]`, without a URL on an embedded broker."""

from __future__ import annotations

import sys

import stompy
from stompy.broker import Broker

INPUT = "/queue/examples.input"
OUTPUT = "/queue/examples.output"


def main(url: str) -> None:
    """Move a message from one queue to another: taken from the first and sent to the second, or neither."""
    with stompy.connect(url) as conn:
        conn.send(INPUT, "some text", confirm=True)
        message = conn.subscribe(INPUT, ack="client-individual").receive(timeout=5)

        try:
            with conn.transaction() as tx:
                tx.send(OUTPUT, "half-made")
                raise ValueError("it cannot be done")
        except ValueError as error:
            print("aborted:", error)

        with conn.transaction() as tx:
            tx.send(OUTPUT, message.text.upper())
            tx.ack(message)
        print("committed")

        result = conn.subscribe(OUTPUT).receive(timeout=5)
        print("received:", result.text)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.url)
