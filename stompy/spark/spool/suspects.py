"""Messages that the broker may deliver again although they are in the spool: durable, their ACK not confirmed.

They are dropped and acknowledged when they come again: dropped alone, they would fill the broker's prefetch for good. A
message is one of them if its id, its content and the broker's timestamp are the same, or its dedup header is.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Mapping

import pyarrow as pa

from stompy.spark.spool.files import Files
from stompy.spark.spool.record import Record, fingerprint
from stompy.spark.spool.state import damaged, dump, path_of, read_document

FOLDER = "suspects"
KEPT_FOR = 24 * 3600.0
"""Seconds: a connection that is half open can be given up by the broker, and its messages sent again, hours later."""

_OF_A_CONSUMER = re.compile(r"\d+,(\d+)")
"""What Artemis writes: the number of the consumer, another one in each session, and the message's own."""


class Identifier:
    """What makes two messages the same.

    Args:
        dedup_header: the header whose value does; without one it is the message id with the content.
    """

    def __init__(self, dedup_header: str | None = None) -> None:
        self._header = dedup_header

    def of(self, record: Record) -> tuple[str, str] | None:
        """Return id and digest of a message; `None` for one that has no id."""
        if self._header is not None:
            value = dict(record.headers).get(self._header)
            return None if value is None else (value, "")
        if record.message_id is None:
            return None
        return _own(record.message_id), fingerprint(record.destination, record.body, record.broker_timestamp)

    def of_batch(self, batch: pa.RecordBatch) -> dict[str, str]:
        """Return ids and digests of the messages of a segment."""
        if self._header is not None:
            values = (dict(headers).get(self._header) for headers in batch.column("headers").to_pylist())
            return {value: "" for value in values if value is not None}
        columns = [batch.column(name).to_pylist() for name in ("message_id", "destination", "body")]
        moments = batch.column("broker_timestamp").cast(pa.int64()).to_pylist()
        rows = zip(*columns, moments, strict=True)
        return {_own(one): fingerprint(where, body, moment) for one, where, body, moment in rows if one is not None}


def _own(message_id: str) -> str:
    """Return the part of an id that is the message's."""
    found = _OF_A_CONSUMER.fullmatch(message_id)
    return message_id if found is None else found[1]


class Suspects:
    """The suspects of a lane; those of links that are gone are on disk. One thread.

    Args:
        files: of the spool.
        folder: of the lane.

    Raises:
        SpoolDamaged: a file of them is not what was written.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = f"{folder}/{FOLDER}"
        self._known: dict[str, str] = {}
        self._sets: dict[str, set[str]] = {}
        files.make_folder(self._folder)
        self._load()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, identity: tuple[str, str]) -> bool:
        return self._known.get(identity[0]) == identity[1]

    def save(self, identities: Mapping[str, str]) -> None:
        """Add suspects, durably."""
        if not identities:
            return
        name = f"{time.time_ns():020d}-{secrets.token_hex(4)}.ids"
        document = {"saved": time.time(), "ids": dict(identities)}
        self._files.write(f"{self._folder}/{name}", dump(document))
        self._known.update(identities)
        self._sets[name] = set(identities)

    def settle(self, identities: Iterable[str]) -> None:
        """Forget suspects that came again and whose second ACK the broker has confirmed."""
        for identity in identities:
            self._known.pop(identity, None)
        for name, ids in list(self._sets.items()):
            if not any(identity in self._known for identity in ids):
                self._files.remove(f"{self._folder}/{name}")
                del self._sets[name]

    def _load(self) -> None:
        for entry in sorted(self._files.list(self._folder), key=lambda one: one.name):
            if not entry.name.endswith(".ids"):
                continue
            name = f"{self._folder}/{entry.name}"
            document = read_document(self._files, name)
            if document is None:
                continue
            if not isinstance(document.get("ids"), dict) or not isinstance(document.get("saved"), (int, float)):
                raise damaged(path_of(self._files, name), "the file is another one's")
            if document["saved"] + KEPT_FOR < time.time():
                self._files.remove(name)
                continue
            self._known.update(document["ids"])
            self._sets[entry.name] = set(document["ids"])
