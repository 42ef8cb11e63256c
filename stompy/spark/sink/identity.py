"""The id of a row: the same each time the row is sent, so that a consumer can know the copy.

Spark runs a task again that failed, and a batch again that was not finished; what the first run had committed is then
sent twice. Both copies carry the same id in the header `stompy-dedupe-id`.

| mode | id | is stable |
|---|---|---|
| column `dedup_id` | what the row says | always |
| content | job, batch, partition, digest of the message, how many like it came before | in any order of rows |
| position | job, batch, partition, place in the partition | only if the order of rows is |
| none | - | - |

Both need the partitions to be the same in each run: a change of `spark.sql.shuffle.partitions` between a crash and the
restart gives the rows other ids.
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
    """Which rows these are.

    Attributes:
        job: the streaming query, or the one write of a batch job.
        batch: the micro-batch; `None` for a batch job.
        partition: of the job or micro-batch.
    """

    job: str
    batch: str | None
    partition: int

    def __str__(self) -> str:
        return f"{self.job}/{'-' if self.batch is None else self.batch}/{self.partition}"


Identify = Callable[[Outgoing], "str | None"]
"""Returns the id of the next message of a partition, or `None` for none."""


def identifier(part: Part, mode: DedupMode) -> Identify:
    """Return what gives each message of `part` its id; to be asked once for each, in the order of the rows.

    The mode `content` remembers 16 bytes and a count for each different message of the partition.
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
