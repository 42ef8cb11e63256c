"""Work on messages one by one: `python examples/worker_by_iteration.py [URL]`, without a URL on an embedded broker."""

from __future__ import annotations

import sys

import stompy
from stompy.broker import Broker

QUEUE = "/queue/examples.orders"
REFUSED = "/queue/examples.orders.refused"


def work_on(order: dict[str, int]) -> None:
    """Do the work; raise if it cannot be done."""
    if order["amount"] < 0:
        raise ValueError(f"order {order['id']} has a negative amount")


def main(url: str) -> None:
    """Acknowledge each message when it was worked on; one that cannot be is put aside."""
    with stompy.connect(url) as conn:
        amounts = (10, -1, 20)
        for number, amount in enumerate(amounts, start=1):
            conn.send(QUEUE, {"id": number, "amount": amount}, confirm=True)

        for done, message in enumerate(conn.subscribe(QUEUE, ack="client-individual"), start=1):
            order = message.json()
            try:
                work_on(order)
                print("done: order", order["id"])
            except ValueError as error:
                conn.send(REFUSED, message.body, confirm=True)
                print("put aside:", error)
            message.ack()
            if done == len(amounts):
                break


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.url)
