"""Mean arrival delay by carrier of the 5,000 flights in data/flights.ndjson, which go through a queue.

`python examples/flights.py [URL]`, without a URL on an embedded broker.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import stompy
from stompy.broker import Broker

FILE = Path(__file__).parent / "data" / "flights.ndjson"
QUEUE = "/queue/examples.flights"


def send_flights(conn: stompy.Connection) -> int:
    """Send each line of the file as a message, and return how many there were when the broker has all of them."""
    bodies = FILE.read_bytes().splitlines()
    with conn.batch():
        for body in bodies:
            conn.send_async(QUEUE, body, content_type="application/json")
    conn.flush()
    return len(bodies)


def receive_delays(conn: stompy.Connection, count: int) -> dict[str, list[int]]:
    """Return the arrival delays in minutes of `count` flights by carrier; a cancelled flight has none."""
    delays: dict[str, list[int]] = defaultdict(list)
    subscription = conn.subscribe(QUEUE, ack="client")
    for number in range(1, count + 1):
        message = subscription.receive(timeout=10)
        flight = message.json()
        if flight["arr_delay"] is not None:
            delays[flight["carrier"]].append(flight["arr_delay"])
        if number % 100 == 0 or number == count:
            message.ack()  # in this mode for all before it too
    return delays


def main(url: str) -> None:
    """Send, receive, compute."""
    with stompy.connect(url) as conn:
        count = send_flights(conn)
        delays = receive_delays(conn, count)
    print(f"{count} flights through {QUEUE}")
    print("carrier  flights  mean arrival delay (minutes)")
    for carrier, minutes in sorted(delays.items()):
        print(f"{carrier:<7}  {len(minutes):>7}  {sum(minutes) / len(minutes):>6.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with Broker() as broker:
            main(broker.url)
