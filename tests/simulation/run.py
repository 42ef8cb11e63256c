"""Runs simulated worlds: `python -m tests.simulation.run --seeds 10000`, or `--seed 4711` for one with its trace.

What fails is made smaller first; then its plan, its breaches and its trace are printed. `--faults` plants each fault of
`tests/simulation/faults.py`, one after the other, and prints how many seeds it takes to find it, the median of several
searches with `--times`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import importlib
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from tests.simulation import faults

PIECE = 25
"""Seeds that a process runs before it is asked again."""
STACK = 1 << 20
"""Bytes of the stack of a thread: the C library keeps 40 MiB of stacks for the next threads, those of a world."""


def failing(seeds: Sequence[int]) -> list[tuple[int, str]]:
    """Return the first seed whose world breaks a promise, and how; in a process that has planted its fault."""
    from tests.simulation.plans import Plan
    from tests.simulation.programs import run  # after the fault was planted

    plans = [Plan.drawn(seed) for seed in seeds]
    shown = [
        plan
        for plan in plans
        if faults.may_show(
            worker=plan.workers,
            processes=[each for each in plan.workers if each.children],
            outbox=plan.outboxes,
            compat=plan.drop_ins,
            spark=plan.spools,
            websocket=plan.web,
        )
    ]
    for plan in shown:
        breaches = run(plan).breaches
        gc.collect(1)  # a world is garbage as a whole, and the next one finds its memory
        if breaches:
            return [(plan.seed, breaches[0])]
    gc.collect()
    return []


def begin(processors: multiprocessing.SimpleQueue[int | None]) -> None:
    """Begin a process: plant its fault, and stay on one processor, as one thread runs at a time.

    Only `failing` collects garbage there, and looks at nothing that was there before its worlds.
    """
    processor = processors.get()
    if processor is not None:
        os.sched_setaffinity(0, {processor})  # a baton that goes to another processor costs twice as much
    if hasattr(os, "SCHED_BATCH"):
        # Who gets the baton runs when the other one waits, not before, only to wait for the interpreter's lock.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    threading.stack_size(STACK)
    faults.plant()
    importlib.import_module("tests.simulation.programs")
    gc.disable()
    gc.freeze()


def found(first: int, count: int, processes: int) -> Iterator[list[tuple[int, str]]]:
    """Yield the failing seeds of one piece after the other."""
    from tests.simulation.run import begin, failing  # by the names under which other processes find them

    pieces = [range(at, min(at + PIECE, first + count)) for at in range(first, first + count, PIECE)]
    context = multiprocessing.get_context("spawn")
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
    processors: multiprocessing.SimpleQueue[int | None] = context.SimpleQueue()
    for number in range(processes):
        processors.put(usable[number % len(usable)])
    with concurrent.futures.ProcessPoolExecutor(processes, context, initializer=begin, initargs=(processors,)) as pool:
        try:
            yield from pool.map(failing, pieces)
        finally:
            pool.shutdown(cancel_futures=True)


def show(seed: int) -> int:
    """Run one seed, make it smaller if it fails, and print it; return the exit status."""
    from tests.simulation.plans import Plan
    from tests.simulation.programs import run, shrunk

    plan = Plan.drawn(seed)
    if run(plan).breaches:
        plan = shrunk(plan, lambda smaller: bool(run(smaller).breaches))
    result = run(plan)
    print(plan, *result.trace, *result.breaches, f"{result.steps} steps, {result.seconds:.3f} s", sep="\n")
    return 1 if result.breaches else 0


def first_seed(fault: str, first: int, most: int, processes: int) -> int | None:
    """Return how many seeds it takes from the first one on to find a planted fault, or `None`."""
    command = [sys.executable, "-m", "tests.simulation.run", "--quick"]
    command += ["--first", str(first), "--seeds", str(most), "--processes", str(processes)]
    done = subprocess.run(
        command, env={**os.environ, faults.PLANTED: fault}, capture_output=True, text=True, check=False
    )
    numbers = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("seed ")]
    if done.returncode and not numbers:
        raise RuntimeError(done.stderr)
    return int(numbers[0]) - first if numbers else None


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description="Runs simulated worlds.")
    parser.add_argument("--seed", type=int, help="run one, and print what happens in it")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--quick", action="store_true", help="print the first seed that fails, and no more of it")
    parser.add_argument(
        "--faults", const="", nargs="?", help="plant each fault, or those with a text in their names, and look for it"
    )
    parser.add_argument("--times", type=int, default=1, help="from how many first seeds faults are looked for")
    parser.add_argument("--processes", type=int, default=2, help="how many processes run them")
    options = parser.parse_args()
    if options.faults is not None:
        missed = 0
        firsts = [options.first + number * options.seeds for number in range(options.times)]
        for name in [name for name in faults.FAULTS if options.faults in name]:
            took = [first_seed(name, first, options.seeds, options.processes) for first in firsts]
            missed += None in took
            median = statistics.median(math.inf if one is None else one for one in took)
            print(f"{median:>9g}  {name}: {took}", flush=True)
        return 1 if missed else 0
    faults.plant()
    if options.seed is not None:
        return show(options.seed)
    began = time.monotonic()
    for bad in found(options.first, options.seeds, options.processes):
        if bad:
            seed, breach = bad[0]
            print(f"{breach}\nseed {seed}", flush=True)
            return 1 if options.quick else show(seed)
    print(f"{options.seeds} seeds from {options.first} on broke no promise, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
