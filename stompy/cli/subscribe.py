"""`stompy subscribe`: messages to standard output, as they are or as JSON lines."""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Callable

from stompy.cli.console import Output, forget_stdout, tell
from stompy.cli.exits import Exit, Failure, interruption
from stompy.cli.options import add_headers, count, headers_of, seconds
from stompy.cli.session import session
from stompy.connection.connection import Connection
from stompy.connection.dialects.brokers import dialect_named
from stompy.connection.message import Message
from stompy.connection.subscription import Subscription
from stompy.deadline import Deadline
from stompy.errors import ReceiveTimeout

_ENOUGH = 100
"""Messages after which they are flushed and acknowledged, however many more wait."""
_LOOK = 0.5
"""Seconds of silence after which to look whether anybody still reads the output."""


def add_subscribe(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "subscribe",
        parents=[common],
        help="print messages as they come",
        description="Print messages as they come. In the client modes a message is acknowledged after it was written, "
        "so that what is not written goes back to the broker.",
    )
    parser.add_argument("destination", metavar="DESTINATION", help="such as /queue/orders")
    parser.add_argument("--count", type=count, metavar="N", help="end after N messages")
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help=f"end with code {int(Exit.TIMEOUT)} when nothing came for S seconds",
    )
    parser.add_argument(
        "--ack", choices=("auto", "client", "client-individual"), default="client", help="default: client"
    )
    parser.add_argument(
        "--format",
        choices=tuple(_FORMATS),
        default="text",
        help="text: the octets of the body and LF; json: one object a line (default: text)",
    )
    add_headers(parser, "SUBSCRIBE")
    parser.set_defaults(run=run_subscribe)


def run_subscribe(arguments: argparse.Namespace) -> Exit:
    """Print messages until there were enough, nothing came for long enough, or a signal ends it."""
    headers = headers_of(arguments.header)
    printer = _Printer(Output(), _FORMATS[arguments.format], ack=arguments.ack)
    try:
        # The printer ends first: what was written and not yet acknowledged would come again.
        with session(arguments) as conn, printer:
            subscription = _subscribed(conn, arguments, headers)
            enough = _print_all(subscription, printer, arguments)
    except BrokenPipeError:
        forget_stdout()
        return Exit.BROKEN_PIPE
    except KeyboardInterrupt as signal:
        tell(f"interrupted; {printer.written} received")
        return interruption(signal)
    if not enough:
        raise Failure(
            f"nothing from {arguments.destination} for {arguments.timeout:g} s; {printer.written} received",
            Exit.TIMEOUT,
        )
    return Exit.OK


def _subscribed(conn: Connection, arguments: argparse.Namespace, headers: dict[str, str]) -> Subscription:
    prefetch = None
    dialect = dialect_named(conn.dialect)
    prefetch_header = None if dialect.prefetch_as_window else dialect.headers.get("prefetch")
    if arguments.count is not None and prefetch_header is not None and prefetch_header not in headers:
        # Who wants a few messages should not keep the others from other consumers meanwhile.
        prefetch = min(arguments.count, 1000)
    return conn.subscribe(arguments.destination, ack=arguments.ack, prefetch=prefetch, headers=headers)


def _print_all(subscription: Subscription, printer: _Printer, arguments: argparse.Namespace) -> bool:
    """Print messages; return whether there were enough before the timeout."""
    while arguments.count is None or printer.taken < arguments.count:
        message = _next(subscription, printer, Deadline(arguments.timeout))
        if message is None:
            return False
        printer.take(message)
        if subscription.queued == 0 or printer.waiting >= _ENOUGH:
            printer.settle()
    return True


def _next(subscription: Subscription, printer: _Printer, deadline: Deadline) -> Message | None:
    """Return the next message, or `None` when the deadline has passed."""
    while True:
        try:
            return subscription.receive(deadline.sooner(_LOOK).remaining())
        except ReceiveTimeout:
            if deadline.expired:
                return None
            printer.check_reader()


class _Printer:
    """Writes messages, and acknowledges those that the system has taken.

    Attributes:
        taken: messages given to it.
        written: messages that the system has.
    """

    def __init__(self, output: Output, render: Callable[[Message], bytes], *, ack: str) -> None:
        self._output = output
        self._render = render
        self._ack = ack
        self._unsettled: list[Message] = []
        self.taken = 0
        self.written = 0

    @property
    def waiting(self) -> int:
        """Messages that were not yet flushed and acknowledged."""
        return len(self._unsettled)

    def take(self, message: Message) -> None:
        """Write a message."""
        self._output.write(self._render(message))
        self._unsettled.append(message)
        self.taken += 1

    def check_reader(self) -> None:
        """Raise `BrokenPipeError` if nobody reads the output any more."""
        self._output.check_reader()

    def settle(self) -> None:
        """Flush, then acknowledge."""
        if not self._unsettled:
            return
        self._output.flush()
        messages, self._unsettled = self._unsettled, []
        self.written += len(messages)
        if self._ack == "client":
            messages[-1].ack()  # it covers those before it
        elif self._ack == "client-individual":
            for message in messages:
                message.ack()

    def __enter__(self) -> _Printer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self.settle()


def as_text(message: Message) -> bytes:
    """Return the octets of the body and LF."""
    return message.body + b"\n"


def as_json(message: Message) -> bytes:
    """Return an object with `destination`, `headers`, and `body` or `body_base64`, as ASCII with LF.

    `body` is the text that the octets are in UTF-8, whatever type they are declared to be, so that encoding it again
    gives the same octets; other bodies are in `body_base64`. Of a repeated header the first value counts (STOMP 1.2,
    Repeated Header Entries).
    """
    record: dict[str, object] = {"destination": message.destination, "headers": dict(message.headers)}
    try:
        record["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        record["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return json.dumps(record).encode("ascii") + b"\n"


_FORMATS: dict[str, Callable[[Message], bytes]] = {"text": as_text, "json": as_json}
