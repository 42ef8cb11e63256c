"""The last step of `stompy demo`: a real file through a queue."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from stompy.cli.exits import Exit, Failure
from stompy.cli.files import why
from stompy.cli.sample import sample_lines
from stompy.cli.stage import Stage
from stompy.connection.connection import Connection
from stompy.connection.message import Message

QUEUE = "/queue/flights"
IN_CHECKOUT = Path("examples", "data", "flights.ndjson")
_TIMES = 100
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Lines:
    """What is sent.

    Attributes:
        bodies: one a message.
        source: where they are from, for the user.
    """

    bodies: list[bytes]
    source: str


def lines_of(file: str | None) -> Lines:
    """Return the lines of `file`; without one those of the checkout, and where there is none, of the package.

    Raises:
        Failure: the file cannot be read, or is empty.
    """
    checkout = Path(__file__).parents[2] / IN_CHECKOUT
    if file is None and not checkout.is_file():
        return Lines(
            sample_lines() * _TIMES,
            f"the 12 real flights in the package, {_TIMES} times over (the 5,000 of {IN_CHECKOUT} are in the checkout)",
        )
    path = checkout if file is None else Path(file)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read {str(path)!r}: {why(error)}", Exit.DATA) from error
    if not data:
        raise Failure(f"{str(path)!r} is empty", Exit.DATA)
    return Lines(data.removesuffix(b"\n").split(b"\n"), str(IN_CHECKOUT if file is None else path))


class Collector:
    """Takes messages on the dispatcher thread, and says when all have come."""

    def __init__(self, expected: int) -> None:
        self.bodies: list[bytes] = []
        self.complete = threading.Event()
        self._expected = expected

    def __call__(self, message: Message) -> None:
        """Take a message."""
        self.bodies.append(message.body)
        if len(self.bodies) == self._expected:
            self.complete.set()


def flights(stage: Stage, conn: Connection, lines: Lines) -> None:
    """Send every line to a queue while a subscription receives, and compare."""
    with stage.step("Real data", f"Each line of a file becomes a message. The file: {lines.source}."):
        collector = Collector(len(lines.bodies))
        octets = sum(map(len, lines.bodies))
        stage.happened("sending", f"{len(lines.bodies):,} messages, {octets / 1e6:.1f} MB, and receiving meanwhile")
        started = time.perf_counter()
        conn.subscribe(QUEUE, collector)
        with conn.batch():
            for body in lines.bodies:
                conn.send(QUEUE, body, content_type="application/json")
        collector.complete.wait(_PATIENCE)
        elapsed = time.perf_counter() - started
        stage.happened("took", f"{elapsed:.2f} s: {len(collector.bodies) / elapsed:,.0f} messages a second, both ways")
        stage.happened("SHA-256", f"{_digest(lines.bodies)} of what was sent")
        stage.happened("", f"{_digest(collector.bodies)} of what came")
        stage.check("all of them came, byte for byte and in order", holds=collector.bodies == lines.bodies)


def _digest(bodies: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(bodies)).hexdigest()[:16]
