"""`stompy demo`: shows each feature on an embedded broker, and checks its result."""

from __future__ import annotations

import argparse
import hashlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stompy.broker.broker import Broker
from stompy.cli.console import files, say
from stompy.cli.exits import Exit, Failure
from stompy.cli.options import CommandParser
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.connection.message import Message
from stompy.deadline import Deadline
from stompy.errors import StompError
from stompy.printable import printable
from stompy.world import threading, time

FLIGHTS = Path("examples", "data", "flights.ndjson")
HEARTBEAT = (0.25, 0.25)
"""Seconds; short, so that the demo can show some."""
WIDTH = 80
_TIMEOUT = 20.0
_BEATS = 3
_REFUSALS = 20


def add_demo(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = "Start an embedded broker, and show on it in seconds what stompy does. Needs nothing else."
    parser.add_argument("--file", metavar="FILE", help="send the lines of FILE instead of the flights")
    parser.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> Exit:
    """Give the demo; fail if a check does not hold."""
    source, lines = _lines_of(arguments.file)
    tour = Tour()
    say(f"stompy on Python {sys.version.split()[0]}: a demonstration on the embedded broker,")
    say("which runs in this process, in memory, and is lost at the end.")
    with Broker() as broker, connect(broker.url, heartbeat=HEARTBEAT, name="demo") as conn:
        for step in STEPS:
            step(tour, broker, conn)
        with tour.step("Real data", f"Each line of a file becomes a message. The file: {source}."):
            send_lines(tour, conn, lines)
    say()
    if tour.failed:
        say(f"{len(tour.failed)} of {len(tour.failed) + tour.passed} checks FAILED:")
        for claim in tour.failed:
            say(f"   {claim}")
        return Exit.FAILED
    say(f"All {tour.passed} checks passed. Next:")
    say("   stompy broker                  a development broker, in another terminal")
    say('   stompy send /queue/a "hello"   and stompy subscribe /queue/a')
    return Exit.OK


class Tour:
    """Prints numbered steps at 80 columns, and counts the checks.

    Attributes:
        passed: number of checks that held.
        failed: the claims of the other checks.
    """

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []
        self._step = 0

    @contextmanager
    def step(self, title: str, meaning: str) -> Iterator[None]:
        """Begin a step; an error of the library in it fails the step, and the demo goes on."""
        self._step += 1
        say(f"\n{self._step}. {title}")
        _wrapped(meaning, "   ")
        try:
            yield
        except StompError as error:
            self.check(f"{title}: {error}", holds=False)

    def check(self, claim: str, *, holds: bool) -> None:
        """Print whether `claim` holds, and count it."""
        if holds:
            self.passed += 1
        else:
            self.failed.append(printable(claim))
        _wrapped(claim, f"   [{'ok' if holds else 'FAILED'}] ")


def _wrapped(text: str, start: str) -> None:
    for line in textwrap.wrap(printable(text), WIDTH, initial_indent=start, subsequent_indent=" " * len(start)):
        say(line)


def send(tour: Tour, broker: Broker, conn: Connection) -> None:
    """Send to a queue and receive from it."""
    meaning = f"{conn.server} at {broker.url} speaks STOMP {conn.version}. Its queue keeps a message for a consumer."
    with tour.step("A message", meaning):
        conn.send("/queue/hello", "Grüße, STOMP!", headers={"lang": "de"}, confirm=True)
        tour.check("one message waits in /queue/hello", holds=broker.depth("/queue/hello") == 1)
        message = conn.subscribe("/queue/hello").receive(timeout=_TIMEOUT)
        tour.check(f"received {message.text!r}", holds=message.text == "Grüße, STOMP!")


def listener(tour: Tour, broker: Broker, conn: Connection) -> None:
    """Receive messages as they arrive."""
    with tour.step("A handler", "It is called for each message, on another thread."):
        came: list[str] = []
        complete = threading.Event()

        def handler(message: Message) -> None:
            came.append(message.text)
            if message.text == "3":
                complete.set()

        conn.subscribe("/topic/numbers", handler)
        for number in (1, 2, 3):
            conn.send("/topic/numbers", str(number))
        complete.wait(_TIMEOUT)
        tour.check("three messages, in order", holds=came == ["1", "2", "3"])


def receipts(tour: Tour, broker: Broker, conn: Connection) -> None:
    """Let the broker confirm."""
    with tour.step("Receipts", "The broker confirms processed messages. Many receipts may be in flight at once."):
        for receipt in [conn.send_async("/queue/sure", str(number)) for number in range(100)]:
            receipt.result(_TIMEOUT)
        tour.check("the queue has all 100", holds=broker.depth("/queue/sure") == 100)


class _Abort(Exception):
    """Aborts a transaction of the demo."""


def transactions(tour: Tour, broker: Broker, conn: Connection) -> None:
    """Commit one transaction and abort another."""
    with tour.step("Transactions", "The broker applies a transaction as a whole, or not at all."):
        with conn.transaction() as transaction:
            transaction.send("/queue/accounts", "take 10 from A")
            transaction.send("/queue/accounts", "give 10 to B")
            conn.flush()
            early = broker.depth("/queue/accounts")
        committed = broker.depth("/queue/accounts")
        tour.check("both messages are there after the commit, none before", holds=(early, committed) == (0, 2))
        try:
            with conn.transaction() as transaction:
                transaction.send("/queue/accounts", "take 10 from A, again")
                raise _Abort
        except _Abort:
            conn.flush()
        tour.check("nothing of an aborted one is there", holds=broker.depth("/queue/accounts") == 2)


def nack(tour: Tour, broker: Broker, conn: Connection) -> None:
    """Refuse a message until it is a dead letter."""
    meaning = "A rejected message is delivered again, marked as redelivered, and at last put into a queue of its own."
    with tour.step("Redelivery and dead letters", meaning):
        jobs = conn.subscribe("/queue/jobs", ack="client-individual")
        conn.send("/queue/jobs", "a job", confirm=True)
        deliveries: list[bool] = []
        while not broker.depth("/queue/DLQ") and len(deliveries) < _REFUSALS:
            message = jobs.receive(timeout=_TIMEOUT)
            deliveries.append(message.redelivered)
            message.nack(confirm=True)
        redelivered = not deliveries[0] and all(deliveries[1:])
        tour.check(f"{len(deliveries)} deliveries, all but the first marked", holds=redelivered)
        origin = conn.subscribe("/queue/DLQ").receive(timeout=_TIMEOUT).headers["original-destination"]
        tour.check(f"the dead letter names its queue, {origin}", holds=origin == "/queue/jobs")


def durable(tour: Tour, broker: Broker, conn: Connection) -> None:
    """Receive the messages of a topic that were sent while the subscriber was away."""
    with tour.step("A durable subscription", "The broker keeps messages of a topic while the subscriber is away."):
        with connect(broker.url, client_id="reader") as reader:
            reader.subscribe("/topic/news", durable="news")
        conn.send("/topic/news", "what happened meanwhile", confirm=True)
        with connect(broker.url, client_id="reader") as reader:
            subscription = reader.subscribe("/topic/news", durable="news")
            text = subscription.receive(timeout=_TIMEOUT).text
            subscription.unsubscribe(delete=True)
        tour.check(f"received {text!r}", holds=text == "what happened meanwhile")


def heartbeats(tour: Tour, broker: Broker, conn: Connection) -> None:
    """Send nothing for a while, and count the heartbeats."""
    with tour.step("Heartbeats", "When idle, each side sends line ends, so that a dead peer is detected."):
        conn.flush()
        before, now, deadline = conn.stats(), conn.stats(), Deadline(_TIMEOUT)
        # While no frame passes, each byte is a heartbeat: a single LF (STOMP 1.2, Heart-beating).
        while now.bytes_received - before.bytes_received < _BEATS and not deadline.expired:
            time.sleep(0.02)
            now = conn.stats()
        theirs, ours = now.bytes_received - before.bytes_received, now.bytes_sent - before.bytes_sent
        frames = now.frames_received - before.frames_received
        tour.check(f"{theirs} from the broker, {ours} from the client", holds=theirs >= _BEATS and ours > 0 == frames)


STEPS: tuple[Callable[[Tour, Broker, Connection], None], ...] = (
    send,
    listener,
    receipts,
    transactions,
    nack,
    durable,
    heartbeats,
)


def send_lines(tour: Tour, conn: Connection, lines: list[bytes]) -> None:
    """Send every line to a queue while a subscription receives, and compare."""
    came: list[bytes] = []
    complete = threading.Event()

    def collect(message: Message) -> None:
        came.append(message.body)
        if len(came) == len(lines):
            complete.set()

    started = time.perf_counter()
    conn.subscribe("/queue/lines", collect)
    with conn.batch():
        for line in lines:
            conn.send("/queue/lines", line, content_type="application/json")
    complete.wait(_TIMEOUT)
    rate = len(came) / (time.perf_counter() - started)
    digest = hashlib.sha256(b"\n".join(came)).hexdigest()[:16]
    claim = f"{len(lines):,} messages arrived in order, {rate:,.0f} a second, SHA-256 {digest}"
    tour.check(claim, holds=came == lines)


def _lines_of(file: str | None) -> tuple[str, list[bytes]]:
    path = Path(file) if file is not None else Path(__file__).parents[2] / FLIGHTS
    if file is None and not path.is_file():
        return "5,000 numbered lines", [b'{"number":%d}' % number for number in range(5_000)]
    with files(f"read {str(path)!r}"):
        data = path.read_bytes()
    if not data:
        raise Failure(f"{str(path)!r} is empty", Exit.DATA)
    return str(file or FLIGHTS), data.removesuffix(b"\n").split(b"\n")
