"""The `stompy` command: commands, common errors, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from stompy.cli.broker import add_broker
from stompy.cli.console import forget_stdout, logging_to_stderr, report_error
from stompy.cli.demo.command import add_demo
from stompy.cli.exits import Exit, Failure, Terminated, code_of, interruption
from stompy.cli.migrate.command import add_migrate
from stompy.cli.options import CommandParser, connection_options
from stompy.cli.ping import add_ping
from stompy.cli.send import add_send
from stompy.cli.spark import add_spark
from stompy.cli.spool import add_spool
from stompy.cli.subscribe import add_subscribe
from stompy.cli.top import add_top
from stompy.cli.users import add_hash_passcode
from stompy.cli.worker import add_worker
from stompy.errors import StompError

_CODES = """\
exit codes:
  0  done                        4  the broker rejected (ERROR, login, version)
  1  a check failed              5  input or output failed, or protocol error
  2  the command line is wrong   6  nothing arrived in time
  3  no connection, or it was lost  128 + N  ended by signal N"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; never raises for what a user can cause.

    Args:
        argv: the arguments; `None` takes the process's.
    """
    try:
        arguments = build_parser().parse_args(argv)
        with _termination(), logging_to_stderr(verbosity=arguments.verbose, quiet=arguments.quiet):
            code: Exit = arguments.run(arguments)
        return int(code)
    except SystemExit as stop:  # argparse: --help, --version, a wrong command line
        return stop.code if isinstance(stop.code, int) else int(Exit.OK)
    except Failure as error:
        return _fail(str(error), error.code)
    except StompError as error:
        return _fail(str(error), code_of(error))
    except BrokenPipeError:
        forget_stdout()
        return int(Exit.BROKEN_PIPE)
    except KeyboardInterrupt as error:
        return _fail("interrupted", interruption(error))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = CommandParser(
        prog="stompy",
        description="STOMP 1.0, 1.1 and 1.2 on the command line. 'stompy demo' shows what it can do.",
        epilog=_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"stompy {version()}")
    commands: argparse._SubParsersAction[Any] = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    common = connection_options()
    add_demo(commands)
    add_broker(commands)
    add_hash_passcode(commands)
    add_send(commands, common)
    add_subscribe(commands, common)
    add_ping(commands, common)
    add_top(commands)
    add_worker(commands)
    add_spool(commands)
    add_spark(commands)
    add_migrate(commands)
    return parser


def version() -> str:
    """Return the version of stompy."""
    # The package is loaded before any module in it.
    return str(sys.modules["stompy"].__version__)


def _fail(message: str, code: Exit) -> int:
    report_error(message)
    return int(code)


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Let SIGTERM unwind the command as SIGINT does, so that it disconnects from the broker."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can take signals
        return

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
