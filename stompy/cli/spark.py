"""`stompy spool fill` and `stompy spark`: the commands of the data pipeline.

A spool is filled on a machine of its own or beside Spark. The archive has a session of Spark of its own, the replay
needs none.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stompy.cli.console import INTERVAL, Progress, report, say
from stompy.cli.exits import Exit, Failure, interruption
from stompy.cli.options import CommandParser, Options, add_headers, add_verbose, count, headers_of, seconds
from stompy.connection.connecting import DEFAULT_URL
from stompy.errors import SpoolDamagedError
from stompy.spark.option_tables import SparkBrokerOptions, SpoolOptions, spool_options
from stompy.spark.options import Option, own_options, table_of
from stompy.world import os, time

if TYPE_CHECKING:
    from stompy.spark.receivers import ReceiverPool

_PASSCODE = "STOMPY_PASSCODE"
_POLL_INTERVAL = 0.5
"""Seconds between two looks at an archive."""
_POSITIONAL = frozenset({"destination", "spoolDir"})


def add_spool(parser: CommandParser) -> None:
    """Add the commands to the parser."""
    parser.description = "Fill a spool, which Spark reads with the options spoolDir and receivers=0, or show one."
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_fill(commands)
    status = commands.add_parser(
        "status",
        help="show what a spool contains",
        description="Show what a spool contains, what fills it and how fast, and how many of its messages no query has "
        "planned yet. Changes nothing.",
    )
    status.add_argument("spool_dir", metavar="FOLDER", help="of the spool")
    add_verbose(status)
    status.set_defaults(run=print_status)


def _add_fill(commands: Any) -> None:
    """Add the options of Spark's source, from the same table."""
    parser = commands.add_parser(
        "fill",
        help="receive messages into a spool",
        description="Receive messages into a spool: write to disk, then acknowledge.",
    )
    parser.add_argument("destination", metavar="DESTINATION", help="such as /queue/orders, several with commas between")
    parser.add_argument(
        "spool_dir",
        metavar="FOLDER",
        help="a directory that Spark's machines reach as well; after a comma, "
        "the other spools of the source, or a pattern for them",
    )
    broker = parser.add_argument_group("connection")
    receivers = parser.add_argument_group("receivers")
    _add_options(broker, SparkBrokerOptions)
    _add_options(receivers, SpoolOptions)
    receivers.add_argument(
        "--idle-timeout", type=seconds, metavar="S", help="end with code 0 when nothing arrived for S seconds"
    )
    add_verbose(parser)
    parser.set_defaults(run=run_fill)


def run_fill(arguments: argparse.Namespace) -> Exit:
    """Receive until a signal ends it, nothing came for long enough, or no messages can come any more."""
    check_pyarrow("a spool")
    from stompy.spark.receivers import ReceiverPool
    from stompy.spark.spool.files import Files
    from stompy.spark.spool.spool import make_spool

    given = _given(arguments, SpoolOptions)
    if not {"passcodeFile", "passcodeEnv"} & given.keys() and _PASSCODE in os.environ:
        given["passcodeEnv"] = _PASSCODE
    options = spool_options(given)
    if not options.receivers:
        raise Failure("--receivers must be 1 or more here", Exit.USAGE)
    spool = make_spool(Files(options.folders()[0]), options.origin, shared=options.has_peers)
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
            report(f"{pool.writer.total} messages in {spool.files.url} so far")
    return Exit.OK


