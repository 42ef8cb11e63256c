"""Send standard input, also while there is no broker: `python examples/store.py URL FILE`."""

from __future__ import annotations

import sys

import stompy

url, file = sys.argv[1:]
with stompy.Outbox(file, url) as outbox:
    for line in sys.stdin:
        outbox.put("/queue/lines", line.rstrip("\n"))
        print(line, end="", flush=True)  # it is on disk
    outbox.flush(timeout=None)
