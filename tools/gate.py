#!/usr/bin/env python3
"""Runs the stages that a change has to pass, two at a time, and prints a table of them: `tools/gate.py`.

    tools/gate.py                 every stage of the gate
    tools/gate.py --only NAME     these stages alone, for instance after a failure; may be given several times
    tools/gate.py --long          what takes too long for every run (`make test-long`)
    tools/gate.py --check-long    fails if that was not run, all green, since the last release in CHANGELOG.md

Each stage is a target of the Makefile. What it prints goes to `build/gate/STAGE.log`; the first stage that fails ends
the run, and the end of its log is shown. No test has a second try. The table stands in `.ci/gate.json`
(`.ci/gate-long.json`) afterwards, and the one before beside it, with `previous` in its name, so that growth shows.
Standard library only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

TOP = Path(__file__).resolve().parent.parent
LOGS = TOP / "build" / "gate"
SHOWN_LINES = 150
AT_ONCE = 2
PYTEST = "--durations=25 --timeout=180"
"""Options of every suite: a machine may be less than half as fast as others, and a test alone has a minute."""
COUNTED = ("passed", "skipped", "failed")


@dataclass(frozen=True)
class Stage:
    """A target of the Makefile.

    Attributes:
        name: of the target.
        after: stages that must have ended before.
        alone: nothing else runs beside it.
        tests: it runs tests, and fails if it ran none.
        limit: seconds that it may take.
        settings: variables of its environment and of the Makefile.
    """

    name: str
    after: tuple[str, ...] = ()
    alone: bool = False
    tests: bool = False
    limit: int = 900
    settings: Mapping[str, str] = field(default_factory=dict)


IMAGES = {"STOMPY_BROKERS_FROM": "local"}

# In this order they begin, as soon as there is room. What takes both processors for itself runs alone. What runs in
# several processes for long (`test-brokers`, `test-pythons`) has what runs in one beside it, and begins early, so that
# it is not left alone at the end.
GATE: tuple[Stage, ...] = (
    Stage("test", alone=True, tests=True, limit=1500),
    Stage("dev", alone=True),
    Stage("test-spark", alone=True, tests=True, limit=1500),
    Stage("images"),
    Stage("types"),
    Stage("test-brokers", after=("images",), tests=True, limit=1800, settings=IMAGES),
    Stage("docs"),
    Stage("lint"),
    Stage("audit"),
    Stage("bench-instructions"),
    Stage("simulate", limit=1500),
    Stage("test-load", tests=True, limit=1500),
    Stage("test-pythons", tests=True, limit=2400),
    Stage("build"),
    Stage("demo"),
    Stage("test-tools", tests=True),
    Stage("check-long"),
    Stage("compare", after=("images",), limit=1500, settings=IMAGES),
    Stage("test-spark-brokers", after=("images",), tests=True, settings=IMAGES),
    Stage("test-spark-oldest", tests=True),
    Stage("test-gevent", tests=True),
    Stage("test-browser", tests=True),
    Stage("test-transports", after=("images",), tests=True, limit=1500, settings=IMAGES),
    Stage("test-dropin", tests=True),
)

LONG: tuple[Stage, ...] = (
    Stage("test-long-client", tests=True, limit=3600),
    Stage("test-long-worker", tests=True, limit=4 * 3600, settings=IMAGES),
    Stage("test-long-spark", tests=True, limit=4 * 3600, settings=IMAGES),
    Stage("test-autobahn", tests=True, limit=1800),
    Stage("fuzz", limit=1800),
    Stage("mutation", limit=7200),
)


@dataclass
class Result:
    """What became of a stage: seconds; tests that passed, were skipped, failed; the day and the commit."""

    stage: str
    seconds: int
    passed: int = 0
    skipped: int = 0
    failed: int = 0
    status: str = "ok"
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    commit: str = field(default_factory=lambda: head())


class Running:
    """A running stage, in its own process group."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.log = LOGS / f"{stage.name}.log"
        self._began = time.monotonic()
        self._file: IO[bytes] = self.log.open("wb")
        self._process = subprocess.Popen(
            ["make", "--no-print-directory", stage.name],
            cwd=TOP,
            env={**os.environ, "PYTEST_ADDOPTS": PYTEST, **stage.settings},
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def seconds(self) -> int:
        """How long it runs."""
        return round(time.monotonic() - self._began)

    def result(self) -> Result | None:
        """Return what became of it, or `None` while it runs."""
        status = self._process.poll()
        overdue = status is None and self.seconds > self.stage.limit
        if status is None and not overdue:
            return None
        if overdue:
            self.end()
        self._file.close()
        log = self.log.read_text(encoding="utf-8", errors="replace")
        counts: dict[str, Any] = count_tests(log)
        result = Result(self.stage.name, self.seconds, **counts)
        if overdue:
            result.status = f"took more than {self.stage.limit} s"
        elif status:
            result.status = f"exit status {status}"
        elif self.stage.tests and not result.passed:
            result.status = "ran no test"
        return result

    def end(self) -> None:
        """End it and what it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
            return


def head() -> str:
    """Return the commit that is checked out, empty outside of a checkout."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False).stdout.strip()


def count_tests(log: str) -> dict[str, int]:
    """Return how many tests passed, were skipped and failed, by the closing lines of pytest in a log."""
    counts = dict.fromkeys(COUNTED, 0)
    for line in re.findall(r"^(?:=+ )?((?:\d+ [a-z]+,? )+)in \d.*$", log, re.MULTILINE):
        for number, word in re.findall(r"(\d+) ([a-z]+)", line):
            word = {"error": "failed", "errors": "failed"}.get(word, word)
            if word in counts:
                counts[word] += int(number)
    return counts


def run(stages: Sequence[Stage]) -> Iterator[Result]:
    """Run the stages and yield what became of each, up to the first that fails."""
    waiting, running, ended = list(stages), list[Running](), set[str]()
    names = {stage.name for stage in stages}
    try:
        while waiting or running:
            for stage in list(waiting):
                free = not running if stage.alone else len(running) < AT_ONCE
                if not free or any(one.stage.alone for one in running):
                    break
                if names.intersection(stage.after) <= ended:
                    waiting.remove(stage)
                    running.append(Running(stage))
                    print(f"        {stage.name} begins", flush=True)
            time.sleep(0.2)
            for one in list(running):
                if (result := one.result()) is not None:
                    running.remove(one)
                    ended.add(result.stage)
                    yield result
                    if result.status != "ok":
                        show_end(one.log)
                        return
    finally:
        for one in running:
            one.end()


def show_end(log: Path) -> None:
    """Print the end of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print(f"======== the end of {log.relative_to(TOP)}", *lines[-SHOWN_LINES:], "========", sep="\n", flush=True)


Kept = dict[str, dict[str, Any]]
"""The stages of a run by name, each with the fields of its `Result`."""


def table(results: Sequence[Result], before: Kept) -> Iterator[str]:
    """Yield the lines of the table; in brackets stands the run before."""
    columns = ("seconds", "passed", "skipped")
    yield f"{'stage':20}" + "".join(f"{name:>16}" for name in columns) + "  status"
    for result in results:
        old = before.get(result.stage, {})
        cells = (f"{getattr(result, name)} ({old.get(name, '-')})" for name in columns)
        yield f"{result.stage:20}" + "".join(f"{cell:>16}" for cell in cells) + f"  {result.status}"


def keep(results: Sequence[Result], *, kind: str) -> None:
    """Write the table to its file; the stages of a long run replace its earlier ones."""
    file = TOP / ".ci" / f"{kind}.json"
    stages: Kept = kept(kind) if kind == "gate-long" else {}
    stages.update((result.stage, asdict(result)) for result in results)
    if file.exists():
        file.replace(file.with_name(f"{kind}-previous.json"))
    file.write_text(json.dumps(list(stages.values()), indent=1) + "\n", encoding="utf-8")


def kept(kind: str) -> Kept:
    """Return the stages of the last run that was kept, by name."""
    file = TOP / ".ci" / f"{kind}.json"
    stages = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return {stage["stage"]: stage for stage in stages}


def check_long(changelog: str, stages: Kept) -> Iterator[str]:
    """Yield what is wrong with the last long run: a stage that was not run, or not since the last release."""
    released = max(re.findall(r"^## \[\d[^\]]*\] - (\d{4}-\d\d-\d\d)", changelog, re.MULTILINE), default="")
    for stage in LONG if released else ():
        if stage.name not in stages:
            yield f"`make {stage.name}` has no result: `make test-long`"
        elif stages[stage.name]["date"] < released:
            ran = stages[stage.name]["date"]
            yield f"`make {stage.name}` was last run on {ran}, before the release of {released}: `make test-long`"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for and return the exit status."""
    parser = argparse.ArgumentParser(description="Runs the stages that a change has to pass.")
    parser.add_argument("--only", action="append", metavar="NAME", help="run this stage alone")
    parser.add_argument("--long", action="store_true", help="run what takes too long for every run")
    parser.add_argument("--check-long", action="store_true", help="look at the last long run")
    options = parser.parse_args(argv)
    if options.check_long:
        wrong = list(check_long((TOP / "CHANGELOG.md").read_text(encoding="utf-8"), kept("gate-long")))
        print(*(wrong or ["nothing was released since what takes too long for every run was green"]), sep="\n")
        return 1 if wrong else 0

    kind, stages = ("gate-long", LONG) if options.long else ("gate", GATE)
    if options.only:
        stages = tuple(stage for stage in stages if stage.name in options.only)
    LOGS.mkdir(parents=True, exist_ok=True)
    began, before = time.monotonic(), kept(kind)
    results = []
    for result in run(stages):
        results.append(result)
        print(f"{result.seconds:5} s {result.stage}: {result.status}, {result.passed} passed", flush=True)
    seconds = round(time.monotonic() - began)
    print("", *table(results, before), f"all in {seconds} s", sep="\n")
    failed = [result for result in results if result.status != "ok"]
    totals = {word: sum(getattr(result, word) for result in results) for word in COUNTED}
    if options.long or not (failed or options.only):
        keep([result for result in results if result.status == "ok"], kind=kind)
    print(f"{totals['passed']} passed, {max(totals['failed'], len(failed))} failed, {totals['skipped']} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell gives its background jobs a SIGINT that is ignored, and tests send it to programs of theirs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
