"""`stompy migrate`: report; it changes nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from stompy.cli.console import report, say
from stompy.cli.exits import Exit, Failure
from stompy.cli.files import why
from stompy.cli.migrate.scan import Use, uses_of
from stompy.cli.options import add_verbose
from stompy.printable import printable

_SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages"))


def add_migrate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "migrate",
        description="Report what a program uses of stomp.py, by file and line, and what to write instead. "
        "The program is neither run nor changed. Exit code 1 if something needs a hand.",
    )
    parser.add_argument("path", metavar="PATH", type=Path, help="a Python file, or a folder with some")
    parser.add_argument("--json", action="store_true", help="print each use as one JSON object per line")
    add_verbose(parser)
    parser.set_defaults(run=run_migrate)


def run_migrate(arguments: argparse.Namespace) -> Exit:
    """Print the report."""
    files = uses = hands = 0
    for path in _programs(arguments.path):
        found = _uses(path)
        files += bool(found)
        uses += len(found)
        hands += sum(use.hand for use in found)
        for use in found:
            if arguments.json:
                say(json.dumps({"file": str(path), **asdict(use)}))
            else:
                mark = "needs a hand: " if use.hand else ""
                say(printable(f"{path}:{use.line}: {use.name}: {mark}{use.text}"))
    report(f"files that use stomp.py: {files}; uses: {uses}; that need a hand: {hands}")
    return Exit.FAILED if hands else Exit.OK


def _programs(path: Path) -> Iterator[Path]:
    """Return the programs in a folder, without those of hidden folders and of environments; or the one file."""
    if not path.is_dir():
        yield path
        return
    for each in sorted(path.rglob("*.py")):
        inner = each.relative_to(path).parts[:-1]
        if not any(part in _SKIPPED or part.startswith(".") for part in inner) and each.is_file():
            yield each


def _uses(path: Path) -> list[Use]:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {str(path)!r}: {why(error)}", Exit.DATA) from error
    try:
        return uses_of(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        if b"stomp" not in source:
            return []
        reason = getattr(error, "msg", None) or error
        return [Use(getattr(error, "lineno", None) or 1, "syntax", f"cannot be parsed: {reason}", True)]
