"""What users may rely on, pinned: a public name or signature changes only together with `public_api.txt`."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import re
import textwrap
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.public_api import MODULES, PINNED, public_api

TOP = Path(__file__).parents[1]
PUBLIC = {module: set(import_module(module).__all__) for module in (*MODULES, "stompy.compat")}

FOREIGN = {
    "Path",
    "PathLike",
    "SSLContext",
    "AbstractContextManager",
    "Unpack",
    "MeterProvider",
    "Metric",
    "BaseRetrying",
}
FOREIGN |= {"TextMapPropagator", "TracerProvider", "IntEnum"}
"""Names of the standard library and of other distributions in signatures."""

TYPE_VARIABLES = {"Function", "T", "Value"}


def test_public_names_and_signatures_are_those_of_the_file() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    now = public_api()
    hint = "if this is meant, run `python -m tests.support.public_api`, and name the change in CHANGELOG.md"
    assert sorted(set(pinned) ^ set(now)) == [], hint


def test_what_signatures_name_can_be_imported() -> None:
    known = {name for names in PUBLIC.values() for name in names} | FOREIGN | TYPE_VARIABLES
    for module in (builtins, typing, collections.abc):
        known |= set(dir(module))
    missing = set()
    for line in public_api():
        _, _, signature = re.sub("'[^']*'", "", line).partition("(" if "(" in line.partition(":")[0] else ":")
        missing |= {(name, line[:60]) for name in re.findall(r"(?<![.\w])[A-Z]\w+", signature) if name not in known}
    assert missing == set()


def programs() -> Iterator[tuple[Path, str]]:
    """Yield the Python of the examples and of the pages for users."""
    for path in sorted(TOP.glob("examples/**/*.py")):
        yield path, path.read_text(encoding="utf-8")
    for path in [TOP / "README.md", *sorted(TOP.glob("docs/**/*.md"))]:
        if "contributing" not in path.parts:
            for block in re.findall(r"^( *)```python\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.M | re.S):
                yield path, textwrap.dedent(block[1])


@pytest.mark.parametrize("path", sorted({path for path, _ in programs()}), ids=lambda path: path.name)
def test_what_pages_and_examples_import_is_public(path: Path) -> None:
    for where, program in programs():
        if where != path or "stompy" not in program:
            continue
        try:
            tree = ast.parse(program)
        except SyntaxError:
            continue  # a fragment; what is run is checked by tests/documentation
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "stompy":
                assert node.module in PUBLIC or node.module.startswith("stompy.compat"), ast.unparse(node)
                assert {alias.name for alias in node.names} <= PUBLIC.get(node.module, {a.name for a in node.names})
            if isinstance(node, ast.Import):
                assert {a.name for a in node.names if a.name.startswith("stompy.")} <= set(PUBLIC), ast.unparse(node)
