"""Parsing of the command line: what several commands share."""

from __future__ import annotations

import argparse
import difflib
import getpass
import logging
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from stompy.cli.console import report_error
from stompy.cli.exits import Exit, Failure
from stompy.cli.files import first_line
from stompy.cli.tls import add_tls_options
from stompy.transport.address import masked
from stompy.world import os

_MAY_HOLD_A_PASSCODE = re.compile(r"\S*(?:://|@)\S*")


class CommandParser(argparse.ArgumentParser):
    """An argument parser that shows no passcodes, and reports errors in one line."""

    def __init__(self, **settings: Any) -> None:
        # Without abbreviations: `--passcode x`, which does not exist, must not be read as `--passcode-file x`.
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, naming unknown options by their names only: their values may be secrets."""
        known, extra = super().parse_known_args(args, namespace)
        unknown = [argument.split("=", 1)[0] for argument in extra if not _is_word(argument)]
        if unknown:
            hint = did_you_mean(unknown[0], self._option_string_actions)
            self.error(f"unknown option {', '.join(unknown)}{hint}")
        return known, extra

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; no argument may be left."""
        known, extra = self.parse_known_args(args, namespace)
        late = getattr(known, "late", None)
        if late is not None and getattr(known, late) is None and len(extra) == 1:
            # argparse takes an optional positional as absent when options stand before it.
            setattr(known, late, extra.pop(0))
        if extra:
            self.error(f"{len(extra)} argument{'s'[: len(extra) > 1]} too many")
        return known

    def error(self, message: str) -> NoReturn:
        """Report an error and exit."""
        shown = _MAY_HOLD_A_PASSCODE.sub(lambda found: masked(found.group()), message)
        report_error(f"{shown} (see '{self.prog} --help')")
        sys.exit(Exit.USAGE)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for the end of an error message; empty if nothing is like `word`."""
    found = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _is_word(argument: str) -> bool:
    return argument == "-" or not argument.startswith("-")


def connection_options() -> argparse.ArgumentParser:
    """Return the options of every command that connects."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="stomp://[login@]host[:port][/vhost], stomp+ssl:// for TLS, ws:// or wss:// for WebSocket, or "
        "stomp+unix:///path; several, with commas or by repeating it, are tried in order (default: $STOMPY_URL, else "
        "stomp://localhost:61613)",
    )
    group.add_argument("--login", metavar="LOGIN", help="instead of the one in the URL")
    add_passcode_options(group, "STOMPY_PASSCODE")
    group.add_argument("--client-id", metavar="ID", help="identifies this client in every run, as needed for --durable")
    group.add_argument(
        "--proxy",
        metavar="URL",
        help="connect through http://[login:passcode@]host:port or socks5://..., which resolves the broker's name "
        "(default: $STOMPY_PROXY)",
    )
    group.add_argument("--vhost", metavar="NAME", help="the 'host' header of CONNECT (default: from the URL)")
    group.add_argument(
        "--stomp-version",
        metavar="VERSIONS",
        type=lambda text: tuple(text.split(",")),
        help="the versions to offer, such as 1.2 or 1.0,1.1 (default: 1.0,1.1,1.2)",
    )
    group.add_argument(
        "--heartbeat",
        metavar="SEND,RECEIVE",
        type=heartbeat,
        help="seconds between heartbeats: the client's, and those requested of the broker; 0 for none (default: 10,10)",
    )
    group.add_argument(
        "--wait",
        type=seconds,
        metavar="S",
        help="retry connecting for S seconds, for instance while the broker starts (default: try once)",
    )
    add_verbose(group)
    add_tls_options(parser.add_argument_group("TLS, for stomp+ssl:// and wss://"))
    return parser


def add_passcode_options(group: argparse._ArgumentGroup, variable: str) -> None:
    """Add the ways to give a passcode that other users of the machine cannot see."""
    ways = group.add_mutually_exclusive_group()
    ways.add_argument(
        "--passcode-file",
        metavar="FILE",
        help=f"read the passcode from the first line of FILE (default: ${variable}, where that is set)",
    )
    ways.add_argument("--ask-passcode", action="store_true", help="ask for the passcode on the terminal")


def add_verbose(group: argparse._ActionsContainer, *, quiet: int = logging.ERROR) -> None:
    """Add `--verbose`; `quiet` is the level of the log without it."""
    group.set_defaults(quiet=quiet)
    group.add_argument(
        "--verbose", "-v", action="count", default=0, help="log to standard error; twice: with the frames"
    )


def add_headers(group: argparse._ActionsContainer, command: str) -> None:
    """Add `--header`."""
    group.add_argument(
        "--header",
        action="append",
        type=header,
        default=[],
        metavar="NAME:VALUE",
        help=f"a further header of {command}; may be repeated",
    )


def header(text: str) -> tuple[str, str]:
    """Return the name and value of `NAME:VALUE`; the value may hold colons and begin or end with spaces."""
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise argparse.ArgumentTypeError("a header is written NAME:VALUE")
    return name, value


def headers_of(pairs: Sequence[tuple[str, str]], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return headers as a mapping.

    Args:
        pairs: of names and values.
        own: headers that have an option of their own, and that option; empty if there are none.

    Raises:
        Failure: one of them is there; or one twice, of which only the first would count (STOMP 1.2, Repeated Header
            Entries).
    """
    headers: dict[str, str] = {}
    for name, value in pairs:
        instead = None if own is None else own.get(name)
        if instead is not None:
            hint = f"give it by {instead}" if instead else "stompy sets it"
            raise Failure(f"header {name!r} cannot be given by --header: {hint}", Exit.USAGE)
        if name in headers:
            raise Failure(f"header {name!r} is given twice", Exit.USAGE)
        headers[name] = value
    return headers


def heartbeat(text: str) -> tuple[float, float]:
    """Return the two intervals of `SEND,RECEIVE`; one number stands for both."""
    parts = text.split(",")
    if len(parts) > 2:
        raise argparse.ArgumentTypeError("heartbeats are written SEND,RECEIVE in seconds, such as 10,10")
    numbers = [_number(part) for part in parts]
    return numbers[0], numbers[-1]


def seconds(text: str) -> float:
    """Return a positive, finite number of seconds."""
    number = _number(text)
    if number <= 0:
        raise argparse.ArgumentTypeError("a number of seconds is more than 0")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def count(text: str) -> int:
    """Return a whole number of 1 or more."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def port(text: str) -> int:
    """Return a number of a port to listen on."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; one is a number from 0 to 65535")
    return int(text)


def mode(text: str) -> int:
    """Return permissions written in octal, such as 660."""
    if not re.fullmatch("0?[0-7]{3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a file mode; write three octal digits, such as 660")
    return int(text, 8)


def passcode_from(arguments: argparse.Namespace, variable: str) -> str | None:
    """Return the passcode that the options or the environment give, or `None`.

    Raises:
        Failure: the file cannot be read, or there is no terminal to ask on.
    """
    if arguments.ask_passcode:
        return _asked()
    if arguments.passcode_file is not None:
        return first_line(Path(arguments.passcode_file), "passcode")
    return os.environ.get(variable)


def _asked() -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure("--ask-passcode needs a terminal", Exit.USAGE)
    try:
        return getpass.getpass("Passcode: ")
    except EOFError:
        raise Failure("no passcode was given", Exit.USAGE) from None
