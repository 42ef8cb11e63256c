"""What many spools of one source would cost: planning by trigger, listing, index, and the look at the peers.

    .venv-spark/bin/python -m benchmarks.spark_scale                        # 1, 10 and 100 spools, a million a second
    .venv-spark/bin/python -m benchmarks.spark_scale --spools 100 --rate 200000 --interval 0.5

The spools are real folders with real claims, notes and names of segments, whose contents are left out: planning never
reads them. The engine of a query then plans triggers over what arrives at the given rate, with a backlog. The time is
this process's own on the processor; a disk that is slower to list than this machine's cache comes on top.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompy.spark.option_tables import stream_options
from stompy.spark.source.engine import StreamEngine
from stompy.spark.spool.files import Files
from stompy.spark.spool.index import Segment
from stompy.spark.spool.peers import Peers
from stompy.spark.spool.record import Identifier
from stompy.spark.spool.spool import Spool, make_spool
from stompy.spark.spool.writer import SpoolWriter

URL, QUEUE = "stomp://127.0.0.1:1", "/queue/scale"
BYTES = 540
"""Of a message with a body of 200 bytes in a segment."""
TRIGGERS = 7


@dataclass
class Load:
    """What arrives, in all spools together.

    Attributes:
        spools: how many there are.
        rate: messages per second.
        groups: segments per second and spool.
        interval: seconds between two triggers.
        backlog: seconds of messages that Spark has not processed.
    """

    spools: int
    rate: int
    groups: int
    interval: float
    backlog: float

    @property
    def rows(self) -> int:
        """Messages in a segment."""
        return max(1, self.rate // self.spools // self.groups)


class Filled:
    """A spool whose segments have a name and a size, and no contents.

    Args:
        folder: a new one.
        rows: of each segment.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.spool: Spool = make_spool(Files(str(folder)), QUEUE, shared=True)
        self.writer = SpoolWriter(self.spool)
        self.writer.begin(0)
        self._folder = folder
        self._rows = rows
        self._next = self.writer.next

    def add(self, segments: int) -> None:
        """Add segments, as a receiver does that has just written them."""
        for _ in range(segments):
            segment = Segment(self._next, self._rows, 1, f"{self._next:016x}"[-16:])
            with (self._folder / segment.name).open("wb") as file:
                file.truncate(self._rows * BYTES)
            self._next += self._rows


def simulate(load: Load, folder: Path) -> Iterator[tuple[str, float, str]]:
    """Yield what each part costs, in milliseconds of a processor, and for what."""
    filled = [Filled(folder / f"{number:03}", load.rows) for number in range(load.spools)]
    for one in filled:
        one.add(round(load.backlog * load.groups))
    options = {"url": URL, "destination": QUEUE, "spooldir": f"{folder}/*", "receivers": "0"}
    engine = StreamEngine(stream_options(options))
    steps: dict[str, list[float]] = {"latestOffset": [], "partitions": [], "tasks pickled": []}
    offset, tasks = engine.initial(), b""
    try:
        for number in range(TRIGGERS + 1):
            for one in filled:
                one.add(round(load.interval * load.groups))
            begun = time.process_time()
            end = engine.latest(offset)
            listed = time.process_time()
            parts = engine.plan(offset, end)
            planned = time.process_time()
            tasks = pickle.dumps(parts)
            pickled = time.process_time()
            if number:  # the first one has the backlog
                for name, took in zip(steps, (listed - begun, planned - listed, pickled - planned), strict=True):
                    steps[name].append(1000 * took)
            offset = end
        for name, found in steps.items():
            yield name, statistics.median(found), "a trigger"
        size = len(json.dumps(offset)) / 1024
        yield "offset and tasks", 0.0, f"{size:.1f} KiB in the checkpoint, {len(tasks) / 1024:.0f} KiB to the executors"
        yield "look at the peers", _look(filled[0], folder), f"a segment, {load.groups} a second in each process"
    finally:
        engine.stop()
        for one in filled:
            one.writer.close()


def _look(first: Filled, folder: Path) -> float:
    """Return what a process spends on the other spools for each segment without a doubtful message."""
    folders = [str(path) for path in sorted(folder.iterdir())]
    peers = Peers(first.spool, lambda: folders, Identifier(), fresh=0)
    others: Any = {(f"id-{number}", "") for number in range(500)}
    peers.stored(set(), others)
    found = []
    for _ in range(TRIGGERS):
        begun = time.process_time()
        peers.stored(set(), others)
        found.append(1000 * (time.process_time() - begun))
    return statistics.median(found)


def main() -> None:
    """Print a table for each number of spools."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--spools", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rate", type=int, default=1_000_000, help="messages a second, of all spools")
    parser.add_argument("--groups", type=int, default=20, help="segments a second in each spool")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two triggers")
    parser.add_argument("--backlog", type=float, default=10.0, help="seconds of messages that wait at the beginning")
    given = parser.parse_args()
    for spools in given.spools:
        load = Load(spools, given.rate, given.groups, given.interval, given.backlog)
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"{spools} spools, segments of {load.rows:,} messages\n")
            for name, took, what in simulate(load, Path(folder)):
                sys.stdout.write(f"  {name:<18}{took:8.1f} ms  {what}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
