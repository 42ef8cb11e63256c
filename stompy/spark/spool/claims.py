"""Who may write to a spool, and which query may read it: claims with growing numbers, the fence, and the lock.

A receiver makes a claim, then lists the segments, then writes to its claim where it begins. Before it acknowledges, a
receiver writes its segment and *then* looks for a newer claim. Whatever the order in which the two run, one of them
sees the other: either the predecessor sees the claim and does not acknowledge, or its segment existed before the claim
and is in the successor's listing. This needs neither a clock nor a lock, only a listing that shows earlier writes.

There is also a lock, so that a second query on one spool is rejected instead of taking it over. A frozen process
keeps its lock; so the owner also touches its claim regularly, and a process that waits for the lock takes the spool
over if the claim has not been touched for too long.

A query has a claim of its own, as it removes what it has processed: two of them would remove what the other one needs.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass

from stompy.deadline import Deadline
from stompy.errors import SpoolBusyError, SpoolFencedError
from stompy.forks import Owner
from stompy.locks import FileLock
from stompy.spark.spool.files import Files, dump, read_document
from stompy.world import os, secrets, socket, time

_LOG = logging.getLogger("stompy.spark")

HEARTBEAT_INTERVAL = 2.0
"""Seconds between touches of a claim."""
_NAME = re.compile(r"\d{8}-[0-9a-f]{12}")
"""The name of a claim: its number, called epoch, and a random token that makes it unique."""
_POLL_INTERVAL = 0.1
"""Seconds between attempts to take a lock."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a claim is for.

    Attributes:
        lock: the name of the file that is locked.
        folder: of the claims.
        owner: who may have another claim.
        does: what that one does with the spool.
    """

    lock: str
    folder: str
    owner: str
    does: str


FILLER = Role("lock", "epoch", "query or receiver", "fills")
"""The process whose receivers write to the spool."""
READER = Role("reader.lock", "reader", "query", "reads")
"""The query that reads the spool."""


@dataclass(frozen=True, slots=True)
class ClaimTimeouts:
    """How long to wait for a predecessor; durations in seconds.

    Attributes:
        wait: for a predecessor that is alive, before `SpoolBusyError`. The process of a stopped query lives for some
            seconds more.
        frozen: time since a predecessor that keeps its lock last touched its claim, after which it is taken over from.
    """

    wait: float = 30.0
    frozen: float = 20.0


@dataclass(frozen=True, slots=True)
class ActiveClaim:
    """The newest receiver that has begun to write.

    Attributes:
        epoch: its number; 0 if there never was one.
        start: the sequence number at which it began.
    """

    epoch: int
    start: int


class Claim:
    """The right to write to a spool, until there is a newer claim. Any thread.

    Args:
        files: of the spool.
        patience: how long to wait for a predecessor.
        role: what the spool is claimed for.

    Raises:
        SpoolBusyError: another process has claimed the spool, and is alive.
    """

    def __init__(self, files: Files, *, patience: ClaimTimeouts, role: Role = FILLER) -> None:
        self._files = files
        self._role = role
        self.owner = Owner("spool writer" if role is FILLER else "spool reader")
        self._heartbeat_at = time.monotonic()
        files.make_folder(role.folder)
        # The lock comes before the claim: a claim fences its predecessor, which only the successor of a dead or frozen
        # process may do. A process that is refused here has changed nothing.
        self._lock: FileLock | None = _wait_for_lock(files, role, patience)
        try:
            self._name = _take(files, role)
        except BaseException:
            self.release()
            raise

    @property
    def epoch(self) -> int:
        """The number of this claim."""
        return _epoch(self._name)

    def begin(self, start: int) -> None:
        """Write where this receiver begins, and remove older claims, which are now obsolete."""
        # In this order: if this process is killed before the first step, its successor needs the claim of the last one
        # that began, to know which segments count. Killed between the two, it leaves claims that have no effect, as one
        # that has begun is newer.
        self._files.write(self._path, dump({**_owner_info(), "start": start}))
        for name in claims(self._files, self._role):
            if _epoch(name) < self.epoch:
                self._files.remove(f"{self._role.folder}/{name}")

    def check(self) -> None:
        """Look for a newer claim (W4): if there is none, everything written before this call may be acknowledged.

        Raises:
            SpoolFencedError: there is one, or this claim was removed, which only the owner of a newer one does.
        """
        self.owner.check()
        # A successor lists the segments after it has made its claim. If its claim is not in this listing, it was made
        # later than what this process wrote before, so the successor finds that. If it is, the successor may have
        # listed the segments too early, so nothing may be acknowledged: the broker gives it to the successor.
        #
        # The other claim may also be that of a rival that is about to give way (`_take`). To be fenced by it is too
        # early, and costs no message. A claim that is gone was removed by a successor that has begun.
        found = claims(self._files, self._role)
        if not found or found[-1] != self._name:
            owner = owner_of(self._files, self._role) or "it is gone"
            raise SpoolFencedError(
                f"another {self._role.owner} has taken it over ({owner}). Here nothing more is acknowledged or "
                "removed. If this is unexpected, two queries or receivers use one spool: give each its own",
                path=self._files.url,
            )

    def heartbeat(self) -> None:
        """Show that the owner is alive, if a heartbeat is due."""
        self.owner.check()
        now = time.monotonic()
        if now - self._heartbeat_at < HEARTBEAT_INTERVAL:
            return
        self._heartbeat_at = now
        # No error if the claim is gone: `check`, which decides about every ACK, finds the successor.
        self._files.touch(self._path)
        # Without the lock, this process has taken over from a frozen one, which may have died since. With it, the next
        # process is refused at once, and need not watch the heartbeat.
        if self._lock is None:
            self._lock = self._files.lock(self._role.lock)

    def withdraw(self) -> None:
        """Remove the claim before `begin`: nothing was written under it, and the predecessor's is valid again."""
        try:
            self._files.remove(self._path)
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock, so that another process can claim the spool without waiting.

        The claim stays: it tells a successor, and a reader, where this process began.
        """
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    @property
    def _path(self) -> str:
        return f"{self._role.folder}/{self._name}"


def claims(files: Files, role: Role = FILLER) -> list[str]:
    """Return the names of the claims to a spool, the newest last."""
    return sorted(name for name in files.list(role.folder) if _NAME.fullmatch(name))


def active_claim(files: Files, *, before: int | None = None) -> ActiveClaim | None:
    """Return the newest receiver that has begun; `None` while the owner of the newest claim is about to begin.

    Args:
        files: of the spool.
        before: only consider claims with a smaller number, and ignore those that never began.

    Raises:
        SpoolDamagedError: a claim is corrupt.
    """
    for name in reversed(claims(files)):
        if before is not None and _epoch(name) >= before:
            continue
        # It may be gone since the listing: withdrawn, or removed by a successor that has begun.
        document = read_document(files, f"{FILLER.folder}/{name}")
        if document is not None and "start" in document:
            return ActiveClaim(_epoch(name), document["start"])
        if before is None:
            # A reader must wait. The owner has not said yet which segments of its predecessors count, so segments that
            # are valid by an older claim may become orphans.
            return None
        # A successor has made a claim of its own by now. A predecessor that has not begun has written nothing, and is
        # fenced before it does.
    return ActiveClaim(0, 0)


def _take(files: Files, role: Role) -> str:
    """Make a claim that is newer than all others, and return its name."""
    while True:
        known = claims(files, role)
        epoch = _epoch(known[-1]) + 1 if known else 1
        claim = f"{epoch:08d}-{secrets.token_hex(6)}"
        files.write(f"{role.folder}/{claim}", dump(_owner_info()))
        # Two processes may have read the same listing, as a frozen predecessor holds the lock that would order them.
        # Each writes, then lists, so at least the later one sees the other's claim. A process that sees a rival gives
        # way, even if both do; the random pause lets one of them be first. A process that sees none has the only claim
        # of its number: a rival that wrote earlier would be in the listing, and one that writes later sees this claim.
        if not any(_epoch(other) >= epoch for other in claims(files, role) if other != claim):
            return claim
        files.remove(f"{role.folder}/{claim}")
        time.sleep(secrets.randbelow(100) / 1000)


def _wait_for_lock(files: Files, role: Role, patience: ClaimTimeouts) -> FileLock | None:
    """Return the lock, or `None` if its holder is frozen.

    Raises:
        SpoolBusyError: its holder is alive.
    """
    deadline = Deadline(patience.wait)
    seen, since = last_heartbeat(files, role), time.monotonic()
    # The kernel frees the lock when its holder ends, however that ends. So a free lock means that there is no
    # predecessor, or that it has ended, on this machine or on one that shares the locks of the file system.
    lock = files.lock(role.lock)
    if lock is None and patience.wait == math.inf:
        _LOG.warning("spool %s is filled by another process; waiting for it to end", files.url)
    while lock is None:
        # A holder that is frozen, or cut off, keeps the lock. Its heartbeat is compared with an earlier one, and timed
        # by this process: the clock of the holder's machine may be wrong. A frozen holder that wakes up is fenced, so
        # an early takeover costs no message.
        beat = last_heartbeat(files, role)
        if beat != seen:
            seen, since = beat, time.monotonic()
        if time.monotonic() - since >= patience.frozen:
            return None
        if deadline.expired:
            raise SpoolBusyError(
                f"another {role.owner} {role.does} it ({owner_of(files, role) or 'unknown'}). Stop that one, or give "
                "this one a spool of its own: two queries on one queue share its messages",
                path=files.url,
            )
        time.sleep(_POLL_INTERVAL)
        lock = files.lock(role.lock)
    return lock


def last_heartbeat(files: Files, role: Role = FILLER) -> tuple[str, float] | None:
    """Return a value that changes as long as the newest owner is alive; `None` if there is no claim."""
    found = claims(files, role)
    state = files.state(f"{role.folder}/{found[-1]}") if found else None
    return None if state is None else (found[-1], state[1])


def owner_of(files: Files, role: Role = FILLER) -> str | None:
    """Return a description of the owner of the newest claim; `None` if there is no claim."""
    found = claims(files, role)
    if not found:
        return None
    document = read_document(files, f"{role.folder}/{found[-1]}") or {}
    return f"process {document.get('pid', '?')} on {document.get('host', '?')}"


def _epoch(claim: str) -> int:
    return int(claim.partition("-")[0])


def _owner_info() -> dict[str, object]:
    return {"host": socket.gethostname(), "pid": os.getpid()}
