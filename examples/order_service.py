"""Retries and dead letters: `python examples/order_service.py [URL]`, without a URL on an embedded broker."""

from __future__ import annotations

import logging
import queue
import sys
from typing import Any

import stompy
from stompy.broker import Broker

QUEUE = "/queue/examples.order-service"
DEAD = "/queue/examples.order-service.dead"

booked: queue.SimpleQueue[str] = queue.SimpleQueue()


class Orders(stompy.TaskListener):
    """Books orders; the class attributes are the options of the task."""

    destination = QUEUE
    dead_letter = DEAD
    decode = "json"
    attempts = 3
    backoff = stompy.Backoff(first=0.1, longest=1.0)

    def on_message(self, order: dict[str, Any], context: stompy.TaskContext) -> None:
        """Book an order; what is raised says what becomes of it."""
        if order["amount"] < 0:
            raise stompy.Reject(f"order {order['id']} has a negative amount")
        if order["amount"] > 1000 and context.attempt == 1:
            raise ConnectionError("the bank does not answer")
        booked.put(f"booked: order {order['id']} at attempt {context.attempt}")


def main(url: str) -> None:
    """Send orders, and show what becomes of them."""
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="log: %(message)s")
    worker = stompy.Worker(url, concurrency=4)
    worker.add(Orders())
    # A service calls `worker.run()`, or is started with `stompy worker module:worker`.
    with worker, stompy.connect(url) as conn:
        for number, amount in enumerate((10, -1, 2000), start=1):
            conn.send(QUEUE, {"id": number, "amount": amount}, confirm=True)
        print(booked.get(timeout=10))
        print(booked.get(timeout=10))
        dead = conn.subscribe(DEAD, ack="client-individual").receive(timeout=10)
        print("dead letter:", dead.headers["stompy-error-message"])
        dead.ack()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.url)
