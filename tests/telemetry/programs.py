"""A worker that a test runs in child processes: `stompy worker tests.telemetry.programs:traced`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from opentelemetry.trace import get_current_span

import stompy

FOLDER = Path(os.environ.get("STOMPY_TEST_FOLDER", "."))

# Without an SDK, which takes long to import.
traced = stompy.Worker(concurrency=1, timeouts=stompy.Timeouts(close=10), telemetry=stompy.OpenTelemetry())


@traced.task("/queue/a", prefetch=1)
def answer(message: stompy.Message) -> dict[str, object]:
    """Return the trace and the process, once two processes run the task."""
    (FOLDER / f"process-{os.getpid()}").touch()
    while len(list(FOLDER.glob("process-*"))) < 2:
        time.sleep(0.01)
    return {"trace": f"{get_current_span().get_span_context().trace_id:032x}", "process": os.getpid()}
