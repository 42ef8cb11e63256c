"""The `stompy` command: commands, common errors, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stompy.cli.console import forget_stdout, logging_to_stderr, report_error
from stompy.cli.exits import Exit, Failure, Terminated, code_of, interruption
from stompy.errors import StompError
from stompy.threads import Repeats
from stompy.world import signal, threading

if TYPE_CHECKING:
    from stompy.cli.options import CommandParser

_COMMANDS = {
    "demo": ("stompy.cli.demo:add_demo", "the demo, on an embedded broker"),
    "broker": ("stompy.cli.broker:add_broker", "run the embedded broker"),
    "hash-passcode": ("stompy.cli.broker:add_hash_passcode", "hash a passcode for the embedded broker"),
    "send": ("stompy.cli.send:add_send", "send messages"),
    "subscribe": ("stompy.cli.subscribe:add_subscribe", "print messages as they arrive"),
    "ping": ("stompy.cli.ping:add_ping", "connect, and show the broker and the session"),
    "top": ("stompy.cli.top:add_top", "show what a broker with a console does"),
    "worker": ("stompy.cli.worker:add_worker", "run the tasks of a stompy.Worker"),
    "spool": ("stompy.cli.spool:add_spool", "fill a spool for Spark, also on a machine without Spark"),
    "spark": (
        "stompy.cli.spark:add_spark",
        "archive a destination to Parquet files, or replay them (needs stompy-client[spark])",
    ),
    "completion": ("stompy.cli.completion:add_completion", "print a script that completes the command line in a shell"),
}
"""The function that adds each command to the parser, and what the command does; imported when it is needed."""

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
        arguments = _parsed(sys.argv[1:] if argv is None else list(argv))
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


def _parsed(arguments: list[str]) -> argparse.Namespace:
    if arguments == ["--version"]:
        print(f"stompy {version()}")  # without a parser, which takes longer to make than the rest
        sys.exit(Exit.OK)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    parsed: argparse.Namespace = build_parser(arguments[0] if arguments else "").parse_args(arguments)
    return parsed


def build_parser(command: str | None = None) -> CommandParser:
    """Return the parser of the command line.

    Args:
        command: the first argument. Only this command gets its options, as the others would have to be imported;
            `None` stands for all commands.
    """
    # Imported late: `stompy --version` needs none of them.
    from stompy.cli.options import CommandParser
    from stompy.printable import did_you_mean

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
    if command and not command.startswith("-") and command not in _COMMANDS:
        parser.error(f"there is no command {command!r}{did_you_mean(command, _COMMANDS)}")
    for name, (place, summary) in _COMMANDS.items():
        if command in (name, None):
            module, _, function = place.partition(":")
            getattr(import_module(module), function)(commands)
        else:
            commands.add_parser(name, help=summary)
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
    """Let SIGTERM unwind the command as SIGINT does, so that it disconnects from the broker; one sent twice is one."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can take signals
        return

    repeats = Repeats()

    def interrupt(number: int, frame: object) -> None:
        if not repeats(number):
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as of a background job of a shell script
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
