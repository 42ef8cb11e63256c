"""Ids of durable messages whose ACK was not confirmed, kept on disk so that a later process recognises a redelivery."""

from __future__ import annotations

from collections.abc import Iterable

from stompy.spark.spool.files import Files, damaged, dump, path_of, read_document
from stompy.spark.spool.redelivery import Identity
from stompy.world import secrets, time

FOLDER = "suspects"
KEPT_FOR = 24 * 3600.0
"""Seconds; the broker may detect a half-open connection, and redeliver its messages, hours later."""


class Suspects:
    """The ids on disk. One thread at a time.

    Args:
        files: of the spool.

    Raises:
        SpoolDamagedError: a file with ids is corrupt.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._sets: dict[str, set[Identity]] = {}
        files.make_folder(FOLDER)
        self._load()

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._sets)

    def ids(self) -> set[Identity]:
        """Return all ids."""
        return set().union(*self._sets.values())

    def save(self, identities: Iterable[Identity]) -> None:
        """Add suspects, durably."""
        ids = set(identities)
        if not ids:
            return
        name = f"{FOLDER}/{time.time_ns():020d}-{secrets.token_hex(4)}.ids"
        self._files.write(name, dump({"saved": time.time(), "ids": sorted(ids)}))
        self._sets[name] = ids

    def forget(self, identities: Iterable[Identity]) -> None:
        """Remove ids of messages that cannot be redelivered; a file is removed with its last id."""
        gone = set(identities)
        for name, ids in list(self._sets.items()):
            ids -= gone
            if not ids:
                self._files.remove(name)
                del self._sets[name]

    def _load(self) -> None:
        for entry in self._files.list(FOLDER):
            if not entry.name.endswith(".ids"):
                continue
            name = f"{FOLDER}/{entry.name}"
            document = read_document(self._files, name)
            if document is None:
                continue
            if not isinstance(document.get("ids"), list) or not isinstance(document.get("saved"), (int, float)):
                raise damaged(path_of(self._files, name), "the file belongs to another spool")
            if document["saved"] + KEPT_FOR < time.time():
                self._files.remove(name)
                continue
            self._sets[name] = {(identity, digest) for identity, digest in document["ids"]}
