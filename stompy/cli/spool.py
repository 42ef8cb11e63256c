"""`stompy spool`: a receiver that fills a spool, on a machine of its own or beside Spark."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.cli.console import report, say
from stompy.cli.exits import Exit, Failure, interruption
from stompy.cli.options import add_verbose, seconds
from stompy.connection.connecting import DEFAULT_URL
from stompy.errors import SpoolDamagedError
from stompy.spark.broker_options import BrokerOptions
from stompy.spark.options import Option, own_options, table_of
from stompy.spark.source_options import SpoolOptions, spool_options
from stompy.world import os, time

if TYPE_CHECKING:
    from stompy.spark.receivers import ReceiverPool

_PASSCODE = "STOMPY_PASSCODE"
_REPORT_INTERVAL = 1.0
"""Seconds between two lines on a terminal."""
_POSITIONAL = frozenset({"destination", "spoolDir"})


def add_spool(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser; its options are those of the source, from the same table."""
    parser = commands.add_parser(
        "spool",
        description="Receive messages into a spool: write to disk, then acknowledge. Spark reads it with the options "
        "spoolDir and receivers=0.",
    )
    parser.add_argument(
        "destination",
        metavar="DESTINATION",
        help="such as /queue/orders, several with commas between; `status` shows what a spool contains, and ends",
    )
    parser.add_argument("spool_dir", metavar="FOLDER", help="a directory that Spark's machines reach as well")
    broker = parser.add_argument_group("connection")
    receivers = parser.add_argument_group("receivers")
    for group, kind in ((broker, BrokerOptions), (receivers, SpoolOptions)):
        for option in own_options(kind):
            if option.name not in _POSITIONAL:
                group.add_argument(_flag(option), metavar="VALUE", help=_help(option))
    receivers.add_argument(
        "--idle-timeout", type=seconds, metavar="S", help="end with code 0 when nothing arrived for S seconds"
    )
    add_verbose(parser)
    parser.set_defaults(run=run_spool)


def run_spool(arguments: argparse.Namespace) -> Exit:
    """Receive until a signal ends it, nothing came for long enough, or no messages can come any more."""
    check_pyarrow("a spool")
    if arguments.destination == "status":
        return _print_status(arguments.spool_dir)
    from stompy.spark.receivers import ReceiverPool
    from stompy.spark.spool.files import Files
    from stompy.spark.spool.spool import make_spool

    options = spool_options(_given(arguments))
    if not options.receivers:
        raise Failure("--receivers must be 1 or more here", Exit.USAGE)
    spool = make_spool(Files(options.spool_dir), options.origin)
    if arguments.lock_timeout is None:
        # One that waits without a limit takes over when the other one ends or hangs.
        options = replace(options, lock_timeout=math.inf)
    pool: ReceiverPool | None = None
    try:
        pool = ReceiverPool(options, spool)
        _receive(pool, arguments.idle_timeout)
    except KeyboardInterrupt as signal:
        return interruption(signal)
    finally:
        if pool is not None:
            pool.stop()
            report(f"{pool.writer.next} messages in {spool.files.url} so far")
    return Exit.OK


def check_pyarrow(what: str) -> None:
    """Raise `Failure` if pyarrow is missing, which `what` needs."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Failure(f"{what} needs pyarrow: pip install 'stompy-client[spool]'", Exit.USAGE)


def _print_status(folder: str) -> Exit:
    """Print what a spool holds and how fast it gets more; nothing of it is changed."""
    from stompy.spark.spool.claims import last_heartbeat, owner_of
    from stompy.spark.spool.files import Files, read_counts
    from stompy.spark.spool.spool import get_spool
    from stompy.spark.spool.view import SpoolView

    spool = get_spool(Files(folder))
    view = SpoolView(spool, fail_on_loss=False)
    before, since = view.next, time.monotonic()
    time.sleep(_REPORT_INTERVAL)
    view.refresh()
    index = view.index
    rate = (view.next - before) / (time.monotonic() - since)
    waiting = [segment for segment in index.segments if segment.end > max(view.planned, index.low)]
    oldest = None
    if waiting:
        oldest = waiting[0].modified
        with contextlib.suppress(SpoolDamagedError):  # also where it was removed meanwhile
            oldest = spool.read(waiting[0]).column("received_at")[0].as_py().timestamp()
    beat = last_heartbeat(spool.files)
    say(f"destination  {spool.destination}")
    say(f"messages     {index.low} to {view.next - 1}, {rate:,.0f} more a second")
    say(f"backlog      {view.next - min(view.next, max(view.planned, index.low))} that no query has planned yet")
    say(f"oldest       {_age(oldest)}")
    say(f"size         {index.size} bytes in {len(index.segments)} files")
    say(f"filled by    {owner_of(spool.files) or 'nobody yet'}, last heartbeat {_age(beat and beat[1])}")
    for number, counts in enumerate(read_counts(spool.files)):
        say(
            f"receiver {number}   {counts.messages} messages, {counts.dropped} duplicates dropped, "
            f"{counts.flagged} possible duplicates kept, last {_age(counts.last)}"
        )
    return Exit.OK


def _age(moment: float | None) -> str:
    return "-" if moment is None else f"{max(0.0, time.time() - moment):,.0f} s ago"


def _receive(pool: ReceiverPool, idle_timeout: float | None) -> None:
    """Look after the receivers, and report progress on a terminal; raises as `ReceiverPool.check`."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    before, since = pool.writer.next, time.monotonic()

    def left() -> float:
        nonlocal before, since
        elapsed = time.monotonic() - since
        if shown and elapsed >= _REPORT_INTERVAL:
            now = pool.writer.next
            report(f"{now} messages, {(now - before) / elapsed:,.0f}/s")
            before, since, elapsed = now, time.monotonic(), 0.0
        quiet = math.inf if idle_timeout is None else idle_timeout - pool.quiet_for()
        return min(quiet, _REPORT_INTERVAL - elapsed) if shown else quiet

    pool.watch(left)


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the command line and the environment as Spark would give them."""
    given = {"destination": arguments.destination, "spoolDir": arguments.spool_dir}
    for option in table_of(SpoolOptions):
        value = getattr(arguments, option.field, None)
        if value is not None:
            given[option.name] = value
    given.setdefault("url", os.environ.get("STOMPY_URL") or DEFAULT_URL)
    if "passcodeFile" not in given and "passcodeEnv" not in given and _PASSCODE in os.environ:
        given["passcodeEnv"] = _PASSCODE
    return given


def _flag(option: Option) -> str:
    return "--" + re.sub(r"(?<!^)(?=[A-Z])", "-", option.name).lower()


def _help(option: Option) -> str:
    default = {"url": "$STOMPY_URL, else " + DEFAULT_URL, "passcodeEnv": _PASSCODE}.get(option.name, option.default)
    text = option.description.replace("`", "'").replace("%", "%%")
    return text if default in (None, "{}") else f"{text} (default: {default})"
