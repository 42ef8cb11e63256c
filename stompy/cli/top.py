"""`stompy top`: the queues, topics and rates of an embedded broker, on the terminal."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from stompy.cli.console import say
from stompy.cli.exits import Exit, Failure
from stompy.cli.options import CommandParser, count, seconds
from stompy.connection.connecting import connect
from stompy.printable import printable
from stompy.world import os, shutil, time

_ADDRESS = "STOMPY_CONSOLE"
_COLUMNS = ("queue or topic", "ready", "unacked", "consumers", "in/s", "out/s", "acked/s")
_COUNTED = ("enqueued", "delivered", "acknowledged")
"""The counters of a destination whose rates those are."""


def add_top(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Show the queues, topics and rates of an embedded broker that has a console, again and again. On a "
        "terminal with rich installed (the extra 'top') the numbers stay in place."
    )
    parser.add_argument(
        "console",
        nargs="?",
        metavar="ADDRESS",
        help=f"of the console, as 'stompy broker --console' reports it (default: ${_ADDRESS})",
    )
    parser.add_argument("--interval", type=seconds, default=1.0, metavar="S", help="seconds between looks (default: 1)")
    parser.add_argument("--count", type=count, metavar="N", help="end after N looks")
    parser.add_argument("--plain", action="store_true", help="text only, one look after the other")
    parser.set_defaults(run=run_top)


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a broker at one moment.

    Attributes:
        summary: one line about the broker.
        rows: a queue or topic each, the busiest first, as text.
    """

    summary: str
    rows: tuple[tuple[str, ...], ...]


def run_top(arguments: argparse.Namespace) -> Exit:
    """Look until the count is reached, or forever."""
    address = arguments.console or os.environ.get(_ADDRESS)
    if address is None:
        raise Failure(f"name the address of the console, or set ${_ADDRESS}", Exit.USAGE)
    left: int | None = arguments.count
    before: Mapping[str, Any] | None = None
    with connect(websocket_of(address), reconnect=False, name="top") as console, _display(arguments.plain) as show:
        while left is None or left > 0:
            if before is not None:
                time.sleep(arguments.interval)
            reply = console.request("/console", json.dumps({"call": "overview"}), timeout=10.0)
            overview = json.loads(reply.body)["result"]
            show(look(overview, before))
            before = overview
            left = None if left is None else left - 1
    return Exit.OK


def websocket_of(address: str) -> str:
    """Return the address for STOMP of a console.

    Raises:
        Failure: it is none.
    """
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.path.strip("/"):
        raise Failure("the address of a console looks like http://127.0.0.1:8161/TOKEN/", Exit.USAGE)
    return f"ws://{parts.netloc}/{parts.path.split('/')[1]}/stomp"


def look(overview: Mapping[str, Any], before: Mapping[str, Any] | None) -> Look:
    """Return the state to show.

    Args:
        overview: the console's answer.
        before: the answer before it, for the rates.
    """
    elapsed = overview["moment"] - before["moment"] if before is not None else 0.0
    earlier = _rows(before) if before is not None else {}
    rows = []
    for name, row in _rows(overview).items():
        grown = [row[counter] - earlier.get(name, {}).get(counter, 0) for counter in _COUNTED]
        rows.append(([max(0, more) / elapsed if elapsed > 0 else 0.0 for more in grown], name, row))
    rows.sort(key=lambda row: (-sum(row[0]), -row[2]["ready"], row[1]))
    shown = tuple(
        (
            printable(name),
            *(f"{row[depth]:,}" for depth in ("ready", "unacked", "consumers")),
            *(f"{rate:,.1f}" for rate in rates),
        )
        for rates, name, row in rows
    )
    counters, old = overview["counters"], (before or overview)["counters"]
    per = {name: (counters[name] - old[name]) / elapsed if elapsed > 0 else 0.0 for name in counters}
    summary = (
        f"{printable(overview['server'])}   in {per['messages_in']:,.0f}/s   out {per['messages_out']:,.0f}/s   "
        f"connections {len(overview['connections']):,}   dead letters {overview['dead_letters']:,}"
    )
    return Look(summary, shown)


def _rows(overview: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the numbers of queues, topics and durable subscriptions by name."""
    listed = itertools.chain.from_iterable(overview[kind] for kind in ("queues", "topics", "durables"))
    return {row[0]: dict(zip(overview["columns"], row, strict=True)) for row in listed}


@contextlib.contextmanager
def _display(plain: bool) -> Iterator[Callable[[Look], None]]:
    """Yield a function that shows a look: in place on a terminal where rich is installed."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    if plain or not terminal or importlib.util.find_spec("rich") is None:
        yield lambda found: say(as_text(found, shutil.get_terminal_size() if terminal else None))
        return
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def table(found: Look) -> Table:
        made = Table(title=Text(found.summary), title_justify="left", expand=True, box=None, header_style="bold")
        for number, title in enumerate(_COLUMNS):
            made.add_column(title, justify="right" if number else "left", no_wrap=True, ratio=None if number else 1)
        for row in found.rows[: max(1, shutil.get_terminal_size().lines - 3)]:
            made.add_row(*map(Text, row))
        return made

    with Live(auto_refresh=False, screen=True) as live:
        yield lambda found: live.update(table(found), refresh=True)


def as_text(found: Look, size: os.terminal_size | None = None) -> str:
    """Return a look as lines of text, and an empty one.

    Args:
        found: the look.
        size: of the terminal that it must fit into; `None` for all of it.
    """
    lines = [_COLUMNS, *found.rows[: None if size is None else max(1, size.lines - 4)]]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_COLUMNS))]
    if size is not None:
        widths[0] = max(len(_COLUMNS[0]), min(widths[0], size.columns - sum(widths[1:]) - 2 * len(widths[1:])))
    shown = [
        "  ".join(
            cell.rjust(width) if place else (cell if len(cell) <= width else f"{cell[: width - 1]}…").ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join([found.summary, *shown, ""])
