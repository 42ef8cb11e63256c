"""A topic that keeps messages while this program does not run: `python examples/durable.py URL`."""

from __future__ import annotations

import sys

import stompy

with stompy.connect(sys.argv[1], client_id="audit") as conn:
    for message in conn.subscribe("/topic/events", durable="audit"):
        print(message.text, flush=True)
