"""`stompy send`: messages from an argument, a file, its lines, or standard input."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import BinaryIO

from stompy.cli.console import Progress, files, report, stdin_bytes, stdin_is_terminal
from stompy.cli.exits import Exit, Failure, code_of, interruption
from stompy.cli.options import CommandParser, add_connection_options, add_headers, headers_of, seconds
from stompy.cli.records import of_json
from stompy.cli.session import session
from stompy.connection.connection import Connection
from stompy.errors import StompError

STDIN = "-"

_OWN = {
    "destination": "DESTINATION",
    "content-type": "--content-type",
    "receipt": "--confirm",
    "content-length": "",
    "transaction": "",
}


def add_send(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = "Send one message, or one per line. With exit code 0 the broker has everything."
    add_connection_options(parser)
    parser.add_argument("destination", metavar="DESTINATION", help="such as /queue/orders")
    parser.add_argument("body", metavar="BODY", nargs="?", help="the text; '-', or no BODY in a pipe, reads stdin")
    body = parser.add_mutually_exclusive_group()
    body.add_argument("--file", metavar="FILE", help="send the bytes of FILE as one message; '-' is stdin")
    body.add_argument(
        "--lines", metavar="FILE", help="send each line of FILE, without its LF, as one message; '-' is stdin"
    )
    body.add_argument(
        "--json",
        metavar="FILE",
        help="send each line of FILE, an object as 'stompy subscribe --format json' prints it, as one message with its "
        "headers; '-' is stdin",
    )
    add_headers(parser, "SEND")
    parser.add_argument("--content-type", metavar="TYPE", help="such as application/json (default: text for BODY)")
    parser.add_argument(
        "--persistent", action=argparse.BooleanOptionalAction, help="whether it survives a restart of the broker"
    )
    parser.add_argument("--priority", type=int, metavar="N", help="0 to 9")
    parser.add_argument("--expires", type=seconds, metavar="S", help="seconds to live")
    parser.add_argument("--delay", type=seconds, metavar="S", help="seconds until the broker delivers it")
    parser.add_argument("--confirm", action="store_true", help="wait until the broker has confirmed each message")
    parser.set_defaults(run=run_send, late="body")


def run_send(arguments: argparse.Namespace) -> Exit:
    """Send the messages that the arguments name, and report how many were sent."""
    headers = headers_of(arguments.header, _OWN)
    with _bodies(arguments) as bodies:
        sender = _Sender(arguments, headers)
        try:
            with session(arguments) as conn:
                sender.send_all(conn, bodies)
        except StompError as error:
            raise Failure(f"{error}{sender.progress()}", code_of(error)) from error
        except Failure as error:
            raise Failure(f"{error}{sender.progress()}", error.code) from error
        except KeyboardInterrupt as signal:
            raise Failure(f"interrupted{sender.progress()}", interruption(signal)) from None
    report(f"sent {_messages(sender.sent)} to {arguments.destination}{sender.summary()}")
    return Exit.OK


class _Sender:
    """Sends bodies and counts them."""

    def __init__(self, arguments: argparse.Namespace, headers: dict[str, str]) -> None:
        self._arguments = arguments
        self._headers = headers
        self._progress = Progress("sent")
        self.sent = 0

    def send_all(self, conn: Connection, bodies: Iterator[str | bytes]) -> None:
        """Send each body; with `--confirm` wait for the broker's confirmations at the end."""
        # What comes through a pipe may come slowly, and should not wait for company.
        streaming = STDIN in (self._arguments.lines, self._arguments.json)
        with contextlib.nullcontext() if streaming else conn.batch():
            for line, body in enumerate(bodies, 1):
                content_type, headers = self._arguments.content_type, self._headers
                if self._arguments.json is not None:
                    assert isinstance(body, bytes)
                    body, own_type, own = of_json(body, line)
                    if self._arguments.persistent is not None:
                        own.pop("persistent", None)
                    content_type, headers = content_type or own_type, {**own, **headers}
                send = conn.send_async if self._arguments.confirm else conn.send
                send(
                    self._arguments.destination,
                    body,
                    content_type=content_type,
                    headers=headers,
                    persistent=self._arguments.persistent,
                    priority=self._arguments.priority,
                    expires=self._arguments.expires,
                    delay=self._arguments.delay,
                )
                self.sent += 1
                self._progress.show(self.sent)
        if self._arguments.confirm:
            conn.flush()

    def summary(self) -> str:
        """Return how long it took, for the end of a report."""
        return self._progress.summary(self.sent)

    def progress(self) -> str:
        """Return how far it got, for the end of an error."""
        self._progress.summary(self.sent)
        return f"; {_messages(self.sent)} had been sent, not all confirmed" if self.sent else ""


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


@contextlib.contextmanager
def _bodies(arguments: argparse.Namespace) -> Iterator[Iterator[str | bytes]]:
    """Open the input before anything is sent, and yield the bodies in it.

    Raises:
        Failure: it cannot be opened or read, or there is none.
    """
    by_line = arguments.lines if arguments.json is None else arguments.json
    if arguments.body is not None and (by_line is not None or arguments.file is not None):
        raise Failure("give BODY or one of --file, --lines and --json, not both", Exit.USAGE)
    if by_line is not None:
        with _opened(by_line) as file:
            yield _lines(file, by_line)
    elif arguments.file is not None:
        yield iter([_whole(arguments.file)])
    elif arguments.body is not None and arguments.body != STDIN:
        yield iter([arguments.body])
    elif arguments.body is None and stdin_is_terminal():
        raise Failure("no body: give BODY, --file, --lines, --json, or '-' to type it here", Exit.USAGE)
    else:
        yield iter([_whole(STDIN)])


def _opened(name: str) -> contextlib.AbstractContextManager[BinaryIO]:
    if name == STDIN:
        return contextlib.nullcontext(stdin_bytes())
    with _reading(name):
        return open(name, "rb")  # the caller closes it


def _whole(name: str) -> bytes:
    with _opened(name) as file, _reading(name):
        return file.read()


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the bytes of each line without the one LF that ends it; a last line may lack it."""
    with _reading(name):
        for line in file:
            yield line.removesuffix(b"\n")


def _reading(name: str) -> contextlib.AbstractContextManager[None]:
    return files(f"read {'standard input' if name == STDIN else repr(name)}")
