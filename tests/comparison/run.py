"""Compare the stand-ins with the real brokers, by sequences of frames that seeds choose.

`python -m tests.comparison.run --kinds activemq --seeds 1000:2000` starts that broker and its stand-in, sends both the
sequences of these seeds, and prints how many are equal in meaning and to the letter, and the classes of differences,
each with its shortest sequence. A difference counts if a second, slower run shows it too.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from stompy.transport.address import parse_addresses
from tests.comparison import measured
from tests.comparison.compare import Difference, differences
from tests.comparison.play import FAST, SLOW, Pace, play
from tests.comparison.steps import Sequence, written
from tests.support import local_brokers  # noqa: F401  "local" is a source of brokers once it is imported
from tests.support.candidates import Candidate, start

KINDS = ("activemq", "activemq5", "artemis", "rabbitmq3", "rabbitmq4")
LIKE = {"rabbitmq4": "like-rabbitmq"}

RECORDED = 30
"""Sequences of each broker, from seed 0, whose frames are kept."""

Address = tuple[str, int]


@dataclass
class Pair:
    """A real broker and its stand-in."""

    real: Address
    like: Address
    server: str = ""

    def compare(self, sequence: Sequence, pace: Pace = FAST) -> list[Difference]:
        """Return how they differ on a sequence."""
        return differences(sequence, play(sequence, self.real, pace), play(sequence, self.like, pace))

    def judge(self, sequence: Sequence) -> list[Difference]:
        """Do the same, and if they differ, once more and slowly: with the nearest of two answers of the real broker."""
        if not self.compare(sequence):
            return []
        like = play(sequence, self.like, SLOW)
        first = differences(sequence, play(sequence, self.real, SLOW), like)
        if not first:
            return []
        return min(first, differences(sequence, play(sequence, self.real, SLOW), like), key=_weight)

    def shrunk(self, sequence: Sequence, differs: Callable[[list[Difference]], bool]) -> Sequence:
        """Return the shortest sequence found that still differs so."""

        def still(shorter: Sequence) -> bool:
            return differs(self.compare(shorter)) and differs(self.compare(shorter, SLOW))

        for at in reversed(range(len(sequence))):
            shorter = sequence[:at] + sequence[at + 1 :]
            if shorter and still(shorter):
                sequence = shorter
        for at, step in reversed(list(enumerate(sequence))):
            for name, value in reversed(step.headers):
                if step.command in ("CONNECT", "STOMP") and name in ("login", "passcode", "host", "accept-version"):
                    continue
                plain = replace(
                    sequence[at], headers=tuple(pair for pair in sequence[at].headers if pair != (name, value))
                )
                shorter = (*sequence[:at], plain, *sequence[at + 1 :])
                if still(shorter):
                    sequence = shorter
        return sequence


def _weight(found: list[Difference]) -> tuple[int, int]:
    return sum(each.level == "meaning" for each in found), len(found)


@contextmanager
def pair(kind: str) -> Iterator[Pair]:
    """Run a real broker and its stand-in."""
    with start(kind) as real, start(LIKE.get(kind, f"like-{kind}")) as like:
        yield Pair(address_of(real), address_of(like), real.product)


def address_of(candidate: Candidate) -> Address:
    """Return where a broker listens."""
    address = parse_addresses(candidate.url)[0]
    return address.host, address.port


@dataclass
class Result:
    """What came of the sequences of one broker."""

    kind: str
    sequences: int = 0
    in_meaning: int = 0
    to_the_letter: int = 0
    seconds: float = 0.0
    classes: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    examples: dict[tuple[str, str], tuple[int, Sequence]] = field(default_factory=dict)
    deliveries: set[tuple[str, str]] = field(default_factory=set)

    def take(self, seed: int, sequence: Sequence, found: list[Difference]) -> None:
        """Count a sequence."""
        self.sequences += 1
        self.in_meaning += all(each.level != "meaning" for each in found)
        self.to_the_letter += not found
        for each in found:
            key = (each.level, each.signature)
            self.classes[key] += 1
            if key not in self.examples or len(sequence) < len(self.examples[key][1]):
                self.examples[key] = seed, sequence

    def row(self) -> str:
        """Return the result in a line."""
        shares = [f"{100 * count / max(1, self.sequences):.1f} %" for count in (self.in_meaning, self.to_the_letter)]
        return (
            f"| {self.kind} | {self.sequences} | {shares[0]} | {shares[1]} | {len(self.classes)} | {self.seconds:.0f} |"
        )


def compare(brokers: Pair, kind: str, seeds: range, *, workers: int, shrink: int = 0) -> Result:
    """Compare a broker with its stand-in."""
    result = Result(kind)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        began = time.monotonic()

        def one(seed: int) -> tuple[int, Sequence, list[Difference]]:
            sequence = written(seed, kind)
            found = brokers.judge(sequence)
            if shrink and any(each.delivery for each in found):
                sequence = brokers.shrunk(sequence, lambda now: any(each.delivery for each in now))
                found = [each for each in found if not each.delivery] + [
                    each for each in brokers.compare(sequence, SLOW) if each.delivery
                ]
            return seed, sequence, found

        for done in pool.map(one, seeds):
            result.take(*done)
        result.seconds = time.monotonic() - began
        # The commonest classes, each as its shortest sequence.
        keys = [key for key, _ in result.classes.most_common(shrink) if not key[1].startswith("messages ")]

        def short(key: tuple[str, str]) -> tuple[tuple[str, str], Sequence]:
            _, sequence = result.examples[key]
            return key, brokers.shrunk(sequence, lambda now: key in {(each.level, each.signature) for each in now})

        for key, sequence in pool.map(short, keys):
            result.examples[key] = result.examples[key][0], sequence
    return result


def show(result: Result, limit: int) -> None:
    """Print the classes of a result."""
    for (level, signature), count in sorted(
        result.classes.items(), key=lambda item: (item[0][0] != "meaning", -item[1])
    )[:limit]:
        seed, sequence = result.examples[level, signature]
        print(f"{count:5} {level:8} {signature}\n{'':15}seed {seed}: {' ;; '.join(map(str, sequence))[:700]}")


def record(result: Result, brokers: Pair, first: int) -> None:
    """Keep a result for the page, and the frames of the real broker for the tests without brokers."""
    kept = json.loads(measured.FILE.read_text(encoding="utf-8")) if measured.FILE.exists() else {}
    kept[result.kind] = {
        "server": brokers.server,
        "first": first,
        "sequences": result.sequences,
        "in_meaning": result.in_meaning,
        "to_the_letter": result.to_the_letter,
        "reasons": measured.reasons_of(result.classes),
    }
    measured.save(kept)
    rows = json.loads(measured.ROWS.read_text(encoding="utf-8")) if measured.ROWS.exists() else {}
    rows[result.kind] = [row_of(result.kind, seed, brokers) for seed in range(RECORDED)]
    lines = ",\n".join(
        f"{json.dumps(kind)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows[kind]) + "\n]"
        for kind in sorted(rows)
    )
    measured.ROWS.write_text(f"{{{lines}}}\n", encoding="utf-8")


def row_of(kind: str, seed: int, brokers: Pair) -> dict[str, object]:
    """Return the sequence of a seed, the frames of the real broker, and how far those of the stand-in are equal."""
    sequence = written(seed, kind)
    played = play(sequence, brokers.real, SLOW)
    return {
        "seed": seed,
        "equal": level_of(differences(sequence, played, play(sequence, brokers.like, SLOW))),
        "steps": [step.dumped() for step in sequence],
        "played": played.dumped(),
    }


def level_of(found: list[Difference]) -> str:
    """Return how far two brokers are equal: `letter`, `meaning` or not at all."""
    return "no" if any(each.level == "meaning" for each in found) else "meaning" if found else "letter"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seeds", default="0:100", help="first:last, the last one left out")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--shrink", type=int, default=0, help="how many classes to show by their shortest sequence")
    parser.add_argument("--show", type=int, default=200, help="how many classes to print")
    parser.add_argument("--record", action="store_true", help="keep the result in measured.json and rows.json")
    parser.add_argument(
        "--gate", type=int, default=0, metavar="N", help="N new seeds; fail if fewer are equal than measured"
    )
    options = parser.parse_args(arguments)
    first, last = map(int, options.seeds.split(":"))
    if options.gate:
        first = random.SystemRandom().randrange(10**6, 10**9)
        last = first + options.gate
        print(f"seeds {first}:{last}")
    known, worse = {each.kind: each for each in measured.load()}, []
    rows = []
    for kind in options.kinds.split(","):
        with pair(kind) as brokers:
            result = compare(brokers, kind, range(first, last), workers=options.workers, shrink=options.shrink)
            if options.record:
                record(result, brokers, first)
        print(f"\n## {kind}\n")
        show(result, options.show)
        rows.append(result.row())
        print("\n" + rows[-1], flush=True)
        if options.gate:
            before, now = known[kind], (result.in_meaning, result.to_the_letter)
            equal = (before.in_meaning, before.to_the_letter)
            least = tuple(measured.floor(count, before.sequences, result.sequences) for count in equal)
            if now[0] < least[0] or now[1] < least[1]:
                worse.append(f"{kind}: {now} are equal in meaning and to the letter, {least} were expected at least")
    print("\n| broker | sequences | in meaning | to the letter | classes | seconds |\n|---|---|---|---|---|---|")
    print("\n".join(rows))
    print(*worse, sep="\n")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
