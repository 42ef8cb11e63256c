"""A worker whose one child process is replaced after a second without a report: `python -m` this module."""

from __future__ import annotations

import os
import sys

from stompy.worker.supervisor import Supervisor
from tests.worker.programs import FOLDER, supervised

if __name__ == "__main__":
    if "STOMPY_WORKER_CHILD" in os.environ:
        supervised._override(processes=1)
        sys.exit(supervised.run())
    supervisor = Supervisor(
        "worker", 1, 20.0, lambda: (FOLDER / "ready").touch() if supervisor.health().ready else None, hung=1.0
    )
    sys.exit(supervisor.run())
