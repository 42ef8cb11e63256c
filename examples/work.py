"""A worker: `STOMPY_URL=stomp://localhost python examples/work.py`."""

from __future__ import annotations

import stompy

worker = stompy.Worker()


@worker.task("/queue/orders", attempts=4, backoff=stompy.Backoff(first=0.1), dead_letter="/queue/orders.dead")
def handle(message: stompy.Message) -> None:  # noqa: D103
    print(message.text, flush=True)  # acknowledged when it has returned, tried again when it raises


if __name__ == "__main__":
    raise SystemExit(worker.run())
