"""What users may rely on, pinned: a public name or signature changes only together with `public_api.txt`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.testing import ProxyLink
from tests.support.public_api import MODULES, PINNED, is_made_inside, public_api

TOP = Path(__file__).parents[1]
PUBLIC = {module: set(import_module(module).__all__) for module in (*MODULES, "stompy.compat")}

INTERNAL = {"Config", "Network", "Search", "World"}
"""Of methods of telemetry that only connections and workers call, and of what `simulate` alone makes a world of."""


def test_public_names_and_signatures_are_those_of_the_file() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    now = public_api()
    hint = "if this is meant, run `python -m tests.support.public_api`, and name the change in CHANGELOG.md"
    assert sorted(set(pinned) ^ set(now)) == [], hint


def annotations_of(value: Any) -> Iterator[tuple[Any, str]]:
    """Yield the annotations that are written at a public function or class, each with its module."""
    if inspect.isfunction(value):
        yield from ((each, value.__module__) for each in value.__annotations__.values())
    for kind in value.__mro__ if isinstance(value, type) else ():
        if kind.__module__.startswith("stompy."):
            yield from ((getattr(each, "__forward_arg__", each), kind.__module__) for name, each in
                        inspect.get_annotations(kind).items() if not name.startswith("_"))  # fmt: skip
            for name, member in vars(kind).items():
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                own = name == "__init__" and kind is value and not is_made_inside(value)
                if inspect.isfunction(function) and (own or not name.startswith("_")):
                    yield from ((each, kind.__module__) for each in function.__annotations__.values())


def meant_by(name: str, module: str) -> Any:
    """Return what a name in an annotation is, if it is ours; imports for type checkers count too."""
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.ImportFrom) and name in [each.asname or each.name for each in node.names]:
            ours = (
                str(node.module).startswith("stompy.") and node.module != "stompy.world"
            )  # has the standard library's
            return getattr(import_module(str(node.module)), name) if ours else None
        if isinstance(node, ast.Import) and name in [each.asname or each.name for each in node.names]:
            return None
    value = vars(import_module(module)).get(name)
    return None if isinstance(value, typing.TypeVar) else value


def test_what_signatures_name_can_be_imported() -> None:
    """By what is meant: a class of the same name in another module is another class."""
    public = {module: vars(import_module(module)) for module in MODULES[:-1]}  # those of Spark need pyspark
    values = [getattr(import_module(module), name) for module in public for name in import_module(module).__all__]
    missing = set()
    for text, module in {each for value in values for each in annotations_of(value) if isinstance(each[0], str)}:
        for node in ast.walk(ast.parse(text, mode="eval")):
            if isinstance(node, ast.Name) and node.id not in INTERNAL:
                value = meant_by(node.id, module)
                if value is not None and not any(value is each for each in values):
                    missing.add((node.id, module))
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
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "stompy":
                assert node.module in PUBLIC or node.module.startswith("stompy.compat"), ast.unparse(node)
                assert {alias.name for alias in node.names} <= PUBLIC.get(node.module, {a.name for a in node.names})
            if isinstance(node, ast.Import):
                assert {a.name for a in node.names if a.name.startswith("stompy.")} <= set(PUBLIC), ast.unparse(node)


@pytest.mark.parametrize(
    "called", [stompy.connect, Broker, stompy.Worker, stompy.Outbox], ids=lambda called: called.__name__
)
def test_what_takes_settings_takes_them_in_groups(called: Callable[..., Any]) -> None:
    named = [each for each in inspect.signature(called).parameters.values() if each.kind is not each.VAR_KEYWORD]
    assert len(named) <= 20


def test_the_fields_of_public_dataclasses_are_given_by_name() -> None:
    found = {
        value for module in MODULES for value in vars(import_module(module)).values() if dataclasses.is_dataclass(value)
    }
    found |= {value for name in stompy.__all__ if dataclasses.is_dataclass(value := getattr(stompy, name))}
    positional = {
        value.__name__: [
            name
            for name, each in inspect.signature(value).parameters.items()
            if each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        for value in found
        if isinstance(value, type)
    }
    assert {name: fields for name, fields in positional.items() if len(fields) > 1} == {}
    assert "passcode" not in positional["User"]


def test_every_timeout_is_given_by_name_and_none_is_a_default() -> None:
    """`None` is no limit: a method whose default is `None` has no limit by default, and there are only two."""
    unlimited = set()
    for module in MODULES[:-1]:  # those of Spark need pyspark
        exports = import_module(module)
        for kind in (value for name in exports.__all__ if inspect.isclass(value := getattr(exports, name))):
            for name, method in inspect.getmembers(kind, inspect.isfunction):
                timeout = inspect.signature(method).parameters.get("timeout")
                if timeout is None or name.startswith("_"):
                    continue
                if kind is not stompy.Receipt:
                    assert timeout.kind is inspect.Parameter.KEYWORD_ONLY, (kind, name)
                if timeout.default is None:
                    unlimited.add(f"{kind.__name__}.{name}")
    assert unlimited <= {"Connection.wait_closed", "Receipt.result", "Receipt.exception"}


def test_all_that_is_closed_can_be_used_in_a_with_block() -> None:
    public = {value for module in MODULES[:-1] for name in import_module(module).__all__
               if inspect.isclass(value := getattr(import_module(module), name))}  # fmt: skip
    closed = {
        kind for kind in public if callable(getattr(kind, "close", None)) and kind is not ProxyLink
    }  # the proxy closes it
    assert {kind.__name__ for kind in closed if not hasattr(kind, "__exit__")} == set()
