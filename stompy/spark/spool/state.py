"""Small JSON documents of a spool, each with a checksum: a corrupt one raises, and is never treated as missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from stompy.errors import SpoolDamagedError
from stompy.spark.spool.files import Files

LOW = "low"
"""The mark below which everything was processed; written by the reader."""
PLANNED = "planned"
"""The mark below which messages were given to Spark; written by the reader. A later writer begins above it."""
SETTLED = "settled"
"""The mark below which the broker has confirmed each ACK, or the message is a suspect; written by the writer."""
COUNTS = "counts"
"""The statistics of each receiver since its process began; written by the writer, for people to read."""

_ADVICE = (
    "Restore it from a backup; or, to discard the contents of the spool, remove the whole folder together with the "
    "checkpoint of the query that reads it"
)


def dump(document: dict[str, Any]) -> bytes:
    """Return a document as bytes: a line of JSON, and a line with its checksum."""
    content = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    return content + b"\n" + _check(content) + b"\n"


def load(data: bytes, path: str) -> dict[str, Any]:
    """Return the document in `data`.

    Args:
        data: the result of `dump`.
        path: of the file, for the error.

    Raises:
        SpoolDamagedError: it is corrupt.
    """
    content, _, check = data.removesuffix(b"\n").rpartition(b"\n")
    if _check(content) != check:
        raise damaged(path, "the file is damaged or truncated" if data else "the file is empty")
    document = json.loads(content)
    assert isinstance(document, dict)
    return document


def damaged(path: str, what: str) -> SpoolDamagedError:
    """Return the error for a corrupt file, with what to do."""
    return SpoolDamagedError(f"{what}. {_ADVICE}", path=path)


def read_document(files: Files, name: str) -> dict[str, Any] | None:
    """Return a document, or `None` if it does not exist.

    Raises:
        SpoolDamagedError: it is corrupt.
    """
    data = files.read(name)
    return None if data is None else load(data, path_of(files, name))


def write_mark(files: Files, name: str, value: int) -> None:
    """Write a mark, durably."""
    files.write(name, dump({name.rpartition("/")[2]: value}))


def read_mark(files: Files, name: str) -> int | None:
    """Return a mark, or `None` if it was never written.

    Raises:
        SpoolDamagedError: it is corrupt.
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
    """The statistics of a receiver.

    Attributes:
        messages: messages written.
        dropped: duplicates that were recognised and dropped.
        flagged: written messages that may be duplicates (`possible_duplicate`).
        last: when the last one arrived, in seconds since the epoch; `None` before the first one.
    """

    messages: int = 0
    dropped: int = 0
    flagged: int = 0
    last: float | None = None


def write_counts(files: Files, counts: Sequence[Counts]) -> None:
    """Write the statistics of each receiver, by its number."""
    files.write(COUNTS, dump({COUNTS: [asdict(receiver) for receiver in counts]}))


def read_counts(files: Files) -> list[Counts]:
    """Return the statistics of each receiver, by its number; empty if none were written, or the file is corrupt.

    A corrupt file is ignored, as no message depends on it, and it is soon rewritten.
    """
    try:
        document = read_document(files, COUNTS)
    except SpoolDamagedError:
        return []
    return [] if document is None else [Counts(**receiver) for receiver in document[COUNTS]]


def path_of(files: Files, name: str) -> str:
    """Return the path or URL of a file, for messages."""
    return f"{files.url}/{name}" if name else files.url


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).hexdigest().encode()
