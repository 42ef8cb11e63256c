"""The `stompy` command: commands, common errors, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from stompy.cli.console import forget_stdout, logging_to_stderr, report_error, say
from stompy.cli.exits import Exit, Failure, Terminated, code_of, handling, interruption
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
    "spool": ("stompy.cli.spark:add_spool", "fill a spool for Spark, also on a machine without Spark, or show one"),
    "spark": (
        "stompy.cli.spark:add_spark",
        "archive a destination to Parquet files, or replay them (needs stompy-client[spark])",
    ),
    "completion": ("stompy.cli.main:add_completion", "print a script that completes the command line in a shell"),
}
"""The function that adds each command to the parser, and what the command does; imported when it is needed."""

_CODES = """\
exit codes:
  0  done                        4  the broker rejected (ERROR, login, version)
  1  a check failed              5  input or output failed, or protocol error
  2  the command line is wrong   6  nothing arrived in time
  3  no connection, or it was lost  128 + N  ended by signal N"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; never raises for a mistake of the user.

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
    return _parsers(command)[0]


def _parsers(command: str | None) -> tuple[CommandParser, dict[str, CommandParser]]:
    """Return the parser of the command line, and the parser of each command."""
    # Imported late: `stompy --version` needs none of them.
    from stompy.cli.options import CommandParser, add_verbose
    from stompy.printable import did_you_mean

    parser = CommandParser(
        prog="stompy",
        description="STOMP 1.0, 1.1 and 1.2 on the command line. 'stompy demo' shows what it can do.",
        epilog=_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"stompy {version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if command and not command.startswith("-") and command not in _COMMANDS:
        parser.error(f"there is no command {command!r}{did_you_mean(command, _COMMANDS)}")
    own: dict[str, CommandParser] = {}
    for name, (place, summary) in _COMMANDS.items():
        own[name] = commands.add_parser(name, help=summary)
        if command in (name, None):
            own[name].set_defaults(quiet=logging.ERROR)
            module, _, function = place.partition(":")
            getattr(import_module(module), function)(own[name])
            if own[name].get_default("run") is not None:  # else its own commands have the option
                add_verbose(own[name])
    return parser, own


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
    with handling(interrupt, *numbers):
        yield


# Completion

_BASH = """\
_stompy() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words="{commands}"
    if [ "$COMP_CWORD" -gt 1 ]; then
        case "${{COMP_WORDS[1]}}" in
{cases}
            *) words="" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _stompy stompy"""

_ZSH = """\
#compdef stompy
autoload -U +X bashcompinit && bashcompinit
"""

_SHELLS = ("bash", "zsh", "fish")


def add_completion(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Print a script that completes commands and options: add 'source <(stompy completion bash)' to "
        "~/.bashrc, the same with zsh to ~/.zshrc after compinit, or for fish save it as "
        "~/.config/fish/completions/stompy.fish."
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell that reads it")
    parser.set_defaults(run=run_completion)


def run_completion(arguments: argparse.Namespace) -> Exit:
    """Print the script."""
    words = {name: _words(parser) for name, parser in _parsers(None)[1].items()}
    say({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](words))
    return Exit.OK


def _words(parser: CommandParser) -> list[str]:
    """Return the choices of the arguments of a command, and its options."""
    arguments = re.sub(r"--[\w-]+\s+\{.*?\}", "", parser.format_usage())
    choices = [choice for found in re.findall(r"\{(.*?)\}", arguments) for choice in found.split(",")]
    return [*choices, *parser.option_names()]


def _bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(f'            {name}) words="{" ".join(given)}" ;;' for name, given in words.items())
    return _BASH.format(commands=" ".join([*words, "help", "--help", "--version"]), cases=cases)


def _zsh(words: dict[str, list[str]]) -> str:
    return _ZSH + _bash(words)


def _fish(words: dict[str, list[str]]) -> str:
    lines = [f"complete -c stompy -n __fish_use_subcommand -f -a '{' '.join([*words, 'help'])}'"]
    for name, given in words.items():
        seen = f"complete -c stompy -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{seen} -l {each[2:]}" if each.startswith("--") else f"{seen} -a {each}" for each in given]
    return "\n".join(lines)
