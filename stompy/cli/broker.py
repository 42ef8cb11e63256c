"""`stompy broker`: the embedded broker as a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from stompy.broker.broker import Broker, Like
from stompy.broker.settings import BrokerLimits
from stompy.broker.users import User, hash_passcode
from stompy.cli.console import files, report, say, why
from stompy.cli.exits import Exit, Failure, handling
from stompy.cli.options import (
    CommandParser,
    add_broker_tls_options,
    add_passcode_options,
    broker_tls_from,
    count,
    mode,
    passcode_from,
    port,
)
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency
from stompy.locks import SafeEvent
from stompy.transport.address import DEFAULT_PORT
from stompy.world import os, signal

_PASSCODE = "STOMPY_BROKER_PASSCODE"


def add_broker(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Run the embedded broker until SIGINT or SIGTERM. It is for development: everything is in memory, "
        "and lost when it stops. Its address is the first line of standard output."
    )
    group = parser.add_argument_group("broker")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    group.add_argument("--port", type=port, default=DEFAULT_PORT, help=f"0 takes a free one (default: {DEFAULT_PORT})")
    group.add_argument("--unix", metavar="PATH", help="listen on a Unix socket instead")
    group.add_argument(
        "--unix-mode", metavar="MODE", type=mode, default=0o600, help="permissions of the socket (default: 600)"
    )
    group.add_argument(
        "--ws", action="store_true", help="take STOMP over WebSocket too, on the same port; its address is printed next"
    )
    group.add_argument("--ws-port", metavar="PORT", type=port, help="a port of its own for that; 0 takes a free one")
    group.add_argument(
        "--origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="whose web pages may connect by WebSocket, such as http://localhost:3000, or '*' for all; may be repeated "
        "(default: none)",
    )
    group.add_argument(
        "--serve",
        metavar="FOLDER",
        help="serve the files of FOLDER to browsers where they connect by WebSocket, so that its pages may connect",
    )
    group.add_argument(
        "--ready-file",
        metavar="FILE",
        type=Path,
        help="write the address to FILE as soon as clients can connect, and remove FILE at the end",
    )
    group.add_argument("--user", metavar="LOGIN", help="accept only this login, with the passcode below")
    add_passcode_options(group, _PASSCODE)
    add_broker_tls_options(parser.add_argument_group("TLS"))
    group.add_argument(
        "--users-file",
        metavar="FILE",
        type=Path,
        help='accept the users in FILE: {"LOGIN": {"passcode_hash": ..., "read": [...], "write": [...], "admin": ...}}'
        " - each destination is a name, or a prefix followed by '*'; 'stompy hash-passcode' makes the hash",
    )
    limits = parser.add_argument_group("limits")
    meanings = _meanings_of_limits()
    for each in fields(BrokerLimits):
        if each.name != "leniency":
            limits.add_argument(
                f"--{each.name.replace('_', '-')}",
                metavar="N",
                type=float if "float" in str(each.type) else count,
                help=meanings.get(each.name),
            )
    group.add_argument(
        "--leniency",
        metavar="NAMES",
        type=leniency,
        help=f"deviations of clients to tolerate, separated by commas: {', '.join(map(_written, Leniency))}; or none "
        "(default: nul-between-frames)",
    )
    group.add_argument(
        "--console",
        action="store_true",
        help="serve a web page that shows and manages the broker, on this machine alone; its address is reported",
    )
    group.add_argument(
        "--console-port", metavar="N", type=port, default=0, help="the port of that (default: a free one)"
    )
    group.add_argument("--like", choices=get_args(Like), help="emulate this broker (default: none)")
    # A warning says that other machines can reach it.
    parser.set_defaults(run=run_broker, quiet=logging.WARNING)


def run_broker(arguments: argparse.Namespace) -> Exit:
    """Serve until a signal comes."""
    broker = Broker(
        arguments.host,
        arguments.port,
        tls=broker_tls_from(arguments),
        unix=arguments.unix,
        unix_mode=arguments.unix_mode,
        ws=arguments.ws if arguments.ws_port is None else arguments.ws_port,
        origins=arguments.origin,
        serve=arguments.serve,
        users=_users(arguments),
        like=arguments.like,
        console=arguments.console and arguments.console_port,
        limits=_limits(arguments),
    )
    came = SafeEvent()
    stopping = handling(lambda *_: came.set(), signal.SIGINT, signal.SIGTERM)
    with stopping, _ready_file(arguments.ready_file) as report_ready:
        try:
            broker.start()
        except ConfigurationError as error:
            raise Failure(str(error), Exit.CONNECTION) from error
        with broker:
            report_ready(f"{broker.url}\n")
            say(broker.url)
            if arguments.ws or arguments.ws_port is not None:
                say(broker.ws_url)
            if arguments.serve:
                report(f"pages: {broker.ws_url.replace('ws', 'http', 1)}")
            if arguments.console:
                report(f"console: {broker.console_url}")
            report("for development: everything is in memory and lost at the end; Ctrl-C stops it")
            came.wait()
    report("stopped")
    return Exit.OK


@contextlib.contextmanager
def _ready_file(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes the file, atomically; the file does not exist before or after the block.

    Raises:
        Failure: it cannot be written or removed.
    """
    if path is None:
        yield lambda text: None
        return
    purpose = f"write the ready file {str(path)!r}"

    def write(text: str) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}")
        with files(purpose):
            part.write_text(text, encoding="utf-8")
            part.replace(path)

    with files(purpose):
        path.unlink(missing_ok=True)  # a broker that was killed may have left it
    try:
        yield write
    finally:
        with files(purpose):
            path.unlink(missing_ok=True)


