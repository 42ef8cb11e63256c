"""Counts the instructions that a message costs the client, which no neighbour disturbs: `make bench-instructions`.

    make bench-instructions                        every row; fails if one is 3 % above its recorded limit
    make bench-instructions ARGS="--rows send"     these rows alone
    make bench-instructions ARGS="--record"        keep the figures as the limits of this Python

The client runs under valgrind, its peer, a raw socket server, in another process. A figure is in user mode: what a
round of many messages takes, less what a short one takes, for each message more. stomp.py is counted beside it. Limits
are kept for each release of CPython, as another one has other instructions, in `benchmarks/instructions.json`.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rows import PROGRAMS
from benchmarks.run import TOP, Child, peer

LIMITS = TOP / "benchmarks" / "instructions.json"
ABOVE = 1.03
"""What a figure may be of the recorded one."""
SHORT, LONG = 1000, 3500
"""Messages of the two rounds."""
CLIENTS = ("stompy", "stomp.py")

Figures = dict[str, float]
"""Instructions by client."""


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        title: for the table.
        action: of the clients.
        feed: its settings.
        steady: whether it takes the same each time; what depends on how much arrives with a read has no limit.
        base: the row with whose figure of stompy the one of this row is compared; without one, with that of stomp.py.
    """

    title: str
    action: str
    feed: Mapping[str, Any] = field(default_factory=dict)
    steady: bool = True
    base: str = ""


ROWS = {
    "receive": Row("receive, handler, headers untouched", "receive"),
    "receive-headers": Row("receive, headers read", "receive-headers"),
    "iterate": Row("iteration", "iterate"),
    "subscriptions": Row("1,000 subscriptions in turn", "receive", {"subscriptions": 1000}, steady=False),
    "receive-ack": Row("receive and acknowledge one by one", "receive-ack"),
    "receive-handled": Row("receive, handler, acknowledged when it has returned", "receive-handled"),
    "iterate-handled": Row("iteration, acknowledged when the next is asked for", "iterate", {"mode": "handled"}),
    "send": Row("`send` of bytes alone", "send"),
    "send-typed": Row("`send` of text with a content type and a header", "send", {"kind": "typed"}),
    "send-persistent": Row("`send(persistent=True)`", "send", {"kind": "persistent"}),
    "send-json": Row("`send` of JSON", "send", {"kind": "json"}),
    "send-differing": Row("`send`, a header that differs each time", "send-differing"),
    "batch-typed": Row("`batch()`, text with a content type and a header", "send-batch", {"kind": "typed"}),
    "transaction-typed": Row("transaction, the same", "send-transaction", {"kind": "typed"}),
    "receipts": Row("receipts, 100 in flight, all awaited; stomp.py: none", "send-receipts", {"window": 100}),
    "latency": Row("send, reply, handler", "latency", steady=False),
    "receive-ws": Row("receive, handler, over WebSocket; ratio to TCP", "receive", {"ws": True}, base="receive"),
    "send-ws": Row("`send` of bytes over WebSocket; ratio to TCP", "send", {"ws": True}, base="send"),
}


class Counter:
    """A client under valgrind.

    Args:
        client: its name.
        port: of the peer.
        folder: for the counts.
    """

    def __init__(self, client: str, port: int, folder: Path) -> None:
        self._folder = folder
        module = f"benchmarks.clients.{PROGRAMS[client][0]}"
        # Without a fair turn for each thread, which of them runs when decides how often reading pauses: 3 % of a row.
        valgrind = ("valgrind", "--fair-sched=yes", "--tool=cachegrind", "--cache-sim=no")
        log = ("--cachegrind-out-file=/dev/null", f"--log-file={folder}/%p")
        os.environ["PYTHONHASHSEED"] = "0"  # so that dictionaries and sets cost the same each time
        self.child = Child(*valgrind, *log, sys.executable, "-m", module, "--forked", str(port), "-")
        self.child.read()

    def per_message(self, row: Row) -> float:
        """Return the instructions for a message.

        Raises:
            RuntimeError: a round failed.
        """
        short, long = (self._instructions(row, count) for count in (SHORT, LONG))
        return (long - short) / (LONG - SHORT)

    def _instructions(self, row: Row, count: int) -> int:
        ended = self.child.ask(json.dumps([row.action, dict(row.feed), count]))
        if ended["code"]:
            raise RuntimeError(f"a round of {row.title} ended with {ended['code']}")
        found = re.search(r"I\s+refs:\s+([\d,]+)", (self._folder / str(ended["pid"])).read_text(encoding="utf-8"))
        assert found is not None
        return int(found.group(1).replace(",", ""))


