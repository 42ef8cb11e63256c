"""`import stompy`: every public name is there, and what costs time is imported when it is first asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import stompy

TOP = Path(__file__).parent.parent

COSTLY = {"ssl", "_ssl", "sqlite3", "tenacity", "asyncio", "socket", "threading", "logging", "dataclasses", "json", "inspect"}  # fmt: skip # noqa: E501


def imported(code: str) -> set[str]:
    """Return the modules that a process has after it ran `code`, and an empty one has not."""
    said = "import sys; there = {*sys.modules}\n" + code + "\nprint(*sorted({*sys.modules} - there))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", said], cwd=TOP, check=True, capture_output=True, text=True, timeout=50
    )
    return set(done.stdout.split())


def test_importing_stompy_imports_little() -> None:
    new = imported("import stompy; stompy.ConnectError; stompy.__version__")
    assert new & COSTLY == set()
    assert {name for name in new if name.startswith("stompy")} == {
        "stompy",
        "stompy.errors",
        "stompy.exports",
        "stompy.installed",
        "stompy.printable",
        "stompy.world",
    }


def test_a_first_connect_without_tls_imports_neither_tls_nor_websocket_nor_the_outbox() -> None:
    new = imported(
        "import stompy\ntry:\n    stompy.connect('stomp+unix:///nowhere')\nexcept stompy.ConnectError:\n    pass"
    )
    assert "stompy.transport.unix" in new
    assert new & {"ssl", "_ssl", "hashlib", "sqlite3", "tenacity", "asyncio", "subprocess"} == set()
    assert new & {"dataclasses", "inspect", "stompy.connection.transaction"} == set()
    assert "stompy.transport.websocket" not in new
    assert not any(
        name.startswith(("stompy.outbox", "stompy.broker", "stompy.spark", "stompy.telemetry", "stompy.testing"))
        for name in new
    )


@pytest.mark.parametrize("name", ["stompy", "stompy.worker", "stompy.testing", "stompy.broker"])
def test_every_public_name_is_there_and_told(name: str) -> None:
    package = import_module(name)
    assert all(getattr(package, each) is not None for each in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    assert len(set(package.__all__)) == len(package.__all__)


def late_names(name: str) -> dict[str, str]:
    """Return the names that a package imports when they are asked for, each with its module."""
    return {each: module for module, names in import_module(name)._LAZY.items() for each in names.split()}


@pytest.mark.parametrize("name", ["stompy", "stompy.testing", "stompy.spark"])
def test_what_is_imported_late_is_what_type_checkers_see(name: str) -> None:
    tree = ast.parse((TOP / name.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    (for_types,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    seen = {
        alias.name: node.module for node in for_types.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == late_names(name)


def test_importing_the_package_imports_little() -> None:
    new = imported("import stompy")
    assert {name for name in new if name.startswith("stompy.")} == {
        "stompy.exports",
        "stompy.installed",
        "stompy.world",
    }
    assert not {"typing", "re", "enum", "collections"} & new


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'stompy' has no attribute 'conect'"):
        getattr(stompy, "conect")  # noqa: B009
    with pytest.raises(ImportError, match="conect"):
        exec("from stompy import conect")


def test_a_name_is_imported_once() -> None:
    assert stompy.connect is stompy.connect
    assert "connect" in vars(stompy)
