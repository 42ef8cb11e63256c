"""A class that handles messages: `python examples/prices.py URL`."""

from __future__ import annotations

import sys

import stompy


class Prices(stompy.Listener):  # noqa: D101
    def on_message(self, message: stompy.Message) -> None:  # noqa: D102
        print(message.text, flush=True)  # acknowledged when it has returned


with stompy.connect(sys.argv[1]) as conn:
    conn.subscribe("/queue/prices", Prices())
    conn.wait_closed()
