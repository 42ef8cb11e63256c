"""What is expected of each kind of broker, as data: facts, and the answers to them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stompy.frames.frame import Frame

VERSIONS = ("1.0", "1.1", "1.2")

NAMES = {
    "embedded": "the embedded broker",
    "activemq": "ActiveMQ Classic 6",
    "activemq5": "ActiveMQ Classic 5.17",
    "artemis": "Artemis",
    "rabbitmq3": "RabbitMQ 3.10",
    "rabbitmq4": "RabbitMQ 4",
}
KINDS = tuple(NAMES)
LIKE = {
    "like-activemq": "activemq",
    "like-activemq5": "activemq5",
    "like-artemis": "artemis",
    "like-rabbitmq": "rabbitmq4",
}
"""The embedded broker in the way of another, and the real broker that it is compared with."""

EMBEDDED = ("embedded",)
CLASSIC = ("activemq", "activemq5")
ACTIVEMQ_6 = ("activemq",)
ACTIVEMQ_5 = ("activemq5",)
ARTEMIS = ("artemis",)
RABBITMQ = ("rabbitmq3", "rabbitmq4")
RABBITMQ_3 = ("rabbitmq3",)
RABBITMQ_4 = ("rabbitmq4",)
ESCAPING = ("1.1", "1.2")
"""The versions that have escapes in headers, heartbeats and NACK."""

Grade = Literal["yes", "own", "no"]
"""As specified or as most brokers do; differently; not supported, except for what the answer says."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What some kinds of broker do in some versions of STOMP.

    Attributes:
        kinds: the brokers.
        versions: the versions.
        does: what a test must observe.
        says: the same for readers.
        grade: how it compares.
        frames: patterns; each must fit one of the frames that the test has seen, see `fits`.
    """

    kinds: tuple[str, ...]
    versions: tuple[str, ...]
    does: object
    says: str
    grade: Grade
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """What is one time so, another time otherwise, as it depends on who is faster."""

    ways: tuple[object, ...]

    def __eq__(self, other: object) -> bool:
        return other in self.ways

    def __hash__(self) -> int:
        return hash(self.ways)


def either(*ways: object) -> Either:
    """Return what equals each of `ways`."""
    return Either(ways)


def on(
    kinds: Iterable[str],
    does: object,
    says: str,
    *frames: str,
    grade: Grade = "yes",
    versions: Iterable[str] = VERSIONS,
) -> Answer:
    """Return the answer of some kinds of broker."""
    return Answer(tuple(kinds), tuple(versions), does, says, grade, frames)


@dataclass(frozen=True, slots=True)
class Fact:
    """One question to every broker.

    Attributes:
        name: by which a test asks for the answer.
        scenario: the row of the table that a run prints, and the heading on the page.
        asks: the question.
        answers: the first that fits kind and version counts.
    """

    name: str
    scenario: str
    asks: str
    answers: tuple[Answer, ...]

    def answer(self, kind: str, version: str) -> Answer | None:
        """Return what is expected of a broker in a version."""
        fitting = (one for one in self.answers if kind in one.kinds and version in one.versions)
        return next(fitting, None)


def fact(name: str, scenario: str, asks: str, *answers: Answer) -> Fact:
    """Return a fact."""
    return Fact(name, scenario, asks, answers)


def fits(pattern: str, frame: Frame) -> bool:
    r"""Whether a frame is as a pattern says.

    The first line is the command, each further line a header that must be there (`*` stands for anything), `!name` one
    that must not; behind an empty line comes what the body must be. Values are those of the unescaped header.
    """
    head, _, body = pattern.partition("\n\n")
    command, *lines = head.split("\n")
    if frame.command != command or (body and not _globs(body, frame.body.decode(errors="replace"))):
        return False
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            if frame.headers.get(line.removeprefix("!")) is not None:
                return False
            continue
        seen = frame.headers.get(name)
        if seen is None or not _globs(value, seen):
            return False
    return True


def _globs(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None
