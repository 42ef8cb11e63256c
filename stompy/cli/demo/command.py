"""`stompy demo`: what a newcomer runs first."""

from __future__ import annotations

import argparse
import sys

from stompy.broker.broker import Broker
from stompy.cli.console import say
from stompy.cli.demo.flights import Lines, flights, lines_of
from stompy.cli.demo.printer import DemoPrinter
from stompy.cli.demo.steps import HEARTBEAT, STEPS
from stompy.cli.exits import Exit
from stompy.cli.options import add_verbose
from stompy.connection.connecting import connect
from stompy.world import time


def add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        description="Start an embedded broker, and show on it in seconds what stompy does. Needs nothing else.",
    )
    parser.add_argument("--file", metavar="FILE", help="send the lines of FILE instead of the flights")
    add_verbose(parser)
    parser.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> Exit:
    """Give the demo; fail if a check does not hold."""
    lines = lines_of(arguments.file)
    printer = DemoPrinter()
    started = time.monotonic()
    say(f"stompy on Python {sys.version.split()[0]}: a demonstration on the embedded broker,")
    say("which runs in this process, in memory, and is lost at the end.")
    _run(printer, lines)
    say()
    if printer.failed:
        say(f"{len(printer.failed)} of {len(printer.failed) + printer.passed} checks FAILED:")
        for claim in printer.failed:
            say(f"   {claim}")
        return Exit.FAILED
    say(f"All {printer.passed} checks passed, in {time.monotonic() - started:.1f} s. Next:")
    say("   stompy broker                  a development broker, in another terminal")
    say('   stompy send /queue/a "hello"   and stompy subscribe /queue/a')
    return Exit.OK


def _run(printer: DemoPrinter, lines: Lines) -> None:
    with Broker() as broker, connect(broker.url, heartbeat=HEARTBEAT, name="demo") as conn:
        for step in STEPS:
            step(printer, broker, conn)
        flights(printer, conn, lines)
        with printer.step("The end", "DISCONNECT asks for a receipt too, so that nothing is lost at the end."):
            conn.close()
            stats = broker.stats()
            printer.happened("the broker", f"took {stats.messages_in:,} messages and sent {stats.messages_out:,}")
            printer.check("no ERROR frame", holds=stats.errors == 0)
