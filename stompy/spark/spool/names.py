"""The file names of a spool, which describe the contents, so that a listing of the folder is the index."""

from __future__ import annotations

import re
from dataclasses import dataclass

IDENTITY = "spool.json"
"""The file that identifies the spool."""

_SEGMENT = re.compile(r"seg-(\d{20})-(\d{7})-e(\d{8})-([0-9a-f]{16})\.arrow")
_CLAIM = re.compile(r"(\d{8})-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A file of messages.

    Attributes:
        first: the sequence number of its first message.
        count: the number of messages.
        epoch: of the claim of the process that wrote it.
        digest: checksum of the whole file, 16 hexadecimal digits.
        size: bytes of the file.
        modified: when it was written, in seconds since the Unix epoch.
    """

    first: int
    count: int
    epoch: int
    digest: str
    size: int = 0
    modified: float = 0.0

    @property
    def end(self) -> int:
        """The sequence number after its last message."""
        return self.first + self.count

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"seg-{self.first:020d}-{self.count:07d}-e{self.epoch:08d}-{self.digest}.arrow"


@dataclass(frozen=True, slots=True, order=True)
class ClaimName:
    """The name of a claim to a spool: an increasing number, and a random token that makes it unique."""

    epoch: int
    token: str

    @property
    def name(self) -> str:
        """The name of the file in `epoch/`."""
        return f"{self.epoch:08d}-{self.token}"


def segment_of(name: str, *, size: int, modified: float) -> Segment | None:
    """Return the segment with a file name, or `None` if the name is not that of a segment."""
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return None
    first, count, epoch, digest = found.groups()
    return Segment(int(first), int(count), int(epoch), digest, size, modified)


def claim_of(name: str) -> ClaimName | None:
    """Return the claim with a file name, or `None` if the name is not that of a claim."""
    found = _CLAIM.fullmatch(name)
    return ClaimName(int(found[1]), found[2]) if found else None