def _limits(arguments: argparse.Namespace) -> BrokerLimits:
    """Return the limits that were given, and the defaults of the others."""
    given = {each.name: getattr(arguments, each.name) for each in fields(BrokerLimits)}
    return BrokerLimits(**{name: value for name, value in given.items() if value is not None})


def _meanings_of_limits() -> dict[str, str]:
    """Return the meaning of each limit, from the documentation of `BrokerLimits`; empty under `python -OO`."""
    attributes = (BrokerLimits.__doc__ or "").partition("Attributes:")[2].partition("\n\n")[0]
    found = re.findall(r"^        (\w+): (.*(?:\n {12}.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()).rstrip(".").replace("`", "'") for name, text in found}


def _written(leniency: Leniency) -> str:
    return str(leniency.name).lower().replace("_", "-")


def leniency(text: str) -> Leniency:
    """Parse names of leniencies."""
    known = {"none": Leniency.NONE, **{_written(one): one for one in Leniency}}
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown leniency {unknown[0]!r}, only {', '.join(known)}")
    return functools.reduce(operator.or_, (known[name] for name in names))


def _users(arguments: argparse.Namespace) -> dict[str, User | str] | None:
    if arguments.users_file is not None:
        if arguments.user is not None:
            raise Failure("--user and --users-file cannot be combined", Exit.USAGE)
        return users_of(arguments.users_file)
    passcode = passcode_from(arguments, _PASSCODE)
    if arguments.user is None:
        if arguments.ask_passcode or arguments.passcode_file is not None:
            raise Failure("a passcode needs --user too", Exit.USAGE)
        return None
    if passcode is None:
        raise Failure(f"--user needs a passcode: ${_PASSCODE}, --passcode-file or --ask-passcode", Exit.USAGE)
    return {arguments.user: passcode}


_TO_HASH = "STOMPY_PASSCODE"
_FIELDS = frozenset(("passcode_hash", "read", "write", "admin"))


def add_hash_passcode(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = "Print the salted hash (scrypt) of a passcode, for the file of users of 'stompy broker'."
    add_passcode_options(parser.add_argument_group("passcode"), _TO_HASH)
    parser.set_defaults(run=run_hash_passcode)


def run_hash_passcode(arguments: argparse.Namespace) -> Exit:
    """Print the hash."""
    passcode = passcode_from(arguments, _TO_HASH)
    if not passcode:
        raise Failure(f"a passcode is required: ${_TO_HASH}, --passcode-file or --ask-passcode", Exit.USAGE)
    say(hash_passcode(passcode))
    return Exit.OK


def users_of(path: Path) -> dict[str, User | str]:
    """Return the users in a file: one JSON object, by login an object with `passcode_hash` and rights.

    Raises:
        Failure: it cannot be read or is not such a file.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = "it is not JSON" if isinstance(error, (ValueError, RecursionError)) else why(error)
        raise Failure(f"cannot read the users in {str(path)!r}: {reason}", Exit.DATA) from None
    if not isinstance(content, dict) or not content:
        raise Failure(f"{str(path)!r} must contain one JSON object that maps logins to users", Exit.DATA)
    return {login: _user(path, login, entry) for login, entry in content.items()}


def _user(path: Path, login: str, entry: Any) -> User:
    what = f"user {login!r} in {str(path)!r}"
    if not isinstance(entry, dict) or not _FIELDS.issuperset(entry) or not isinstance(entry.get("passcode_hash"), str):
        names = ", ".join(sorted(_FIELDS - {"passcode_hash"}))
        raise Failure(f"{what} must be an object with passcode_hash, a text, and optionally {names}", Exit.DATA)
    try:
        return User(**entry)
    except ConfigurationError as error:
        raise Failure(f"{what}: {error}", Exit.DATA) from None
