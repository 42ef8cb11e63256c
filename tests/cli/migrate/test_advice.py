"""The table knows every public name of stomp.py, and says of each truly whether stompy.compat has it."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import stompy
import stompy.compat
from stompy.cli.migrate import advice
from stompy.cli.migrate.advice import Advice
from stompy.cli.migrate.scan import uses_of
from stompy.connection.connecting import connect

RECORDED = json.loads((Path(__file__).parents[2] / "compat" / "stomp_py.json").read_text())


def _top_level(release: str) -> Iterator[str]:
    for path in RECORDED[release]:
        names = path.split(".")
        while len(names) > 1 and names[0] in ("adapter", "multicast", "ws", *advice.MODULES):
            names.pop(0)
        if len(names) == 1 and names[0] not in advice.MODULES:
            yield path


@pytest.mark.parametrize("release", RECORDED)
def test_every_public_name_of_stomp_py_is_known(release: str) -> None:
    unknown = [
        path
        for path in _top_level(release)
        for use in uses_of(f"import stomp\nstomp.{path}\n")
        if "not a name" in use.text
    ]
    assert unknown == []
    assert len(list(_top_level(release))) > 80


def _in_the_adapter(name: str) -> bool:
    modules = [stompy.compat]
    for module in advice.MODULES - {"colours", "adapter.multicast"}:
        modules.append(import_module(f"stompy.compat.{module}"))
    return any(hasattr(module, name) for module in modules)


def test_names_need_a_hand_that_the_adapter_lacks() -> None:
    lacking = {name for name in advice.NAMES if not _in_the_adapter(name)}
    assert {name for name, found in advice.NAMES.items() if found.hand} - lacking == set()
    assert lacking <= {name for name, found in advice.NAMES.items() if found.hand}


@pytest.mark.parametrize("table", ["MEMBERS", "TRANSPORT"])
def test_members_need_a_hand_that_the_adapter_lacks(table: str) -> None:
    conn = stompy.compat.WSConnection()
    members: dict[str, Advice] = getattr(advice, table)
    holder = conn if table == "MEMBERS" else conn.transport
    assert [name for name, found in members.items() if hasattr(holder, name) == found.hand] == []


def test_every_argument_of_a_connection_is_known() -> None:
    for release in RECORDED.values():
        for kind in ("Connection10", "Connection11", "Connection12", "WSConnection"):
            arguments = re.findall(r"(\w+)=", release[kind])
            assert set(arguments) <= advice.ARGUMENTS.keys()


def _texts() -> list[str]:
    tables = (advice.NAMES, advice.ARGUMENTS, advice.MEMBERS, advice.TRANSPORT, advice.HEADERS)
    found = [each.text for table in tables for each in table.values()]
    return found + [each.text for _, each in advice.CALLBACKS.values()]


def test_what_is_to_be_written_is_in_stompy() -> None:
    snippets = [snippet for text in _texts() for snippet in re.findall(r"`([^`]+)`", text)]
    assert len(snippets) > 100
    for name in {name for snippet in snippets for name in re.findall(r"\bstompy\.([A-Za-z]\w*)", snippet)}:
        assert hasattr(stompy, name) or import_module(f"stompy.{name}") is not None, name
    options = inspect.signature(connect).parameters
    for snippet in snippets:
        tree = ast.parse(snippet.replace("...", "0")) if snippet.startswith("stompy.connect(") else None
        for call in ast.walk(tree) if tree else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "stompy.connect":
                assert {keyword.arg for keyword in call.keywords} <= options.keys(), snippet
