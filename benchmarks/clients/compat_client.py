"""stompy.compat, measured by the program for stomp.py."""

from __future__ import annotations

import stompy.compat
from benchmarks.clients import worker

stompy.compat.install()

if __name__ == "__main__":
    from benchmarks.clients.stomp_py_client import ACTIONS

    worker.main(ACTIONS)
