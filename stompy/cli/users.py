"""`stompy hash-passcode`, and the file of users that `stompy broker` reads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from stompy.broker.users import User, hash_passcode
from stompy.cli.console import say
from stompy.cli.exits import Exit, Failure
from stompy.cli.files import why
from stompy.cli.options import add_passcode_options, add_verbose, passcode_from
from stompy.errors import ConfigurationError

_PASSCODE = "STOMPY_PASSCODE"
_FIELDS = frozenset(("passcode_hash", "read", "write", "admin"))


def add_hash_passcode(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "hash-passcode",
        description="Print the salted hash (scrypt) of a passcode, for the file of users of 'stompy broker'.",
    )
    add_passcode_options(parser.add_argument_group("passcode"), _PASSCODE)
    add_verbose(parser)
    parser.set_defaults(run=run_hash_passcode)


def run_hash_passcode(arguments: argparse.Namespace) -> Exit:
    """Print the hash."""
    passcode = passcode_from(arguments, _PASSCODE)
    if not passcode:
        raise Failure(f"a passcode is required: ${_PASSCODE}, --passcode-file or --ask-passcode", Exit.USAGE)
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
