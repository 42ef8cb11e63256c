"""`stompy subscribe`: messages to standard output, as they are or as JSON lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import get_args

from stompy.cli.console import Output, Progress, forget_stdout, report
from stompy.cli.exits import Exit, Failure, interruption
from stompy.cli.options import CommandParser, add_connection_options, add_headers, count, headers_of, seconds
from stompy.cli.records import as_json, format_named, shown
from stompy.cli.session import session
from stompy.connection.connection import Connection
from stompy.connection.message import AckMode, Message
from stompy.connection.subscription import Subscription
from stompy.deadline import Deadline
from stompy.default import DEFAULT
from stompy.dialects.brokers import dialect_named
from stompy.errors import ReceiveTimeoutError

_OWN = {
    "destination": "DESTINATION",
    "ack": "--ack",
    **dict.fromkeys(("id", "receipt", "transaction", "content-type", "content-length"), ""),
}

_EMPTY_AFTER = 2.0
"""Seconds without a message after which a queue counts as empty for `--until-empty`."""
_BATCH = 100
"""Messages after which the output is flushed and they are acknowledged, even if more are queued."""
_ONE_BY_ONE = 100
"""The first messages into a pipe are each written after the previous one was read, as the reader may end early."""
_DRAIN_TIME = 0.5
"""Seconds for the reader of a pipe to read what is in it, when a signal ends the command."""
_POLL_INTERVAL = 0.5
"""Seconds between checks whether the reader of the output has ended."""


def add_subscribe(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Print messages as they arrive. In the client modes a message is acknowledged after it was "
        "written, or with a pipe and no --count after it was read from it; others go back to the broker."
    )
    add_connection_options(parser)
    parser.add_argument("destination", metavar="DESTINATION", help="such as /queue/orders")
    parser.add_argument("--count", type=count, metavar="N", help="end after N messages")
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help=f"end with code {int(Exit.TIMEOUT)} when nothing came for S seconds",
    )
    parser.add_argument(
        "--until-empty",
        action="store_true",
        help=f"end with code 0 when nothing came for {_EMPTY_AFTER:g} s, or --timeout",
    )
    parser.add_argument(
        "--ack",
        choices=get_args(AckMode),
        default="handled",
        help="handled: acknowledge what was written, or read by the reader of a pipe (default: handled)",
    )
    parser.add_argument(
        "--format",
        type=_format,
        default="text",
        metavar="FORMAT",
        help="text: the bytes of the body and LF; json: one object a line, which 'stompy send --json' reads; or a "
        "template such as '{destination} {message-id}: {body}' (default: text)",
    )
    parser.add_argument(
        "--raw", action="store_true", help="do not escape control characters on a terminal, which may interpret them"
    )
    parser.add_argument("--selector", metavar="CONDITION", help="only messages whose headers match")
    parser.add_argument("--durable", metavar="NAME", help="name of a durable subscription; needs --client-id")
    parser.add_argument("--prefetch", type=count, metavar="N", help="the most unacknowledged messages sent ahead")
    add_headers(parser, "SUBSCRIBE")
    parser.set_defaults(run=run_subscribe)


def _format(text: str) -> Callable[[Message], bytes]:
    try:
        return format_named(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"neither text, json nor a template with {{FIELDS}}: {text!r}") from None


def run_subscribe(arguments: argparse.Namespace) -> Exit:
    """Print messages until there were enough, nothing came for long enough, or a signal ends it."""
    headers = headers_of(arguments.header, _OWN)
    if arguments.until_empty and arguments.timeout is None:
        arguments.timeout = _EMPTY_AFTER
    output = Output()
    render = arguments.format
    if render is not as_json and output.is_terminal and not arguments.raw:
        render = shown(render)
    progress = Progress("received", hidden=output.is_terminal)
    # With --count, the reader is expected to read all messages.
    by_reading = arguments.count is None and output.is_pipe
    if arguments.ack == "handled":
        arguments.ack = "client"  # the printer acknowledges in order, many at once
    printer = _Printer(output, render, progress, ack=arguments.ack, by_reading=by_reading)
    try:
        # The printer ends first: what was written and not yet acknowledged would come again.
        with session(arguments) as conn, printer:
            subscription = _subscribed(conn, arguments, headers)
            enough = _print_all(subscription, printer, arguments)
    except BrokenPipeError:
        forget_stdout()
        return Exit.BROKEN_PIPE
    except KeyboardInterrupt as signal:
        report(f"interrupted; {printer.written} received{progress.summary(printer.written)}")
        return interruption(signal)
    summary = progress.summary(printer.written)
    if arguments.until_empty or summary:
        report(f"{printer.written} received from {arguments.destination}{summary}")
    if not enough and not arguments.until_empty:
        raise Failure(
            f"nothing from {arguments.destination} for {arguments.timeout:g} s; {printer.written} received",
            Exit.TIMEOUT,
        )
    return Exit.OK


def _subscribed(conn: Connection, arguments: argparse.Namespace, headers: dict[str, str]) -> Subscription:
    prefetch = arguments.prefetch
    dialect = dialect_named(conn.dialect)
    prefetch_header = None if dialect.prefetch_as_window else dialect.headers.get("prefetch")
    may_ask = prefetch is None and prefetch_header is not None and prefetch_header not in headers
    if arguments.count is not None and may_ask:
        # More would be kept from other consumers meanwhile.
        prefetch = min(arguments.count, 1000)
    return conn.subscribe(
        arguments.destination,
        ack=arguments.ack,
        prefetch=DEFAULT if prefetch is None else prefetch,
        selector=arguments.selector,
        durable=arguments.durable,
        headers=headers,
    )


def _print_all(subscription: Subscription, printer: _Printer, arguments: argparse.Namespace) -> bool:
    """Print messages; return whether there were enough before the timeout."""
    while arguments.count is None or printer.taken < arguments.count:
        message = _next(subscription, printer, Deadline(arguments.timeout))
        if message is None:
            return False
        printer.take(message)
        if (subscription.queued == 0 or printer.full) and not printer.settle(Deadline(arguments.timeout)):
            raise Failure(
                f"nobody read the output for {arguments.timeout:g} s; {printer.written} received", Exit.TIMEOUT
            )
    return True


def _next(subscription: Subscription, printer: _Printer, deadline: Deadline) -> Message | None:
    """Return the next message, or `None` when the deadline has passed."""
    while True:
        try:
            return subscription.receive(timeout=deadline.sooner(_POLL_INTERVAL).remaining())
        except ReceiveTimeoutError:
            if deadline.expired:
                return None
            printer.check_reader()


class _Printer:
    """Writes messages, and acknowledges each that was written or, for a pipe, read.

    Args:
        output: to write to.
        render: returns the bytes to write for a message.
        progress: told how many were written.
        ack: the acknowledgement mode.
        by_reading: whether to acknowledge a message only after the reader of the pipe has read it.

    Attributes:
        taken: number of messages given to it.
        written: number of messages that were written or read, and acknowledged unless the mode is `auto`.
    """

    def __init__(
        self,
        output: Output,
        render: Callable[[Message], bytes],
        progress: Progress,
        *,
        ack: str,
        by_reading: bool,
    ) -> None:
        self._output = output
        self._progress = progress
        self._render = render
        self._ack = ack
        self._by_reading = by_reading
        self._unsettled: list[tuple[Message, int]] = []
        self.taken = 0
        self.written = 0

    @property
    def full(self) -> bool:
        """Whether to flush and acknowledge before the next message, even if it is there already."""
        one_by_one = self._by_reading and self.written < _ONE_BY_ONE
        return len(self._unsettled) >= (1 if one_by_one else _BATCH)

    def take(self, message: Message) -> None:
        """Write a message."""
        data = self._render(message)
        self._output.write(data)
        self._unsettled.append((message, len(data)))
        self.taken += 1

    def check_reader(self) -> None:
        """Raise `BrokenPipeError` if the reader of the output has ended."""
        self._output.check_reader()

    def settle(self, deadline: Deadline) -> bool:
        """Flush, then acknowledge; return whether all messages were acknowledged before the deadline.

        Raises:
            BrokenPipeError: the reader has ended, and left bytes unread.
        """
        if not self._unsettled:
            return True
        self._output.flush()
        unread = self._output.await_reader(deadline) if self._by_reading else 0
        rest: list[tuple[Message, int]] = []
        while unread > 0 and self._unsettled:
            rest.insert(0, self._unsettled.pop())
            unread -= rest[0][1]
        settled, self._unsettled = self._unsettled, rest
        self._acknowledge([message for message, _ in settled])
        if rest:
            self.check_reader()
        return not rest

    def _acknowledge(self, messages: list[Message]) -> None:
        self.written += len(messages)
        self._progress.show(self.written)
        if self._ack == "client":
            messages = messages[-1:]  # it covers those before it
        if self._ack != "auto":
            for message in messages:
                message.ack()

    def __enter__(self) -> _Printer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self.settle(Deadline(_DRAIN_TIME))
