"""TLS on the command line."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from stompy.cli.console import report
from stompy.cli.exits import Exit, Failure
from stompy.cli.files import first_line
from stompy.errors import InsecureTlsWarning
from stompy.transport.tls.options import Tls
from stompy.world import os

_FILES = ("ca", "cert", "key")


def add_tls_options(group: argparse._ArgumentGroup) -> None:
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


def add_broker_tls_options(group: argparse._ArgumentGroup) -> None:
    """Add the TLS options of the embedded broker."""
    _add_own(group, "speak TLS, with this certificate", "STOMPY_BROKER_TLS")
    group.add_argument(
        "--tls-ca", metavar="FILE", help="ask clients for a certificate that one of the authorities in FILE has signed"
    )


def _add_own(group: argparse._ArgumentGroup, what: str, prefix: str) -> None:
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
    """Return what the options say, and the environment if TLS is requested anyway; `None` if they say nothing.

    Raises:
        ConfigurationError: the options cannot be combined.
        Failure: the password cannot be read.
    """
    given = {name: getattr(arguments, f"tls_{name}") for name in _FILES}
    server_name, skip = arguments.tls_server_name, arguments.tls_insecure_skip_verification
    asked = server_name is not None or skip or any(given.values()) or arguments.tls_password_file is not None
    if not asked and not wanted:
        return None
    files = {name: given[name] or _of_environment(f"STOMPY_TLS_{name.upper()}") for name in _FILES}
    if skip and given["ca"] is None:
        files["ca"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureTlsWarning)
        tls = Tls(
            ca=files["ca"],
            cert=files["cert"],
            key=files["key"],
            password=_password(arguments, "STOMPY_TLS_PASSWORD"),
            server_name=server_name,
            insecure_skip_verification=skip,
        )
    if skip:
        report("warning: TLS does not check the broker's certificate: anybody can impersonate the broker")
    return tls


def broker_tls_from(arguments: argparse.Namespace) -> Tls | None:
    """Return what the options and the environment say of the embedded broker's TLS; `None` for plain text.

    Raises:
        Failure: the password cannot be read, or there is no certificate to go with the other options.
    """
    cert = arguments.tls_cert or _of_environment("STOMPY_BROKER_TLS_CERT")
    if cert is None:
        if arguments.tls_key or arguments.tls_ca or arguments.tls_password_file:
            raise Failure("TLS needs a certificate: --tls-cert", Exit.USAGE)
        return None
    return Tls(
        cert=cert,
        key=arguments.tls_key or _of_environment("STOMPY_BROKER_TLS_KEY"),
        ca=arguments.tls_ca,
        password=_password(arguments, "STOMPY_BROKER_TLS_PASSWORD"),
    )


def _of_environment(name: str) -> str | None:
    return os.environ.get(name) or None


def _password(arguments: argparse.Namespace, variable: str) -> str | None:
    if arguments.tls_password_file is not None:
        return first_line(Path(arguments.tls_password_file), "password")
    return _of_environment(variable)
