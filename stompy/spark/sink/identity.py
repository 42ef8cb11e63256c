"""Dedupe ids of rows: the same each time a row is sent, so that consumers can detect duplicates.

Spark repeats failed tasks and unfinished batches; what the first run had committed is then sent twice. Both copies have
the same id in the header `stompy-dedupe-id`.

| mode | id | stable |
|---|---|---|
| column `dedup_id` | the value in the row | always |
| content | job, batch, partition, digest of the message, number of equal messages before it | in any order of rows |
| position | job, batch, partition, index in the partition | only if the order of rows is the same |
| none | - | - |

The modes `content` and `position` also need the same partitions in each run: if `spark.sql.shuffle.partitions` changes
between a crash and the restart, the rows get other ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from stompy.spark.sink.columns import Outgoing

DedupMode = Literal["content", "position", "none"]

_SEPARATOR = b"\0"


@dataclass(frozen=True, slots=True)
class Part:
    """The partition that rows belong to.

    Attributes:
        job: the id of the streaming query, or of one write of a batch job.
        batch: the micro-batch; `None` for a batch job.
        partition: the number of the partition.
    """

    job: str
    batch: str | None
    partition: int

    def __str__(self) -> str:
        return f"{self.job}/{'-' if self.batch is None else self.batch}/{self.partition}"


Identify = Callable[[Outgoing], "str | None"]
"""Returns the id of the next message of a partition, or `None` for none."""


def identifier(part: Part, mode: DedupMode) -> Identify:
    """Return the function that returns the id of each message of `part`; call it once per message, in order.

    The mode `content` stores 16 bytes and a count for each different message of the partition.
    """
    seen: Counter[bytes] = Counter()
    place = 0

    def by_content(message: Outgoing) -> str:
        digest = digest_of(message)
        seen[digest] += 1
        return f"{part}/{digest.hex()}/{seen[digest] - 1}"

    def by_position(_: Outgoing) -> str:
        nonlocal place
        place += 1
        return f"{part}/{place - 1}"

    made: Identify = {"content": by_content, "position": by_position, "none": lambda _: None}[mode]

    def identify(message: Outgoing) -> str | None:
        return message.dedup_id if message.dedup_id is not None else made(message)

    return identify


def digest_of(message: Outgoing) -> bytes:
    """Return 16 bytes that differ for messages that differ in destination, headers or body."""
    digest = blake2b(digest_size=16)
    fields = [message.destination, message.content_type or "", str(message.persistent), str(message.priority)]
    fields += [str(message.expires), *(f"{name}={message.headers[name]}" for name in sorted(message.headers))]
    for text in fields:
        digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(_SEPARATOR)
    digest.update(message.body.encode() if isinstance(message.body, str) else message.body)
    return digest.digest()
