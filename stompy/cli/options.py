"""Parsing of the command line: the options that several commands share."""

from __future__ import annotations

import argparse
import getpass
import math
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from stompy.cli.console import first_line, report, report_error
from stompy.cli.exits import Exit, Failure
from stompy.errors import InsecureTlsWarning
from stompy.printable import did_you_mean
from stompy.transport.address import masked
from stompy.transport.tls.options import Tls
from stompy.world import os

Options: TypeAlias = argparse._ActionsContainer
"""A parser, or a group of its options."""

_OPTION = re.compile(r"(?<![\w-])--[\w-]+")
_MAY_HOLD_A_PASSCODE = re.compile(r"\S*(?:://|@)\S*")


class CommandParser(argparse.ArgumentParser):
    """An argument parser that shows no passcodes, and reports errors in one line."""

    def __init__(self, **settings: Any) -> None:
        # Without abbreviations: `--passcode x`, which does not exist, must not be read as `--passcode-file x`.
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, naming unknown options by their names only: their values may be secrets."""
        # An unknown option that stands first is named before what is missing.
        first = (args or [""])[0].split("=", 1)[0]
        wrong = first.startswith("--") and first != "--" and first not in self.option_names()
        known, extra = (namespace, [first]) if wrong else super().parse_known_args(args, namespace)
        unknown = [argument.split("=", 1)[0] for argument in extra if not _is_word(argument)]
        if unknown:
            hint = did_you_mean(unknown[0], self.option_names())
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

    def option_names(self) -> list[str]:
        """Return its options, as the usage has them."""
        return ["--help", *_OPTION.findall(self.format_usage())]

    def error(self, message: str) -> NoReturn:
        """Report an error and exit."""
        shown = _MAY_HOLD_A_PASSCODE.sub(lambda found: masked(found.group()), message)
        report_error(f"{shown} (see '{self.prog} --help')")
        sys.exit(Exit.USAGE)


def _is_word(argument: str) -> bool:
    return argument == "-" or not argument.startswith("-")


def add_connection_options(parser: CommandParser) -> None:
    """Add the options of every command that connects."""
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
        "--versions",
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
        "--start-timeout",
        type=seconds,
        metavar="S",
        help="retry connecting for S seconds, for instance while the broker starts (default: try once)",
    )
    _add_tls_options(parser.add_argument_group("TLS, for stomp+ssl:// and wss://"))


def add_passcode_options(group: Options, variable: str) -> None:
    """Add the ways to give a passcode that other users of the machine cannot see."""
    ways = group.add_mutually_exclusive_group()
    ways.add_argument(
        "--passcode-file",
        metavar="FILE",
        help=f"read the passcode from the first line of FILE (default: ${variable}, where that is set)",
    )
    ways.add_argument("--ask-passcode", action="store_true", help="ask for the passcode on the terminal")


def add_verbose(parser: CommandParser) -> None:
    """Add `--verbose`."""
    parser.add_argument(
        "--verbose", "-v", action="count", default=0, help="log to standard error; twice: with the frames"
    )


def add_headers(group: Options, command: str) -> None:
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


def _add_tls_options(group: Options) -> None:
    """Add the TLS options of a command that connects."""
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="trust the authorities in FILE (PEM) instead of the system's (default: $STOMPY_TLS_CA)",
    )
    _add_own(group, "the client's certificate, if the broker requires one", "STOMPY_TLS")
    group.add_argument("--tls-server-name", metavar="NAME", help="expect NAME in the broker's certificate")
    group.add_argument(
        "--tls-insecure-skip-verification",
        action="store_true",
        help="accept any certificate: anybody on the network path can read and change everything, passcodes first",
    )


def add_broker_tls_options(group: Options) -> None:
    """Add the TLS options of the embedded broker."""
    _add_own(group, "speak TLS, with this certificate", "STOMPY_BROKER_TLS")
    group.add_argument(
        "--tls-ca", metavar="FILE", help="ask clients for a certificate that one of the authorities in FILE has signed"
    )


def _add_own(group: Options, what: str, prefix: str) -> None:
    group.add_argument(
        "--tls-cert", metavar="FILE", help=f"{what}, followed by its chain (PEM) (default: ${prefix}_CERT)"
    )
    group.add_argument(
        "--tls-key", metavar="FILE", help=f"its key, where it is not in the same file (default: ${prefix}_KEY)"
    )
    group.add_argument(
        "--tls-password-file",
        metavar="FILE",
        help=f"the password of an encrypted key is the first line of FILE (default: ${prefix}_PASSWORD)",
    )


def tls_from(arguments: argparse.Namespace, *, wanted: bool) -> Tls | None:
    """Return the TLS of the options, and of the environment if TLS is requested anyway; `None` without either.

    Raises:
        ConfigurationError: the options cannot be combined.
        Failure: the password cannot be read.
    """
    skip = arguments.tls_insecure_skip_verification
    given = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key, arguments.tls_password_file)
    if not (wanted or skip or any(given) or arguments.tls_server_name is not None):
        return None
    cert, key, password = _own_certificate(arguments, "STOMPY_TLS")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureTlsWarning)
        tls = Tls(
            ca=arguments.tls_ca or (None if skip else _of_environment("STOMPY_TLS_CA")),
            server_name=arguments.tls_server_name,
            insecure_skip_verification=skip,
            cert=cert,
            key=key,
            password=password,
        )
    if skip:
        report("warning: TLS does not check the broker's certificate: anybody can impersonate the broker")
    return tls


def broker_tls_from(arguments: argparse.Namespace) -> Tls | None:
    """Return the embedded broker's TLS from the options and the environment; `None` for plain text.

    Raises:
        Failure: the password cannot be read, or there is no certificate to go with the other options.
    """
    if arguments.tls_cert is None and _of_environment("STOMPY_BROKER_TLS_CERT") is None:
        if arguments.tls_key or arguments.tls_ca or arguments.tls_password_file:
            raise Failure("TLS needs a certificate: --tls-cert", Exit.USAGE)
        return None
    cert, key, password = _own_certificate(arguments, "STOMPY_BROKER_TLS")
    return Tls(cert=cert, key=key, password=password, ca=arguments.tls_ca)


def _own_certificate(arguments: argparse.Namespace, prefix: str) -> tuple[str | None, str | None, str | None]:
    """Return the certificate, its key and the key's password, from the options or the environment."""
    file = arguments.tls_password_file
    password = _of_environment(f"{prefix}_PASSWORD") if file is None else first_line(Path(file), "password")
    cert = arguments.tls_cert or _of_environment(f"{prefix}_CERT")
    return cert, arguments.tls_key or _of_environment(f"{prefix}_KEY"), password


def _of_environment(name: str) -> str | None:
    return os.environ.get(name) or None
