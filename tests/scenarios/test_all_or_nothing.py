"""A transaction takes effect as a whole or not at all, or its error says that this is not known.

Each case is a transaction whose frames are drawn, of which the broker refuses one, or whose session is cut before a
frame of either side. A relay between client and broker makes the refused frame, so that stompy cannot know of it. What
took effect is counted on a connection of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import stompy
from stompy.dialects.brokers import dialect_named
from stompy.transport.address import parse_addresses
from tests.scenarios.acts import SOON, put_back, until_end
from tests.scenarios.expected.model import LIKE
from tests.support.candidates import DIALECTS, Candidate
from tests.support.relay import FrameRelay, unchanged
from tests.support.seed import chance

pytestmark = [
    pytest.mark.broker,
    pytest.mark.scenario("transactions"),
    pytest.mark.once,
    pytest.mark.transports("tcp"),
]

SETTLED = 5.0
"""Seconds that a broker may take to give back what a lost session had not acknowledged."""
SIZES = (1, 2, 50, 2000)
INPUTS = 100
"""Acknowledgements come among so many first frames, as ActiveMQ delivers 200 messages before their ACKs."""
MOST = 50
"""Each of so many first frames is refused and cut at in the long run."""


def _destination(name: str) -> Callable[[bytes], bytes]:
    def change(frame: bytes) -> bytes:
        head, _, rest = frame.partition(b"\ndestination:")
        return b"%b\ndestination:%b\n%b" % (head, name.encode(), rest.partition(b"\n")[2])

    return change


def _header(line: str) -> Callable[[bytes], bytes]:
    return lambda frame: frame.replace(b"\n", b"\n%b\n" % line.encode(), 1)


def _bogus(frame: bytes) -> bytes:
    """Name a message that the broker does not know."""
    head, _, rest = frame.partition(b"\nid:")
    return b"%b\nid:bogus\n%b" % (head, rest.partition(b"\n")[2])


_ACTIVEMQ = {
    "no destination": lambda frame: frame.replace(b"\ndestination:", b"\nelsewhere:", 1),
    "owner gone": _destination(r"/remote-temp-queue/ID\cnone-1-1\c1\c1"),
}
_RABBITMQ = {
    "no such prefix": _destination("/nonsense/out"),
    "no such exchange": _destination("/exchange/nope/x"),
    "foreign user": _header("user-id:somebody"),
}
REFUSALS: dict[str, dict[str, Callable[[bytes], bytes]]] = {
    "embedded": {"a pattern": _destination("/queue/*")},
    "activemq": _ACTIVEMQ,
    "activemq5": _ACTIVEMQ,
    "artemis": {"not a number": _header("priority:abc")},
    "rabbitmq3": _RABBITMQ,
    "rabbitmq4": _RABBITMQ,
}
"""Ways to make a SEND that the broker refuses, by kind of broker."""


@dataclass(frozen=True)
class Case:
    """One transaction.

    Attributes:
        frames: their commands.
        fault: `""`, the name of a refusal, `"up"` or `"down"` for a cut.
        at: the frame that is refused, or the one before which the session is cut, where COMMIT counts too.
    """

    frames: tuple[str, ...]
    fault: str = ""
    at: int = 0


class Judge:
    """Fills queues, and counts what is in them, on a connection of its own."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.dialect = dialect_named(DIALECTS[candidate.kind])
        self.connection = stompy.connect(candidate.url, heartbeat=(0, 0), **candidate.options_in("1.2"))
        self._refusals = REFUSALS[LIKE.get(candidate.kind, candidate.kind)].copy()
        if candidate.kind in LIKE:
            self._refusals.pop("foreign user", None)  # the profile does not know that header

    def draw(self, size: int, *words: object) -> tuple[str, ...]:
        """Return the commands of a transaction."""
        random = chance("transactions", self.candidate.kind, size, *words)
        commands = ("SEND", "SEND", *sorted(self.dialect.transacted))
        frames = [random.choice(commands if place < INPUTS else ["SEND"]) for place in range(size)]
        frames[random.randrange(size)] = "SEND"
        return tuple(frames)

    def refusals(self, command: str) -> list[str]:
        """Return the ways to have a frame refused."""
        return list(self._refusals) if command == "SEND" else ["bogus"]

    def check(self, case: Case, queue: str) -> str:
        """Run a transaction, and check what it did; return that."""
        acks, nacks, sends = (case.frames.count(command) for command in ("ACK", "NACK", "SEND"))
        with self.connection.batch():
            receipts = [
                self.connection.send_async(f"{queue}.in", str(number), headers={"persistent": "true"})
                for number in range(acks + nacks)
            ]
        for receipt in receipts:
            receipt.result(SOON)
        error = self._run(case, queue)
        outcome = getattr(error, "outcome", "not-sent")
        whole = {(0, acks + nacks), (sends, nacks)}
        atomic = self.dialect.atomic_commit
        stored, there = self._count(queue, lambda *found: found in whole or (not atomic and found[1] == acks + nacks))
        what = (
            f"{case.fault} at {case.at} of {len(case.frames)}: {stored} of {sends} sent, {there - nacks} of {acks} left"
        )
        seen = f"{what}; {outcome if error else 'no error'}: {error}"
        if error is None:
            assert (stored, there) == (sends, nacks), seen
        elif outcome == "not-sent":
            assert (stored, there) == (0, acks + nacks), seen
        else:
            assert "unknown" in str(error), seen
            if atomic:
                assert (stored, there) in whole, seen
            else:
                assert stored == sends or there == acks + nacks, f"an input without its outputs: {seen}"
        done = "all" if (stored, there) == (sends, nacks) else "nothing" if stored == 0 else "a part"
        return f"{done}, {outcome if error else 'no error'}"

    def _run(self, case: Case, queue: str) -> stompy.StompError | None:
        address = parse_addresses(self.candidate.url)[0]
        up = down = unchanged
        if case.fault == "up":
            up = lambda number, frame: None if number == case.at else frame  # noqa: E731
        elif case.fault == "down":
            down = lambda number, frame: None if number == case.at else frame  # noqa: E731
        elif case.fault:
            change = _bogus if case.fault == "bogus" else self._refusals[case.fault]
            # The frame's own number: that of RabbitMQ's acknowledgements is behind the messages.
            wanted = case.frames[case.at]
            nth = case.frames[: case.at].count(wanted)
            passed = [0]

            def up(number: int, frame: bytes) -> bytes | None:
                if frame.startswith(wanted.encode() + b"\n"):
                    passed[0] += 1
                    if passed[0] == nth + 1:
                        return change(frame)
                return frame

        inputs = len(case.frames) - case.frames.count("SEND")
        options = self.candidate.options_in("1.2")
        with FrameRelay(address.host, address.port, up=up, down=down) as relay:
            host = self.candidate.connect_headers["host"]
            connection = stompy.connect(relay.url, heartbeat=(0, 0), vhost=host, **options)
            try:
                subscription = None
                if inputs:
                    subscription = connection.subscribe(f"{queue}.in", ack="client-individual", prefetch=inputs)
                messages = (
                    [subscription.receive(timeout=SOON) for _ in range(inputs)] if subscription is not None else []
                )
                with connection.transaction() as transaction:
                    for number, command in enumerate(case.frames):
                        if command == "SEND":
                            transaction.send(queue, str(number), headers={"persistent": "true"})
                        else:
                            getattr(transaction, command.lower())(messages.pop(0))
            except stompy.StompError as error:
                return error
            finally:
                connection.close()
        return None

    def _count(self, queue: str, done: Callable[[int, int], bool]) -> tuple[int, int]:
        """Return how many messages were stored and are there again."""
        # One subscription each for all looks: what comes between two would be lost.
        found, deadline = [0, 0], time.monotonic() + SETTLED
        subscriptions = [self.connection.subscribe(name) for name in (queue, f"{queue}.in")]
        put_back(self.connection)
        while True:
            for place, subscription in enumerate(subscriptions):
                found[place] += len(until_end(self.connection, subscription))
            if done(*found) or time.monotonic() > deadline:
                break
            threading.Event().wait(0.05)
        for subscription in subscriptions:
            subscription.close()
        return found[0], found[1]


