"""`stompy ping`: the broker's name, the session, and the time of a round trip."""

from __future__ import annotations

import argparse

from stompy.cli.console import say
from stompy.cli.exits import Exit, Failure
from stompy.cli.options import CommandParser, add_connection_options, seconds
from stompy.cli.session import session
from stompy.connection.connection import Connection
from stompy.deadline import Deadline
from stompy.printable import printable
from stompy.world import secrets, time


def add_ping(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = "Connect, show the broker and the negotiated session, and time a round trip."
    add_connection_options(parser)
    parser.add_argument(
        "--destination",
        metavar="NAME",
        help="send a message to NAME with a random ending, a destination of its own, and receive it again",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="S", help="seconds for each round trip (default: 10)"
    )
    parser.set_defaults(run=run_ping)


def run_ping(arguments: argparse.Namespace) -> Exit:
    """Connect and report."""
    started = time.perf_counter()
    with session(arguments) as conn:
        _row("address", conn.address)
        _row("server", conn.server or "(not reported)")
        _row("version", f"STOMP {conn.version}")
        _row("session", conn.session or "(not reported)")
        ours, theirs = conn.heartbeat
        _row("heartbeats", f"client {_interval(ours)}, broker {_interval(theirs)}")
        _row("connected in", _milliseconds(time.perf_counter() - started))
        _row("receipt in", _milliseconds(_receipt(conn, arguments.timeout)))
        if arguments.destination is not None:
            name = f"{arguments.destination}.ping-{secrets.token_hex(4)}"
            _row("message in", f"{_milliseconds(_echo(conn, name, arguments.timeout))}, through {name}")
    return Exit.OK


def _receipt(conn: Connection, timeout: float) -> float:
    """Return the seconds until the broker has confirmed an empty transaction, which changes nothing."""
    started = time.perf_counter()
    with conn.transaction() as transaction:
        transaction.commit(timeout=timeout)
    return time.perf_counter() - started


def _echo(conn: Connection, destination: str, timeout: float) -> float:
    """Return the seconds from a send until the message is back."""
    body = secrets.token_bytes(16)
    deadline = Deadline(timeout)
    subscription = conn.subscribe(destination, ack="auto", timeout=deadline.remaining())
    started = time.perf_counter()
    conn.send(destination, body)
    message = subscription.receive(timeout=deadline.remaining())
    elapsed = time.perf_counter() - started
    if message.body != body:
        raise Failure(f"the message from {destination} is not the one that was sent", Exit.DATA)
    return elapsed


def _row(name: str, value: str) -> None:
    say(f"{name:<13} {printable(value)}")


def _interval(interval: float) -> str:
    return f"every {interval:g} s" if interval else "none"


def _milliseconds(elapsed: float) -> str:
    return f"{elapsed * 1000:.1f} ms"
