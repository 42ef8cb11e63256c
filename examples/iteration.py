"""Append messages to a file: `python examples/iteration.py URL FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

import stompy

url, file = sys.argv[1:]
with stompy.connect(url) as conn, Path(file).open("a") as out:
    for message in conn.subscribe("/queue/lines"):  # acknowledged when the next one is asked for
        print(message.text, file=out, flush=True)
