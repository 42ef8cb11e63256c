"""How the name of a file says what is in it, so that the listing of a folder is the index of a lane."""

from __future__ import annotations

import re
from dataclasses import dataclass

IDENTITY = "spool.json"
"""The file that says whose spool it is."""

_SEGMENT = re.compile(r"seg-(\d{20})-(\d{7})-e(\d{8})-([0-9a-f]{16})\.arrow")
_CLAIM = re.compile(r"(\d{8})-([0-9a-f]{12})")
_LANE = re.compile(r"lane-(0|[1-9]\d{0,4})")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A file of messages.

    Attributes:
        first: the sequence number of its first message.
        count: how many there are.
        epoch: of the receiver that wrote it.
        digest: checksum of the whole file, 16 hexadecimal digits; in its name, as it cannot be in itself.
        size: octets of the file.
        modified: when it was written, in seconds since the epoch.
    """

    first: int
    count: int
    epoch: int
    digest: str
    size: int = 0
    modified: float = 0.0

    @property
    def end(self) -> int:
        """The sequence number behind its last message."""
        return self.first + self.count

    @property
    def name(self) -> str:
        """The name of the file in its lane's folder."""
        return f"seg-{self.first:020d}-{self.count:07d}-e{self.epoch:08d}-{self.digest}.arrow"


@dataclass(frozen=True, slots=True, order=True)
class ClaimName:
    """The name of a receiver's claim to a lane: a number that grows, and a token of chance that tells two apart."""

    epoch: int
    token: str

    @property
    def name(self) -> str:
        """The name of the file in `epoch/`."""
        return f"{self.epoch:08d}-{self.token}"


def lane_folder(lane: int) -> str:
    """Return the folder of a lane."""
    return f"lane-{lane}"


def lane_of(name: str) -> int | None:
    """Return the number of the lane that a folder's name says, or `None`."""
    found = _LANE.fullmatch(name)
    return int(found[1]) if found else None


def segment_of(name: str, *, size: int, modified: float) -> Segment | None:
    """Return the segment that a file's name says, or `None`."""
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return None
    first, count, epoch, digest = found.groups()
    return Segment(int(first), int(count), int(epoch), digest, size, modified)


def claim_of(name: str) -> ClaimName | None:
    """Return the claim that a file's name says, or `None`."""
    found = _CLAIM.fullmatch(name)
    return ClaimName(int(found[1]), found[2]) if found else None
