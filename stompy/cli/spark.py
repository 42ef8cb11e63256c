"""`stompy spark`: the two ready pipelines. The archive has a session of Spark of its own, the replay needs none."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from stompy.cli.exits import Exit
from stompy.cli.options import add_headers, add_verbose, count, headers_of
from stompy.cli.spool import check_pyarrow
from stompy.world import os


def add_spark(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    parser = commands.add_parser(
        "spark",
        description="Archive messages to Parquet files with Spark, and send them to a broker again without it.",
    )
    pipelines = parser.add_subparsers(title="pipelines", metavar="PIPELINE", required=True)
    _add_archive(pipelines)
    _add_replay(pipelines)


def _add_archive(pipelines: Any) -> None:
    parser = pipelines.add_parser(
        "archive",
        help="a destination into Parquet files",
        description="Receive from DESTINATION and write Parquet files below PATH/messages, by date; messages that "
        "cannot be read go below PATH/bad, with the reason.",
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


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="records the progress; keep it between runs")
    parser.add_argument("--url", metavar="URL", help="the broker (default: $STOMPY_URL, else stomp://localhost:61613)")
    parser.add_argument("--login", metavar="LOGIN")
    parser.add_argument("--passcode-env", metavar="NAME", help="the environment variable that holds the passcode")
    parser.add_argument("--passcode-file", metavar="FILE", help="the file whose first line is the passcode")
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
    """Archive until stopped, or what is there now."""
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
        _show_progress(running)
    return Exit.OK


def run_replay(arguments: argparse.Namespace) -> Exit:
    """Send an archive."""
    check_pyarrow("a replay")
    from stompy.spark.monitoring import ProgressLine
    from stompy.spark.replaying import Selection, replay

    given = {"destination": arguments.destination, "rateLimit": arguments.rate, "jobId": arguments.replay_id}
    line = ProgressLine(sys.stderr, "sent")
    sent = replay(
        path=arguments.path,
        sink={**_options(arguments), **{name: str(value) for name, value in given.items() if value is not None}},
        checkpoint=arguments.checkpoint,
        selection=Selection(arguments.since, arguments.until, headers_of(arguments.header)),
        bad=arguments.bad,
        on_sent=lambda count: line.show({"sent": count}),
    )
    line.end({"sent": sent})
    return Exit.OK


@contextmanager
def _session(arguments: argparse.Namespace) -> Iterator[Any]:
    from stompy.spark.monitoring import pipeline_errors
    from stompy.spark.session import session

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


def _show_progress(running: Any) -> None:
    from stompy.spark.monitoring import ProgressLine, show_progress

    try:
        show_progress(running.query, running.rows, ProgressLine(sys.stderr, "archived"))
    finally:
        running.query.stop()


def _options(arguments: argparse.Namespace) -> Mapping[str, str]:
    given = {
        "url": arguments.url or os.environ.get("STOMPY_URL") or "stomp://localhost:61613",
        "login": arguments.login,
        "passcodeEnv": arguments.passcode_env,
        "passcodeFile": arguments.passcode_file,
        **dict(arguments.option),
    }
    return {name: value for name, value in given.items() if value is not None}


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
