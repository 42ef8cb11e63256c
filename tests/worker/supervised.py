"""A worker whose one child process is replaced after three seconds without a report: `python -m` this module."""

from __future__ import annotations

import os
import sys

from stompy.worker.processes import Supervisor
from tests.worker.programs import FOLDER, supervised


def note_ready() -> None:
    """Make the file `ready` when the child takes messages."""
    if supervisor.health().ready:
        (FOLDER / "ready").touch()


supervisor = Supervisor("worker", 1, 20.0, note_ready, hung=3.0)

if __name__ == "__main__":
    if "STOMPY_WORKER_CHILD" in os.environ:
        supervised.override(processes=1)
        sys.exit(supervised.run())
    sys.exit(supervisor.run())
