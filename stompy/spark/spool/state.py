"""Small documents of a spool, each with a checksum: one that is damaged is an error, never an empty one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from stompy.errors import SpoolDamaged
from stompy.spark.spool.files import Files

LOW = "low"
"""The mark below which everything was processed; the reader's."""
PLANNED = "planned"
"""The mark up to which messages were given to Spark; the reader's. New messages are numbered from there on."""
SETTLED = "settled"
"""The mark below which the broker has confirmed each ACK, or the message is a suspect; the writer's."""
COUNTS = "counts"
"""What each receiver has got since the process that fills the spool began; the writer's, for people to read."""

_ADVICE = (
    "Restore it from a backup; or, to discard the contents of the spool, remove the whole folder together with the "
    "checkpoint of the query that reads it"
)


def dump(document: dict[str, Any]) -> bytes:
    """Return a document as bytes: a line of JSON and a line with its checksum."""
    content = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    return content + b"\n" + _check(content) + b"\n"


def load(data: bytes, path: str) -> dict[str, Any]:
    """Return the document in `data`.

    Args:
        data: as `dump` made it.
        path: named by the error.

    Raises:
        SpoolDamaged: it is not what was written.
    """
    content, _, check = data.removesuffix(b"\n").rpartition(b"\n")
    if _check(content) != check:
        raise damaged(path, "the file is damaged or truncated" if data else "the file is empty")
    document = json.loads(content)
    assert isinstance(document, dict)
    return document


def damaged(path: str, what: str) -> SpoolDamaged:
    """Return the error for a file that is not what was written, with what to do."""
    return SpoolDamaged(f"{what}. {_ADVICE}", path=path)


def read_document(files: Files, name: str) -> dict[str, Any] | None:
    """Return a document, `None` where there is none.

    Raises:
        SpoolDamaged: it is not what was written.
    """
    data = files.read(name)
    return None if data is None else load(data, path_of(files, name))


def write_mark(files: Files, name: str, value: int) -> None:
    """Write a watermark, durably."""
    files.write(name, dump({name.rpartition("/")[2]: value}))


def read_mark(files: Files, name: str) -> int | None:
    """Return a watermark, `None` where none was ever written.

    Raises:
        SpoolDamaged: it is not what was written.
    """
    document = read_document(files, name)
    if document is None:
        return None
    value = document.get(name.rpartition("/")[2])
    if not isinstance(value, int):
        raise damaged(path_of(files, name), "the file belongs to another spool")
    return value


@dataclass(slots=True)
class Counts:
    """What a receiver has got.

    Attributes:
        messages: written.
        dropped: that came again and were recognised.
        flagged: of those that were written, how many may have come before (`possible_duplicate`).
        last: when the last one came, in seconds since the epoch; `None` before.
    """

    messages: int = 0
    dropped: int = 0
    flagged: int = 0
    last: float | None = None


def write_counts(files: Files, counts: Sequence[Counts]) -> None:
    """Write what each receiver has got, by its number."""
    files.write(COUNTS, dump({COUNTS: [asdict(one) for one in counts]}))


def read_counts(files: Files) -> list[Counts]:
    """Return what each receiver has got, by its number; nothing where none was written, or the file is damaged.

    No message hangs on it, and it is soon written anew.
    """
    try:
        document = read_document(files, COUNTS)
    except SpoolDamaged:
        return []
    return [] if document is None else [Counts(**one) for one in document[COUNTS]]


def path_of(files: Files, name: str) -> str:
    """Return where a file is, for a person to read."""
    return f"{files.url}/{name}" if name else files.url


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).hexdigest().encode()
