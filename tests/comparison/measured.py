"""What the comparison has measured: the shares of equal sequences, and the classes of differences with reasons.

`python -m tests.comparison.run --record` writes `measured.json`, and in `rows.json` the sequences of the first seeds
with the frames of the real brokers, which the tests play to the stand-ins.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("measured.json")
ROWS = Path(__file__).with_name("rows.json")
FOUND = Path(__file__).with_name("found.json")
"""Shortest sequences that once showed a difference, with the frames of the real brokers; numbered, without a seed."""

REASONS: tuple[tuple[str, str], ...] = (
    (
        r"content-length|not a STOMP command line|undefined escape|Invalid STOMP frame|Undefined escape",
        "malformed frames: lengths, spaces, escapes, commands",
    ),
    (
        r"MESSAGE [\w-]+: .*a\\nb",
        "a line end in a header of a 1.0 frame, which ActiveMQ writes as it is: it damages its frame",
    ),
    (r"had not been registered", "a subscription that ActiveMQ refused, and remembers until the connection ends"),
    (
        r"messages .*AMQ_SCHEDULED_DELAY:0",
        "a message delayed by 0: it comes at the next half second, before or after the next frames (ActiveMQ too)",
    ),
    (r"noLocal", "subscriptions that leave out their own session's messages"),
    (r"transformation: ", "a subscription's `transformation` is not written into messages"),
    (r"scheduledJobId|AMQ_SCHEDULED", "messages with a schedule"),
    (r"heart-beat|input string", "a malformed or negative `heart-beat`"),
    (
        r"precondition_failed|PRECONDITION_FAILED|resource_locked|RESOURCE_LOCKED|Duplicated subscription",
        "which of several things that are wrong about a queue RabbitMQ finds first, and what it finds at COMMIT only",
    ),
    (r"Illegal command|^CONNECT: \(closed\)", "an undefined escape before CONNECTED does not end the connection"),
    (r"XPATH", "selectors with XPATH"),
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
"""Patterns of signatures, and the causes or the features that these have in common; the first that fits counts."""


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
        reasons: why they differ; each with the number of different differences, and of sequences that show one.
    """

    kind: str
    server: str
    first: int
    sequences: int
    in_meaning: int
    to_the_letter: int
    reasons: tuple[tuple[str, int, int], ...]


def reason_of(signature: str) -> str:
    """Return why two brokers differ so."""
    return next((reason for pattern, reason in REASONS if re.search(pattern, signature)), "other headers of messages")


def reasons_of(classes: Counter[tuple[str, str]]) -> list[tuple[str, int, int]]:
    """Return the reasons of differences, which are named by level and signature; see `Measured.reasons`."""
    found: dict[str, list[int]] = {}
    for (_, signature), count in classes.items():
        found.setdefault(reason_of(signature), []).append(count)
    rows = [(reason, len(counts), sum(counts)) for reason, counts in found.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def save(kinds: dict[str, Any]) -> None:
    """Record results by kind, one reason a line."""
    text = json.dumps(kinds, indent=1, ensure_ascii=False, sort_keys=True)
    FILE.write_text(re.sub(r"\n {4}|\n {3}(?=])", "", text) + "\n", encoding="utf-8")


def load() -> list[Measured]:
    """Return what was recorded."""
    kinds: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return [Measured(kind, **{**row, "reasons": tuple(map(tuple, row["reasons"]))}) for kind, row in kinds.items()]


def floor(equal: int, measured: int, sequences: int) -> int:
    """Return how many of other sequences are equal at least, unless the stand-in has become worse; by three sigma."""
    share = equal / measured
    return math.floor(sequences * share - 3 * math.sqrt(sequences * share * (1 - share)) - 1)
