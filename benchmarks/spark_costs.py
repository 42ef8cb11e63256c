"""What the parts of the data pipeline cost alone, without Spark: its receiver, planning, and the removal of segments.

    .venv-spark/bin/python -m benchmarks.spark_costs                    # on the embedded broker
    .venv-spark/bin/python -m benchmarks.spark_costs receive --profile  # where a received message costs

The time is this process's own on the processor, which neighbours disturb less than the clock; a plain loop and a
receiver take turns.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pickle
import pstats
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.spark import BODY, broker, fill, plain
from stompy.frames.frame import Frame
from stompy.spark.option_tables import spool_options, stream_options
from stompy.spark.receivers import ReceiverPool
from stompy.spark.source.engine import StreamEngine
from stompy.spark.spool.files import Files
from stompy.spark.spool.record import Identifier, records_of
from stompy.spark.spool.spool import make_spool
from stompy.spark.spool.writer import SpoolWriter

SEGMENTS = 4_000
TIMES = 15
URL, QUEUE = "stomp://127.0.0.1:1", "/queue/costs"


def receive(url: str, folder: Path, *, count: int, rounds: int) -> Iterator[tuple[str, str]]:
    """Compare a receiver with a plain receive loop, in turn."""
    loops, receivers = [], []
    for number in range(rounds + 1):
        loops.append(plain(url, count)[1])
        receivers.append(_received(url, folder / str(number), count))
    # Without the first ones, which load modules.
    ratio = statistics.median(mine / other for mine, other in zip(receivers[1:], loops[1:], strict=True))
    yield "plain loop, ack each 200", f"{statistics.median(loops[1:]):.1f} us CPU a message"
    yield "receiver", f"{statistics.median(receivers[1:]):.1f} us CPU a message, {ratio:.2f} times the plain loop"


def _received(url: str, place: Path, count: int) -> float:
    """Fill a spool; return the microseconds of CPU for each message."""
    queue = fill(url, count)
    options = spool_options({"url": url, "destination": queue, "spooldir": str(place)})
    spool = make_spool(Files(str(place)), queue)
    began = time.process_time()
    pool = ReceiverPool(options, spool, until=count)
    try:
        pool.watch(lambda: count - pool.writer.next)
        return 1e6 * (time.process_time() - began) / count
    finally:
        pool.stop()


class _Unsynced(Files):
    """A folder that is filled quickly, as its contents are never needed after a crash."""

    def write(self, name: str, data: bytes, *, look: Callable[[], None] | None = None) -> None:
        Path(self.path(name)).write_bytes(data)


def _filled(place: Path) -> SpoolWriter:
    """Return the writer of a spool of many small segments, all of which are confirmed."""
    writer = SpoolWriter(make_spool(_Unsynced(str(place)), QUEUE))
    writer.begin(0)
    for number in range(SEGMENTS):
        writer.confirm(_store(writer, number))
    writer.maintain()
    return writer


def _store(writer: SpoolWriter, number: int) -> Any:
    headers = {"message-id": f"id-{number}", "destination": QUEUE, "subscription": "1"}
    frame = Frame("MESSAGE", headers, BODY)
    return writer.store(0, records_of([frame], None, Identifier(), broker=URL, received_at=number))


def _engine(folder: Path) -> StreamEngine:
    given = {"url": URL, "destination": QUEUE, "spooldir": str(folder), "receivers": "0"}
    return StreamEngine(stream_options(given))


def trigger(folder: Path) -> Iterator[tuple[str, str]]:
    """Measure what Spark waits for in a trigger, while a spool has many segments."""
    writer = _filled(folder)
    engine = _engine(folder)
    try:
        start = engine.initial()
        engine.latest(start)
        for title, begin in (("of all of them", start), ("of the newest one", None)):
            steps: dict[str, list[float]] = {"latestOffset": [], "partitions": [], "pickle": []}
            for number in range(TIMES):
                begun = engine.latest(start) if begin is None else begin
                writer.confirm(_store(writer, SEGMENTS + number))
                clock = [time.process_time()]
                end = engine.latest(begun)
                clock.append(time.process_time())
                parts = engine.plan(begun, end)
                clock.append(time.process_time())
                for part in parts:
                    pickle.dumps(part)
                clock.append(time.process_time())
                for name, earlier, later in zip(steps, clock, clock[1:], strict=False):
                    steps[name].append(1000 * (later - earlier))
            each = {name: statistics.median(found) for name, found in steps.items()}
            shown = ", ".join(f"{name} {found:.1f}" for name, found in each.items())
            yield f"trigger, {SEGMENTS:,} segments, batch {title}", f"{sum(each.values()):.1f} ms CPU ({shown})"
    finally:
        engine.stop()
        writer.close()


def purge(folder: Path) -> Iterator[tuple[str, str]]:
    """Measure the removal of many processed segments."""
    writer = _filled(folder)
    engine = _engine(folder)
    start = engine.initial()
    end = engine.latest(start)
    engine.plan(start, end)
    for title, work in (("commit", partial(engine.commit, end)), ("removal", writer.maintain)):
        took, longest = 0.0, 0.0
        while True:
            began, cpu = time.perf_counter(), time.process_time()
            work()
            took += time.process_time() - cpu
            longest = max(longest, time.perf_counter() - began)
            if title == "commit" or not any(name.startswith("seg-") for name in os.listdir(folder)):
                break
        yield f"purge of {SEGMENTS:,} segments, {title}", f"{1000 * took:.0f} ms CPU, at most {1000 * longest:.0f} ms"
    engine.stop()
    writer.close()


def profiled(work: Callable[[], object]) -> None:
    """Run something, and print where all its threads spent their time."""
    profiles: list[cProfile.Profile] = []
    run = threading.Thread.run

    def profile(self: threading.Thread) -> None:
        mine = cProfile.Profile(time.thread_time)
        profiles.append(mine)
        mine.runcall(run, self)

    threading.Thread.run = profile  # type: ignore[method-assign]
    try:
        work()
    finally:
        threading.Thread.run = run  # type: ignore[method-assign]
    for one in profiles:
        one.create_stats()
    found = pstats.Stats(*(one for one in profiles if getattr(one, "stats", None)), stream=sys.stdout)
    found.sort_stats("tottime").print_stats(30)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="What the parts of the data pipeline cost, without Spark.")
    parser.add_argument("parts", nargs="*", choices=("receive", "trigger", "purge", []), help="by default all")
    parser.add_argument("--messages", type=int, default=30_000, metavar="N", help="of a round (default: 30,000)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="only print where a receiver spends its time")
    arguments = parser.parse_args()
    parts = arguments.parts or ["receive", "trigger", "purge"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "receive" in parts:
            with broker("embedded") as url:
                if arguments.profile:
                    _received(url, folder / "first", 1000)
                    profiled(lambda: _received(url, folder / "profile", arguments.messages))
                    return
                for what, figure in receive(url, folder, count=arguments.messages, rounds=arguments.rounds):
                    print(f"| {what} | {figure} |", flush=True)
        for part, measure in (("trigger", trigger), ("purge", purge)):
            for what, figure in measure(folder / part) if part in parts else ():
                print(f"| {what} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
