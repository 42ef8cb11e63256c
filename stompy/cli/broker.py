"""`stompy broker`: the embedded broker as a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from stompy.broker.broker import Broker
from stompy.broker.profiles.known import Like
from stompy.broker.users import User
from stompy.cli.console import report, say
from stompy.cli.exits import Exit, Failure
from stompy.cli.files import why
from stompy.cli.options import add_passcode_options, add_verbose, count, mode, passcode_from, port, seconds
from stompy.cli.tls import add_broker_tls_options, broker_tls_from
from stompy.cli.users import users_of
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency, Limits
from stompy.locks import Event
from stompy.protocol.heartbeat import DEFAULT_TOLERANCE
from stompy.transport.address import DEFAULT_PORT
from stompy.world import os, signal

_PASSCODE = "STOMPY_BROKER_PASSCODE"

_OF_FRAMES = ("max_headers", "max_header_line", "max_header_block", "max_body", "max_first_body")
_LIMITS = {
    "max_headers": "header lines in a frame",
    "max_header_line": "bytes of one header line",
    "max_header_block": "bytes of all header lines of a frame",
    "max_body": "bytes of a body",
    "max_first_body": "bytes of the body of a client's first frame",
    "max_eol_rate": "bytes of line ends a second between frames",
    "max_sessions": "clients at one time",
    "max_handshakes": "clients that have not completed CONNECT yet",
    "max_handshakes_per_address": "the same from one address (default: half of max-handshakes)",
    "max_session_subscriptions": "subscriptions of one client",
    "max_session_transactions": "open transactions of one client",
    "max_queues": "queues",
    "max_queue_messages": "messages in one queue",
    "max_queue_bytes": "bytes in one queue",
    "max_store_bytes": "bytes of all messages",
    "max_state_bytes": "bytes of other state of clients: unfinished frames, ids, names",
    "max_session_state_bytes": "the same for one client",
}


def add_broker(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "broker",
        description="Run the embedded broker until SIGINT or SIGTERM. It is for development: everything is in memory, "
        "and lost when it stops. Its address is the first line of standard output.",
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
    for name, meaning in _LIMITS.items():
        limits.add_argument(f"--{name.replace('_', '-')}", metavar="N", type=count, help=meaning)
    limits.add_argument("--connect-timeout", metavar="S", type=seconds, help="seconds within which CONNECT must arrive")
    limits.add_argument(
        "--heartbeat-tolerance",
        metavar="N",
        type=float,
        help=f"intervals without a byte after which a client is disconnected (default: {DEFAULT_TOLERANCE:g})",
    )
    limits.add_argument("--login-delay", metavar="S", type=seconds, help="seconds before a wrong login is answered")
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
    add_verbose(group, quiet=logging.WARNING)  # one is that other machines can reach it
    parser.set_defaults(run=run_broker)


def run_broker(arguments: argparse.Namespace) -> Exit:
    """Serve until a signal comes."""
    broker = Broker(
        arguments.host,
        arguments.port,
        tls=broker_tls_from(arguments),
        unix=arguments.unix,
        unix_mode=arguments.unix_mode,
        ws=arguments.ws,
        ws_port=arguments.ws_port,
        origins=arguments.origin,
        users=_users(arguments),
        like=arguments.like,
        console=arguments.console,
        console_port=arguments.console_port,
        **_limits(arguments),
    )
    with _signals() as wait_for_signal, _ready_file(arguments.ready_file) as report_ready:
        try:
            broker.start()
        except ConfigurationError as error:
            raise Failure(str(error), Exit.CONNECTION) from error
        with broker:
            report_ready(f"{broker.url}\n")
            say(broker.url)
            if arguments.ws or arguments.ws_port is not None:
                say(broker.ws_url)
            if arguments.console:
                report(f"console: {broker.console_url}")
            report("for development: everything is in memory and lost at the end; Ctrl-C stops it")
            wait_for_signal()
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

    def write(text: str) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}")
        with _writing(path):
            part.write_text(text, encoding="utf-8")
            part.replace(path)

    with _writing(path):
        path.unlink(missing_ok=True)  # a broker that was killed may have left it
    try:
        yield write
    finally:
        with _writing(path):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"cannot write the ready file {str(path)!r}: {why(error)}", Exit.DATA) from error


def _limits(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {name: value for name in _LIMITS if (value := getattr(arguments, name)) is not None}
    of_frames = {name: given.pop(name) for name in _OF_FRAMES if name in given}
    times = {name: getattr(arguments, name) for name in ("connect_timeout", "login_delay", "heartbeat_tolerance")}
    given |= {name: value for name, value in times.items() if value is not None}
    if arguments.leniency is not None:
        given["leniency"] = arguments.leniency
    return {**given, "limits": Limits(**of_frames) if of_frames else None}


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


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], None]]:
    """Handle SIGINT and SIGTERM; yield a function that waits for the first of them. Main thread only."""
    came = Event()
    before = {number: signal.signal(number, lambda *_: came.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: (came.wait(), None)[1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
