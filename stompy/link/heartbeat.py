"""The heartbeat thread: sends heartbeats while we are idle and watches for the peer's (STOMP 1.2, Heart-beating).

| owns | may block on | never |
|---|---|---|
| the next heartbeat, watching for silence | its event; it only *tries* the write lock | waits for a writer |

It asks flow control (rank 5) whether the peer is dead, and ends the link if so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompy.errors import HeartbeatTimeoutError
from stompy.threads import DaemonThread
from stompy.world import threading, time

if TYPE_CHECKING:
    from stompy.link.link import Link

_RETRY_DELAY = 0.05
"""Seconds until the next attempt if a heartbeat was due while another thread was writing."""


class HeartbeatThread(DaemonThread):
    """Keeps a link alive and ends it when the peer is silent; only started if heartbeats were negotiated."""

    def __init__(self, link: Link) -> None:
        super().__init__(f"stompy-{link.name}-heartbeat")
        self._link = link
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the thread to end; does not wait."""
        self._stop.set()

    def run(self) -> None:
        """Send and check heartbeats when they are due, until stopped."""
        try:
            self._beat()
        except MemoryError as error:
            self._link.fail_for_memory(error)

    def _beat(self) -> None:
        link = self._link
        pause = 0.0
        while True:
            if self._stop.wait(pause):
                return
            now = time.monotonic()
            if link.flow.peer_dead(now):
                self._declare_dead(now)
                return
            done = not link.timer.beat_due(now) or link.beat()
            due = link.timer.next_check(time.monotonic())
            assert due is not None
            pause = due if done else max(due, _RETRY_DELAY)
            if link.flow.paused:
                pause = max(pause, _RETRY_DELAY)

    def _declare_dead(self, now: float) -> None:
        silent = now - self._link.timer.last_heard
        self._link.fail(HeartbeatTimeoutError(f"received nothing from {self._link.address} for {silent:.1f} s"))
