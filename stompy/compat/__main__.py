"""Run a program that was written for stomp.py: `python -m stompy.compat PROGRAM.py`."""

from __future__ import annotations

import sys

from stompy.compat.install import run

run(sys.argv[1:])
