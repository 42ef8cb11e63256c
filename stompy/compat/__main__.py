"""Run a program that was written for stomp.py: `python -m stompy.compat PROGRAM.py`."""

from __future__ import annotations

import sys

from stompy.compat.install import run

if __name__ == "__main__":
    run(sys.argv[1:])
