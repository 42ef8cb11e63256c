"""Move messages to the next queue, each once: `python examples/forward.py URL`."""

from __future__ import annotations

import sys

import stompy

with stompy.connect(sys.argv[1]) as conn:
    for message in conn.subscribe("/queue/in", ack="client-individual"):
        with conn.transaction() as transaction:
            transaction.forward(message, "/queue/out")
            transaction.ack(message)
