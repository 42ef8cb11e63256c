"""The heart-beat thread: sends beats in our silence and watches for the peer's (STOMP 1.2, Heart-beating).

| owns | may block on | never |
|---|---|---|
| the next beat, watching for silence | its event; the write lock only by *try* | waits for a writer |

It asks the gate (rank 5) whether the peer is dead, and ends the link if so. Its own clock is monotonic.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from stompy.errors import HeartBeatTimeout
from stompy.threads import DaemonThread

if TYPE_CHECKING:
    from stompy.link.link import Link

_BUSY_LINE = 0.05
"""Seconds until the next look when a beat was due and the line was busy."""


class HeartbeatThread(DaemonThread):
    """Keeps a link alive, and notices when it is dead; exists only where beats were agreed on."""

    def __init__(self, link: Link) -> None:
        super().__init__(f"stompy-{link.name}-heartbeat")
        self._link = link
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stop.set()

    def run(self) -> None:
        """Look whenever something may be due, until stopped."""
        link = self._link
        pause = 0.0
        while True:
            if self._stop.wait(pause):
                return
            now = time.monotonic()
            if link.flow.dead(now):
                self._declare_dead(now)
                return
            beaten = not link.pulse.beat_due(now) or link.writer.beat()
            due = link.pulse.next_check(time.monotonic())
            assert due is not None
            pause = due if beaten else max(due, _BUSY_LINE)
            if link.flow.shut:
                pause = max(pause, _BUSY_LINE)

    def _declare_dead(self, now: float) -> None:
        silent = now - self._link.pulse.last_heard
        self._link.fail(HeartBeatTimeout(f"nothing came from {self._link.address} for {silent:.1f} s"))