def check_pyarrow(purpose: str) -> None:
    """Raise `Failure` if pyarrow is missing, which the command needs for `purpose`."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Failure(f"{purpose} needs pyarrow: pip install 'stompy-client[spool]'", Exit.USAGE)


def print_status(arguments: argparse.Namespace) -> Exit:
    """Print the contents of a spool and its rate; the spool is not changed."""
    check_pyarrow("a spool")
    from stompy.spark.spool.claims import last_heartbeat, owner_of
    from stompy.spark.spool.files import Files, read_counts
    from stompy.spark.spool.spool import get_spool
    from stompy.spark.spool.view import SpoolView

    spool = get_spool(Files(arguments.spool_dir))
    view = SpoolView(spool, fail_on_loss=False)
    before, since = view.next, time.monotonic()
    time.sleep(INTERVAL)
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
    """Look after the receivers, and show what they have received; raises as `ReceiverPool.check`."""
    progress, before = Progress("received"), pool.writer.total

    def left() -> float:
        progress.show(pool.writer.total - before)
        return math.inf if idle_timeout is None else idle_timeout - pool.quiet_for()

    try:
        pool.watch(left)
    finally:
        progress.summary(pool.writer.total - before)


def _add_options(group: Options, kind: type[SparkBrokerOptions]) -> None:
    """Add the options of a table that are not arguments."""
    for option in own_options(kind):
        if option.name not in _POSITIONAL:
            group.add_argument(_flag(option), metavar="VALUE", help=_help(option))


def _given(arguments: argparse.Namespace, kind: type[SparkBrokerOptions]) -> dict[str, str]:
    """Return the options of a table that the command line and the environment give, as Spark would give them."""
    values = {option.name: getattr(arguments, option.field) for option in table_of(kind)}
    given = {name: value for name, value in values.items() if value is not None}
    return {"url": os.environ.get("STOMPY_URL") or DEFAULT_URL, **given}


def _flag(option: Option) -> str:
    return "--" + option.field.replace("_", "-")


def _help(option: Option) -> str:
    default = {"url": "$STOMPY_URL, else " + DEFAULT_URL, "passcodeEnv": _PASSCODE}.get(option.name, option.default)
    text = option.description.replace("`", "'").replace("%", "%%")
    return text if default in (None, "{}") else f"{text} (default: {default})"


# stompy spark


def add_spark(parser: CommandParser) -> None:
    """Add the commands to the parser."""
    parser.description = "Archive messages to Parquet files with Spark, and send them to a broker again without it."
    pipelines = parser.add_subparsers(title="pipelines", required=True)
    _add_archive(pipelines)
    _add_replay(pipelines)


def _add_archive(pipelines: Any) -> None:
    parser = pipelines.add_parser(
        "archive",
        help="a destination into Parquet files",
        description="Receive from DESTINATION and write Parquet files below PATH/kind=messages, by date; messages "
        "that cannot be read go below PATH/kind=bad, with the reason.",
    )
    parser.add_argument("destination", metavar="DESTINATION")
    parser.add_argument("path", metavar="PATH")
    parser.add_argument(
        "--spool",
        required=True,
        metavar="DIR",
        help="the folder in which messages wait for Spark; keep it between runs",
    )
    _add_common(parser)
    parser.add_argument(
        "--body",
        choices=("binary", "text", "json"),
        default="binary",
        help="how bodies are parsed; others are bad (default: binary, which accepts every body)",
    )
    parser.add_argument("--schema", metavar="DDL", help="of JSON bodies, such as 'id BIGINT, at TIMESTAMP'")
    parser.add_argument("--interval", default="10 seconds", help="between micro-batches (default: '10 seconds')")
    parser.add_argument("--once", action="store_true", help="end when the messages available now are archived")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="MASTER", help="where Spark runs (default: local[*])")
    where.add_argument("--remote", metavar="URL", help="a Spark Connect server, such as sc://host")
    parser.set_defaults(run=run_archive)


def _add_replay(pipelines: Any) -> None:
    parser = pipelines.add_parser(
        "replay",
        help="an archive back to a destination",
        description="Send the messages of an archive, in order. A replay continues from its checkpoint. It needs "
        "pyarrow (stompy-client[spool]), but no Spark.",
    )
    parser.add_argument("path", metavar="PATH", help="of the archive")
    parser.add_argument(
        "destination", metavar="DESTINATION", nargs="?", help="(default: the original destination of each message)"
    )
    _add_common(parser)
    parser.add_argument(
        "--since", type=_moment, metavar="TIME", help="from this time on, such as 2026-01-31T08:00+00:00"
    )
    parser.add_argument("--until", type=_moment, metavar="TIME", help="before this time")
    add_headers(parser, "the messages to send")
    parser.add_argument(
        "--bad", action="store_true", help="send the messages that could not be parsed instead of the others"
    )
    parser.add_argument("--rate", type=count, metavar="N", help="messages per second, at most")
    parser.add_argument("--replay-id", metavar="ID", help="part of the deduplication ids")
    parser.set_defaults(run=run_replay)


def _add_common(parser: CommandParser) -> None:
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="records the progress; keep it between runs")
    _add_options(parser, SparkBrokerOptions)
    parser.add_argument(
        "--option",
        action="append",
        type=_option,
        default=[],
        metavar="NAME=VALUE",
        help="a further option of the source or sink; may be repeated",
    )
    add_verbose(parser)


def run_archive(arguments: argparse.Namespace) -> Exit:
    """Archive until stopped, or with `--once` the messages that wait now."""
    with _session(arguments) as spark:
        from stompy.spark.archiving import Body, archive

        running = archive(
            spark,
            source={**_options(arguments), "destination": arguments.destination, "spoolDir": arguments.spool},
            path=arguments.path,
            checkpoint=arguments.checkpoint,
            body=Body(arguments.body, arguments.schema),
            interval=arguments.interval,
            available_now=arguments.once,
        )
        _await_end(running, arguments.path)
    return Exit.OK


def run_replay(arguments: argparse.Namespace) -> Exit:
    """Send an archive."""
    check_pyarrow("a replay")
    from stompy.spark.replaying import Selection, replay

    given = {"destination": arguments.destination, "rateLimit": arguments.rate, "jobId": arguments.replay_id}
    progress = Progress("sent")
    sent = replay(
        path=arguments.path,
        sink={**_options(arguments), **{name: str(value) for name, value in given.items() if value is not None}},
        checkpoint=arguments.checkpoint,
        selection=Selection(arguments.since, arguments.until, headers_of(arguments.header)),
        bad=arguments.bad,
        on_sent=progress.show,
    )
    report(f"{sent:,} sent from {arguments.path}{progress.summary(sent)}")
    return Exit.OK


@contextmanager
def _session(arguments: argparse.Namespace) -> Iterator[Any]:
    from stompy.spark.monitoring import pipeline_errors
    from stompy.spark.registering import session

    # Under spark-submit the master is named there.
    elsewhere = arguments.remote is not None or "SPARK_REMOTE" in os.environ or "SPARK_ENV_LOADED" in os.environ
    master = arguments.master or (None if elsewhere else "local[*]")
    spark = session(f"stompy {arguments.path}", master=master, remote=arguments.remote)
    try:
        if arguments.remote is None and "SPARK_REMOTE" not in os.environ:
            spark.sparkContext.setLogLevel("ERROR" if arguments.verbose == 0 else "WARN")
        with pipeline_errors():
            yield spark
    finally:
        spark.stop()


def _await_end(running: Any, path: str) -> None:
    """Show the progress of an archive until it ends, then what it has written."""
    progress = Progress("archived")
    try:
        while not running.query.awaitTermination(_POLL_INTERVAL):
            progress.show(sum(running.rows().values()))
    finally:
        running.query.stop()
    rows = running.rows()
    kinds = " and ".join(f"{count:,} {kind}" for kind, count in rows.items()) or "0 messages"
    report(f"{kinds} archived in {path}{progress.summary(sum(rows.values()))}")


def _options(arguments: argparse.Namespace) -> Mapping[str, str]:
    return {**_given(arguments, SparkBrokerOptions), **dict(arguments.option)}


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError("an option is written NAME=VALUE")
    return name, value


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError("a time is written as 2026-01-31T08:00+00:00, with its time zone")
    return moment
