"""Send the lines of a file; print each when the broker has it: `python examples/script.py URL FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

import stompy

url, file = sys.argv[1:]
with stompy.connect(url) as conn:
    for line in Path(file).read_text().splitlines():
        conn.send("/queue/lines", line, persistent=True, confirm=True)
        print(line, flush=True)
