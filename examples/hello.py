"""Send a message and receive it: `python examples/hello.py [URL]`, without a URL on an embedded broker."""

from __future__ import annotations

import sys

import stompy
from stompy.broker import Broker


def main(url: str) -> None:
    """Send to a queue, then take from it."""
    with stompy.connect(url) as conn:
        conn.send("/queue/examples.hello", "hello", confirm=True)
        subscription = conn.subscribe("/queue/examples.hello")
        print("received:", subscription.receive(timeout=5).text)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.url)
