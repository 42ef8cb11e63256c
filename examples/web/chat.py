"""Tells every page what one of them has said: `python examples/web/chat.py`."""

from __future__ import annotations

import stompy

worker = stompy.Worker()


@worker.task("/queue/said")
def tell(message: stompy.Message, context: stompy.TaskContext) -> None:  # noqa: D103
    context.send("/topic/chat", f"somebody: {message.text}")


if __name__ == "__main__":
    raise SystemExit(worker.run())
