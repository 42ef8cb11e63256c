"""`stompy demo`: what a newcomer runs first."""

from __future__ import annotations

import argparse
import sys
import time

from stompy.broker.broker import Broker
from stompy.cli.console import say
from stompy.cli.exits import Exit
from stompy.cli.flights import Lines, flights, lines_of
from stompy.cli.options import add_verbose
from stompy.cli.stage import Stage
from stompy.cli.tour import HEARTBEAT, STEPS
from stompy.connection.connecting import connect


def add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="the tour, on an embedded broker",
        description="Start an embedded broker, and show on it in seconds what stompy does. Needs nothing else.",
    )
    parser.add_argument("--file", metavar="FILE", help="send the lines of FILE instead of the flights")
    add_verbose(parser)
    parser.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> Exit:
    """Give the tour; fail if a check does not hold."""
    lines = lines_of(arguments.file)
    stage = Stage()
    started = time.monotonic()
    say(f"stompy on Python {sys.version.split()[0]}: a tour on the embedded broker,")
    say("which lives in this process and in memory, and is gone at the end.")
    _give(stage, lines)
    say()
    if stage.failed:
        say(f"{len(stage.failed)} of {len(stage.failed) + stage.passed} checks FAILED:")
        for claim in stage.failed:
            say(f"   {claim}")
        return Exit.FAILED
    say(f"All {stage.passed} checks passed, in {time.monotonic() - started:.1f} s. Next:")
    say("   stompy broker                  a broker to play with, in another terminal")
    say('   stompy send /queue/a "hello"   and stompy subscribe /queue/a')
    return Exit.OK


def _give(stage: Stage, lines: Lines) -> None:
    with Broker() as broker, connect(broker.url, heartbeat=HEARTBEAT, name="demo") as conn:
        for step in STEPS:
            step(stage, broker, conn)
        flights(stage, conn, lines)
        with stage.step("The end", "DISCONNECT asks for a receipt too, so that nothing is lost on the way out."):
            conn.disconnect()
            stats = broker.stats()
            stage.happened("the broker", f"took {stats.messages_in:,} messages and sent {stats.messages_out:,}")
            stage.check("no error frame in all that time", holds=stats.errors == 0)