@pytest.fixture(scope="module")  # other modules restart the broker
def judge(candidate: Candidate) -> Iterator[Judge]:
    made = Judge(candidate)
    yield made
    made.connection.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_transaction_without_a_fault_is_whole(judge: Judge, queue: str, size: int) -> None:
    assert judge.check(Case(judge.draw(size)), queue) == "all, no error"


@pytest.mark.parametrize("size", SIZES)
def test_a_refused_frame_leaves_all_or_nothing(judge: Judge, queue: str, size: int) -> None:
    random = chance("refused", judge.candidate.kind, size)
    frames = judge.draw(size)
    for command in dict.fromkeys(frames):
        at = random.choice([place for place, each in enumerate(frames) if each == command])
        for fault in judge.refusals(command):
            judge.check(Case(frames, fault, at), f"{queue}.{at}.{fault.replace(' ', '-')}")


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_cut_session_leaves_all_or_nothing(judge: Judge, queue: str, direction: str) -> None:
    frames = judge.draw(5, "cut")
    for at in range(0, 12 if direction == "up" else 6):
        judge.check(Case(frames, direction, at), f"{queue}.{at}")


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("size", SIZES)
def test_each_frame_refused_and_cut_at(judge: Judge, queue: str, size: int) -> None:
    seen: dict[str, int] = {}
    frames = judge.draw(size, "long")
    places = range(min(size, MOST))
    cases = [Case(frames, fault, at) for at in places for fault in judge.refusals(frames[at])]
    borders = sorted({*range(min(size, MOST) + 10), *range(max(0, size - 5), size + 10)})
    cases += [Case(frames, "up", at) for at in borders]
    cases += [Case(frames, "down", at) for at in range(min(size, MOST) + 6)]
    for number, case in enumerate(cases):
        result = f"{case.fault}: {judge.check(case, f'{queue}.{number}')}"
        seen[result] = seen.get(result, 0) + 1
    print(f"{judge.candidate.kind}, {size} frames: {len(cases)} cases: {dict(sorted(seen.items()))}")
