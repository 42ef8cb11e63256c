"""Who may write to a spool: claims with growing numbers, the fence, and the lock.

A receiver makes a claim, then lists the segments, then notes in its claim where it begins. Before it acknowledges, a
receiver writes its segment and *then* looks for a newer claim. Whatever the order in which the two run, one of them
sees the other: either the predecessor sees the claim and does not acknowledge, or its segment was there before the
claim and the successor's listing has it. No clock and no lock is needed for that, only a listing that shows what was
written before.

On a directory there is a lock too, so that a second query on one spool is refused instead of throwing the first one
out. A frozen process keeps its lock; so the owner also touches its claim now and then, and who waits for the lock takes
the spool over when the claim has not been touched for long.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass

from stompy.deadline import Deadline
from stompy.errors import SpoolBusy, SpoolFenced
from stompy.spark.spool.files import Files, Lock
from stompy.spark.spool.names import ClaimName, claim_of
from stompy.spark.spool.state import dump, read_document

_LOG = logging.getLogger("stompy.spark")

LOCK = "lock"
EPOCHS = "epoch"
"""The folder of claims."""
HEARTBEAT_INTERVAL = 2.0
"""Seconds between touches of a claim."""
_POLL_INTERVAL = 0.1
"""Seconds between looks at a lock that another has."""


@dataclass(frozen=True, slots=True)
class ClaimTimeouts:
    """How long to wait for a predecessor; durations in seconds.

    Attributes:
        wait: for one that is alive, before `SpoolBusy`. A stopped query's process lives on for some seconds.
        frozen: a predecessor that has not touched its claim for so long, and keeps its lock, is taken over from.
    """

    wait: float = 30.0
    frozen: float = 20.0


@dataclass(frozen=True, slots=True)
class ActiveClaim:
    """The newest receiver that has begun to write.

    Attributes:
        epoch: its number; 0 where there never was one.
        start: the sequence number at which it began.
    """

    epoch: int
    start: int


class Claim:
    """The right to write to a spool, until somebody has a newer one. Any thread.

    Args:
        files: of the spool.
        patience: with a predecessor.
        closing: ends the wait for one.

    Raises:
        SpoolBusy: another receiver fills the spool.
    """

    def __init__(self, files: Files, *, patience: ClaimTimeouts, closing: threading.Event) -> None:
        self._files = files
        self._heartbeat_at = time.monotonic()
        files.make_folder(EPOCHS)
        self._lock: Lock | None = _wait_for_lock(files, patience, closing)
        try:
            self._name = _take(files)
        except BaseException:
            self.release()
            raise

    @property
    def epoch(self) -> int:
        """The number of this claim."""
        return self._name.epoch

    def begin(self, start: int) -> None:
        """Note where this receiver begins, and forget older claims, which say nothing any more."""
        self._files.write(self._path, dump({**_owner_info(), "start": start}))
        for claim in claims(self._files):
            if claim.epoch < self.epoch:
                self._files.remove(f"{EPOCHS}/{claim.name}")

    def check(self) -> None:
        """Look for a newer claim (W4): what was written before this call and found none may be acknowledged.

        Raises:
            SpoolFenced: there is one, or this claim is gone, which only a newer one's owner does.
        """
        found = claims(self._files)
        newest = found[-1] if found else None
        if newest != self._name:
            whose = _describe(self._files, newest) if newest else "it is gone"
            raise SpoolFenced(
                f"another receiver has taken it over ({whose}). Nothing more is acknowledged here. If that is "
                "unexpected, two queries or receivers use one spool: give each its own",
                path=self._files.url,
            )

    def heartbeat(self) -> None:
        """Show that the owner is alive, if it is time to."""
        now = time.monotonic()
        if now - self._heartbeat_at < HEARTBEAT_INTERVAL:
            return
        self._heartbeat_at = now
        self._files.touch(self._path)
        if self._lock is None:  # taken over from a frozen predecessor, which may have died since
            self._lock = self._files.lock(LOCK)

    def withdraw(self) -> None:
        """Give the claim back before `begin`: nothing was written under it, and the predecessor's counts again."""
        self._files.remove(self._path)
        self.release()

    def release(self) -> None:
        """Let another have the spool without waiting."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    @property
    def _path(self) -> str:
        return f"{EPOCHS}/{self._name.name}"


def claims(files: Files) -> list[ClaimName]:
    """Return the claims to a spool, the newest last."""
    names = (claim_of(entry.name) for entry in files.list(EPOCHS))
    return sorted(name for name in names if name is not None)


def active_claim(files: Files, *, before: int | None = None) -> ActiveClaim | None:
    """Return the newest receiver that has begun; `None` while the newest claim's owner is about to.

    Args:
        files: of the spool.
        before: look at claims with a smaller number only, and pass over those that never began.

    Raises:
        SpoolDamaged: a claim is not what was written.
    """
    for claim in reversed(claims(files)):
        if before is not None and claim.epoch >= before:
            continue
        document = read_document(files, f"{EPOCHS}/{claim.name}")
        if document is not None and "start" in document:
            return ActiveClaim(claim.epoch, document["start"])
        if before is None:
            return None
    return ActiveClaim(0, 0)


def _take(files: Files) -> ClaimName:
    """Make a claim that is newer than all others."""
    while True:
        known = claims(files)
        claim = ClaimName(known[-1].epoch + 1 if known else 1, secrets.token_hex(6))
        files.write(f"{EPOCHS}/{claim.name}", dump(_owner_info()))
        # Two that came at once have the same number; whoever sees the other, or both, try a larger one.
        rivals = [one for one in claims(files) if one.epoch >= claim.epoch and one != claim]
        if not rivals:
            return claim
        files.remove(f"{EPOCHS}/{claim.name}")
        time.sleep(secrets.randbelow(100) / 1000)


def _wait_for_lock(files: Files, patience: ClaimTimeouts, closing: threading.Event) -> Lock | None:
    """Return the lock, or `None` where its holder is frozen.

    Raises:
        SpoolBusy: its holder is alive.
    """
    deadline = Deadline(patience.wait)
    seen, since = last_heartbeat(files), time.monotonic()
    warned = patience.wait < math.inf
    while True:
        lock = files.lock(LOCK)
        if lock is not None:
            return lock
        if not warned:
            warned = True
            _LOG.warning("spool %s is filled by another process; waiting for it to end", files.url)
        beat = last_heartbeat(files)
        if beat != seen:
            seen, since = beat, time.monotonic()
        if time.monotonic() - since >= patience.frozen:
            return None
        if deadline.expired or closing.is_set():
            raise SpoolBusy(
                f"another query or receiver fills it ({owner_of(files) or 'unknown'}). Stop that one, or give this "
                "one a spool of its own: two queries on one queue share its messages",
                path=files.url,
            )
        closing.wait(_POLL_INTERVAL)


def last_heartbeat(files: Files) -> tuple[str, float] | None:
    """Return what changes as long as the newest owner is alive."""
    return max(((entry.name, entry.modified) for entry in files.list(EPOCHS)), default=None)


def owner_of(files: Files) -> str | None:
    """Return who has the newest claim, for a person to read; `None` where nobody ever had one."""
    found = claims(files)
    return _describe(files, found[-1]) if found else None


def _owner_info() -> dict[str, object]:
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _describe(files: Files, claim: ClaimName) -> str:
    document = read_document(files, f"{EPOCHS}/{claim.name}") or {}
    return f"process {document.get('pid', '?')} on {document.get('host', '?')}"
