"""What the comparison has measured: the shares of equal sequences, and the classes of differences with reasons.

`python -m tests.comparison.run --record` writes `measured.json`, and in `rows.json` the sequences of the first seeds
with the frames of the real brokers, which the tests play to the stand-ins.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("measured.json")
ROWS = Path(__file__).with_name("rows.json")

REASONS: tuple[tuple[str, str], ...] = (
    (
        r"content-length|not a STOMP command line|undefined escape|Invalid STOMP frame|Undefined escape",
        "frames are parsed"
        " strictly: a length that is no number, a space or CR after a command or an unknown escape ends the connection",
    ),
    (r"noLocal", "a queue's subscription with `activemq.noLocal` gets messages of its own session too"),
    (r"transformation: ", "a subscription's `transformation` is not written into messages"),
    (r"scheduledJobId|AMQ_SCHEDULED", "`AMQ_SCHEDULED_DELAY:0` is no schedule"),
    (r"heart-beat|input string", "a malformed or negative `heart-beat` is read in one way for all brokers"),
    (r"XPATH", "no XPATH in selectors"),
    (r"redelivered", "which of several returned messages say that they are delivered again"),
    (r"browse|Browser", "the refusals of browsers with other options"),
    (r"^messages", "the messages of a subscription: not one cause"),
    (r"order of headers", "headers in the same place of Java's hash table, or sent in another order by RabbitMQ 3"),
    (
        r"nothing / RECEIPT|RECEIPT / nothing|/ taken$|taken / |\(closed\)",
        "what follows a frame that one of the two took and the other refused, or an option without a stand-in",
    ),
    (r"ERROR ", "the text of an ERROR, or its headers"),
)
"""Patterns of signatures and their reasons; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One broker's result.

    Attributes:
        kind: of broker.
        server: what the real one calls itself.
        first: the first seed, and how many.
        sequences: how many were compared.
        in_meaning: how many were equal in meaning.
        to_the_letter: how many were equal to the letter.
        classes: how many sequences show each difference, by level and signature.
    """

    kind: str
    server: str
    first: int
    sequences: int
    in_meaning: int
    to_the_letter: int
    classes: tuple[tuple[str, str, int], ...]

    def reasons(self) -> list[tuple[str, int, int]]:
        """Return the reasons of differences, each with its numbers of classes and of occurrences."""
        found: dict[str, list[int]] = {}
        for _, signature, count in self.classes:
            found.setdefault(reason_of(signature), []).append(count)
        rows = [(reason, len(counts), sum(counts)) for reason, counts in found.items()]
        return sorted(rows, key=lambda row: -row[2])


def reason_of(signature: str) -> str:
    """Return why two brokers differ so."""
    return next((reason for pattern, reason in REASONS if re.search(pattern, signature)), "other headers of messages")


def load() -> list[Measured]:
    """Return what was recorded."""
    kinds: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return [Measured(kind, **{**row, "classes": tuple(map(tuple, row["classes"]))}) for kind, row in kinds.items()]


def floor(equal: int, measured: int, sequences: int) -> int:
    """Return how many of other sequences are equal at least, unless the stand-in has become worse; by three sigma."""
    share = equal / measured
    return math.floor(sequences * share - 3 * math.sqrt(sequences * share * (1 - share)) - 1)
