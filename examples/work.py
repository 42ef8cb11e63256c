"""A worker: `STOMPY_URL=stomp://localhost python examples/work.py`."""

from __future__ import annotations

import os

import stompy

worker = stompy.Worker()


@worker.task("/queue/orders", attempts=4, backoff=stompy.Backoff(first=0.1), dead_letter="/queue/orders.dead")
def handle(message: stompy.Message) -> None:  # noqa: D103
    os.write(1, message.body + b"\n")  # not by `print`, whose buffer the threads of a task share


if __name__ == "__main__":
    raise SystemExit(worker.run())
