"""Measures what a message costs the client, side by side with other clients: `make bench`.

    make bench                               every row; the result is kept in benchmarks/results/
    make bench ARGS="--rows send,receive"    these rows alone; nothing is kept
    make bench ARGS="--rows= --brokers"      messages through ActiveMQ and RabbitMQ alone

Each client runs alone in a process, its peer, a raw socket server, in another. A figure is the time of the processor
(user and system) for each message. All clients of a row run a round in turn, again and again; the first round of each
is not counted. A ratio is the median of those of the rounds. Absolute figures are only good beside others of their run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trustme

from benchmarks import results
from benchmarks.rows import BY_NAME, CLIENTS, PROGRAMS, SECTIONS, SLOW, Entry, Row

TOP = Path(__file__).resolve().parent.parent
GO = TOP / "build" / "bench-go-stomp"
ROUNDS = 7

Figures = dict[str, Any]


class Ended(Exception):
    """A process that was measured has ended; what it said is on stderr."""


class Child:
    """A process that reads a line and answers with one."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def read(self) -> Any:
        """Return the next line it says, JSON.

        Raises:
            Ended: it ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Ended(f"{self._process.args!r}")
        return json.loads(line)

    def ask(self, line: object) -> Any:
        """Write a line and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        return self.read()

    def close(self) -> None:
        """End it."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def installed(client: str) -> bool:
    """Return whether a client can be measured here."""
    if client == "go-stomp":
        return GO.exists()
    return importlib.util.find_spec(PROGRAMS[client][1]) is not None


def program(client: str) -> list[str]:
    """Return the command of a client."""
    if client == "go-stomp":
        return [str(GO)]
    return [sys.executable, "-m", f"benchmarks.clients.{PROGRAMS[client][0]}"]


@contextlib.contextmanager
def peer(*, tls: bool, prompt: bool = False) -> Iterator[Mapping[str, Any]]:
    """Start a raw socket server; yield what a client must know of it."""
    with contextlib.ExitStack() as ending:
        arguments, certificate = ["--prompt"] if prompt else [], {}
        if tls:
            folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
            arguments.append(str(folder / "server.pem"))
            certificate["certificate"] = str(folder / "authority.pem")
            authority = trustme.CA()
            authority.cert_pem.write_to_path(certificate["certificate"])
            authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(arguments[-1])
        server = Child(sys.executable, "-m", "benchmarks.server", *arguments)
        ending.callback(server.close)
        yield {"port": server.read(), **certificate}


def start(entry: Entry, feed: Mapping[str, Any], ending: contextlib.ExitStack) -> Child | None:
    """Start a client, and return it once it is connected; `None` if it does not have that action."""
    child = Child(*program(entry.client), entry.action, str(feed["port"]), json.dumps({**entry.feed, **feed}))
    ending.callback(child.close)
    return child if child.read()["ready"] else None


def measure(
    row: Row, server: Mapping[str, Any], *, clients: Sequence[str], rounds: int, part: int
) -> dict[str, Figures]:
    """Run the rounds of a row, the clients in turn, and return the figures of each."""
    with contextlib.ExitStack() as ending:
        children: dict[str, tuple[Child, int]] = {}
        for name, entry in row.entries().items():
            if entry.client in clients and (child := start(entry, server, ending)) is not None:
                children[name] = child, max(1, entry.count // part // SLOW.get(entry.client, 1))
        seen: dict[str, list[Figures]] = {name: [] for name in children}
        for number in range(rounds + 1):
            for name, (child, share) in children.items():
                figures = child.ask(share)
                if number:
                    seen[name].append(figures)
    return {name: summary(one, seen.get(row.reference)) for name, one in seen.items()}


def summary(rounds: Sequence[Figures], reference: Sequence[Figures] | None) -> Figures:
    """Return the medians of a client's rounds, and those of the ratios to the reference."""
    values = [one["value"] for one in rounds]
    figures: Figures = {
        "value": statistics.median(values),
        "spread": [min(values), max(values)],
        "rate": statistics.median(one["rate"] for one in rounds),
        "peak_mib": max(one["peak"] for one in rounds) / 2**20,
    }
    for mode in ("user", "system"):
        if all(mode in one for one in rounds):
            figures[mode] = statistics.median(one[mode] for one in rounds)
    if reference is not None:
        ratios = [one / other["value"] for one, other in zip(values, reference, strict=True)]
        figures.update(ratio=statistics.median(ratios), ratio_spread=[min(ratios), max(ratios)])
    return {name: _rounded(figure) for name, figure in figures.items()}


def _rounded(figure: Any) -> Any:
    return [_rounded(one) for one in figure] if isinstance(figure, list) else float(f"{figure:.4g}")


def measured(
    rows: Sequence[Row], clients: Sequence[str], *, rounds: int, part: int, through_brokers: bool = False
) -> Iterator[tuple[Row, dict[str, Figures]]]:
    """Yield what was measured of each row."""
    with contextlib.ExitStack() as ending:
        kinds = {(row.tls, row.prompt) for row in rows}
        servers = {kind: ending.enter_context(peer(tls=kind[0], prompt=kind[1])) for kind in kinds}
        for row in rows:
            try:
                yield row, measure(row, servers[row.tls, row.prompt], clients=clients, rounds=rounds, part=part)
            except Ended as ended:
                print(f"{row.name}: left out, as a client ended: {ended}", flush=True)
    if through_brokers:
        from benchmarks import brokers

        yield from brokers.measured(functools.partial(measure, clients=clients, rounds=min(rounds, 3), part=part))


def chosen(names: str) -> list[Row]:
    """Return rows by their names.

    Raises:
        SystemExit: there is none of that name.
    """
    wanted = [name for name in names.split(",") if name]
    unknown = set(wanted) - set(BY_NAME)
    if unknown:
        raise SystemExit(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in wanted]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested measurements, print them next to the last stored run, and return the exit status."""
    parser = argparse.ArgumentParser(description="What a message costs the client.")
    parser.add_argument("--rows", metavar="A,B", help=f"of {', '.join(BY_NAME)}")
    parser.add_argument("--clients", metavar="A,B", help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"that are counted (default: {ROUNDS})")
    parser.add_argument("--part", type=int, metavar="N", default=1, help="send the Nth part of a row's messages only")
    parser.add_argument("--long", action="store_true", help="with the rows that take minutes")
    parser.add_argument("--brokers", action="store_true", help="through ActiveMQ and RabbitMQ too")
    options = parser.parse_args(argv)
    every = [row for section, rows in SECTIONS.items() for row in rows if options.long or section != "long"]
    rows = chosen(options.rows) if options.rows is not None else every
    clients = options.clients.split(",") if options.clients else CLIENTS
    missing = [client for client in clients if not installed(client)]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}")
    clients = [client for client in clients if client not in missing]
    rounds, part = options.rounds or ROUNDS, options.part

    before = results.last()
    run = results.new(clients, rounds, part)
    print(results.title(run), flush=True)
    for row, figures in measured(rows, clients, rounds=rounds, part=part, through_brokers=options.brokers):
        run["rows"][row.name] = results.row(row, figures)
        print(*results.lines(row.name, run, before), sep="\n", flush=True)
    lost = [row.name for row in rows if row.name not in run["rows"]]
    if options.rows is None and not options.clients:
        print(f"kept in {results.keep(run).relative_to(TOP)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
