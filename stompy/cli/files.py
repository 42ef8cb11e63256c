"""Reading files that the command line names."""

from __future__ import annotations

from pathlib import Path

from stompy.cli.exits import Exit, Failure
from stompy.printable import printable


def first_line(path: Path, what: str) -> str:
    """Return the first line of a file that holds a secret, without its end.

    Raises:
        Failure: it cannot be read.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline().removesuffix("\n")
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read the {what} file {str(path)!r}: {why(error)}", Exit.DATA) from error


def why(error: Exception) -> str:
    """Return the reason of a failed read or write, without the path, which the caller names."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return printable(getattr(error, "strerror", None) or str(error))
