"""`stompy broker`: the embedded broker as a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator

from stompy.broker.broker import Broker
from stompy.cli.console import say, tell
from stompy.cli.exits import Exit, Failure
from stompy.cli.options import add_passcode_options, add_verbose, mode, passcode_from, port
from stompy.cli.tls import add_broker_tls_options, broker_tls_from
from stompy.errors import ConfigurationError
from stompy.transport.address import DEFAULT_PORT

_PASSCODE = "STOMPY_BROKER_PASSCODE"


def add_broker(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "broker",
        help="run the embedded broker",
        description="Run the embedded broker until SIGINT or SIGTERM. It is for development: everything is in memory, "
        "and gone when it stops. Its address is the first line of standard output.",
    )
    group = parser.add_argument_group("broker")
    group.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    group.add_argument("--port", type=port, default=DEFAULT_PORT, help=f"0 takes a free one (default: {DEFAULT_PORT})")
    group.add_argument("--unix", metavar="PATH", help="listen on a Unix socket instead")
    group.add_argument(
        "--unix-mode", metavar="MODE", type=mode, default=0o600, help="permissions of the socket (default: 600)"
    )
    group.add_argument("--user", metavar="LOGIN", help="let only this login in, with the passcode below")
    add_passcode_options(group, _PASSCODE)
    add_broker_tls_options(parser.add_argument_group("TLS"))
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
        users=_users(arguments),
    )
    with _signals() as wait_for_signal:
        try:
            broker.start()
        except ConfigurationError as error:
            raise Failure(str(error), Exit.CONNECTION) from error
        with broker:
            say(broker.url)
            tell("for development: everything is in memory, and gone at the end; Ctrl-C ends it")
            wait_for_signal()
    tell("stopped")
    return Exit.OK


def _users(arguments: argparse.Namespace) -> dict[str, str] | None:
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
    """Take SIGINT and SIGTERM; yield what waits for the first of them. In the main thread."""
    # A pipe, since a handler may interrupt anything, also whoever holds the lock of an Event.
    reading, writing = os.pipe()

    def note(number: int, frame: object) -> None:
        os.write(writing, b"!")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: (os.read(reading, 1), None)[1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
