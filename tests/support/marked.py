"""Processes of a test that start others of their own, found again by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

MARK = "STOMPY_MARK"
ENDED_WITHIN = 20.0
"""Seconds for child processes to end after the process that started them."""


@contextlib.contextmanager
def marked() -> Iterator[dict[str, str]]:
    """Yield variables for an environment; after the block, end processes that have them, and fail if there are any."""
    value = uuid.uuid4().hex
    try:
        yield {MARK: value}
        give_up = time.monotonic() + ENDED_WITHIN
        while (running := processes(value)) and time.monotonic() < give_up:
            time.sleep(0.05)
        assert not running, f"left running: {running}"
    finally:
        for process in processes(value):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def processes(value: str) -> dict[int, str]:
    """Return the processes with a mark, and their commands."""
    mark = f"{MARK}={value}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # One that ends meanwhile, or belongs to another user, is none of ours; a zombie's environment is empty.
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return found