def counted(rows: Mapping[str, Row], clients: Sequence[str]) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of each row, by client."""
    compileall.compile_dir(TOP / "stompy", quiet=1)  # or the short round of a row that imports more would do it
    with tempfile.TemporaryDirectory() as folder, peer(tls=False) as server:
        counters = {client: Counter(client, server["port"], Path(folder)) for client in clients}
        try:
            for name, row in rows.items():
                taken = CLIENTS[:1] if row.base else clients
                yield name, {client: counters[client].per_message(row) for client in taken}
        finally:
            for counter in counters.values():
                counter.child.close()


def recorded() -> dict[str, dict[str, Figures]]:
    """Return what was recorded, by release of Python and row."""
    kept: dict[str, dict[str, Figures]] = json.loads(LIMITS.read_text(encoding="utf-8")) if LIMITS.exists() else {}
    return kept


def table() -> Iterator[str]:
    """Yield the lines of what was recorded, for the page: the figures of this Python, and the ratios of the others."""
    kept = recorded()
    own = platform.python_version()
    releases = [own, *(release for release in sorted(kept, key=_numbers) if release != own)]
    yield f"| CPython {own} | stompy | stomp.py | ratio | {' | '.join(releases[1:])} |"
    yield f"|---|---|---|{'---|' * len(releases)}"
    for name, row in ROWS.items():
        base, beside = (row.base, CLIENTS[0]) if row.base else (name, CLIENTS[1])
        ratios = [f"{kept[release][name]['stompy'] / kept[release][base][beside]:.2f}" for release in releases]
        ours, theirs = kept[own][name]["stompy"], "" if row.base else f"{kept[own][name]['stomp.py']:,.0f}"
        yield f"| {row.title} | {ours:,.0f} | {theirs} | {' | '.join(ratios)} |"


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def above(figures: Mapping[str, float], limits: Mapping[str, float]) -> Iterator[str]:
    """Yield the rows that cost more than they may."""
    for name, figure in figures.items():
        if ROWS[name].steady and name in limits and figure > ABOVE * limits[name]:
            more = 100 * (figure / limits[name] - 1)
            yield f"{name}: {figure:,.0f} instructions, {more:.1f} % above the recorded {limits[name]:,.0f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Count, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description="The instructions that a message costs the client.")
    parser.add_argument("--rows", metavar="A,B", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--record", action="store_true", help="keep the figures as the limits of this Python")
    options = parser.parse_args(argv)
    names = options.rows.split(",") if options.rows else list(ROWS)
    release = platform.python_version()
    kept = recorded()
    limits = {name: figures["stompy"] for name, figures in kept.get(release, {}).items()}
    clients = CLIENTS if release in kept or options.record else CLIENTS[:1]

    print(f"CPython {release}, {subprocess.check_output(['valgrind', '--version'], text=True).strip()}")
    print(f"{'instructions for a message':50} {'stompy':>9} {'recorded':>9} {'stomp.py':>9} {'ratio':>6}", flush=True)
    now: dict[str, Figures] = {}
    for name, figures in counted({name: ROWS[name] for name in names}, clients):
        now[name] = {client: round(figure) for client, figure in figures.items()}
        figure, other = figures["stompy"], figures.get("stomp.py") or limits.get(ROWS[name].base)
        limit = f"{limits[name]:,.0f}" if name in limits else "-"
        beside = f"{other:9,.0f} {figure / other:6.3f}" if other else ""
        print(f"{ROWS[name].title:50} {figure:9,.0f} {limit:>9} {beside}", flush=True)
    if options.record:
        kept[release] = {**kept.get(release, {}), **now}
        LIMITS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    wrong = list(above({name: figures["stompy"] for name, figures in now.items()}, limits))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if not limits:
        print(f"nothing is recorded for CPython {release}: make bench-instructions ARGS=--record")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
