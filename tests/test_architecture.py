"""The rules of `tests/support/architecture_rules.py` hold for the package, and each one turns red when it is broken."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import architecture_rules as rules

TOP = Path(__file__).parent.parent

Rule = Callable[[rules.Tree], list[str]]
Plant = Callable[..., list[str]]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: Rule, package: rules.Tree) -> None:
    assert rule(package) == []


def test_the_tree_that_is_judged_is_the_package(package: rules.Tree) -> None:
    tree = package
    assert {"stompy", "stompy.errors", "stompy.frames.parser"} <= tree.keys()
    assert any(found.target == "stompy.frames.frame" and found.types_only for found in tree["stompy.errors"].imports)


@pytest.fixture(scope="module")
def package() -> rules.Tree:
    return rules.tree_of(rules.read_sources(TOP))


@pytest.fixture
def plant(package: rules.Tree) -> Plant:
    """Return what adds sources to the package's and returns the breaches of a rule that were not there before."""

    def write(rule: Rule, added: dict[str, str]) -> list[str]:
        before = rule(package)
        sources = dict(rules.read_sources(TOP))
        for name, source in added.items():
            sources[Path(name)] = sources.get(Path(name), "") + source + "\n"
        return [breach for breach in rule(rules.tree_of(sources)) if breach not in before]

    return write


def for_types(statement: str) -> str:
    return f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {statement}"


def in_function(statement: str) -> str:
    return f"def late():\n    {statement}"


@pytest.mark.parametrize(
    ("file", "source", "named"),
    [
        ("frames/planted.py", "from stompy.protocol.planted import x", "frames must not import stompy.protocol"),
        ("frames/planted.py", "import stompy.transport.planted as x", "frames must not import stompy.transport"),
        ("protocol/planted.py", "from stompy.link import planted", "protocol must not import stompy.link"),
        ("transport/planted.py", "from stompy.frames.planted import x", "transport must not import stompy.frames"),
        ("link/planted.py", for_types("from stompy.connection.planted import x"), "link must not import"),
        ("connection/planted.py", in_function("from stompy.worker.planted import x"), "connection must not import"),
        ("connection/planted.py", "from stompy.broker import Broker", "connection must not import stompy.broker"),
        ("connection/planted.py", "from stompy.outbox.planted import x", "connection must not import stompy.outbox"),
        ("outbox/planted.py", "from stompy.broker import Broker", "outbox must not import stompy.broker"),
        ("broker/planted.py", "from stompy.link.planted import x", "broker must not import stompy.link"),
        ("broker/planted.py", "from stompy.connection.planted import x", "broker must not import stompy.connection"),
        ("worker/planted.py", "from stompy.cli.planted import x", "worker must not import stompy.cli"),
        ("compat/planted.py", "from stompy.broker import Broker", "compat must not import stompy.broker"),
        ("spark/planted.py", "from stompy.cli.planted import x", "spark must not import stompy.cli"),
        ("link/planted.py", "import importlib\nimportlib.import_module('stompy.cli.main')", "link must not import"),
        ("errors.py", "from stompy.frames.planted import x", "errors must not import stompy.frames"),
        ("deadline.py", for_types("from stompy.frames.planted import x"), "deadline must not import stompy.frames"),
        ("__init__.py", "from stompy.cli.main import main", "the public package must not import stompy.cli"),
        ("attic/planted.py", "x = 1", "attic has no row"),
    ],
)
def test_an_import_that_does_not_point_down_is_found(plant: Plant, file: str, source: str, named: str) -> None:
    (breach,) = plant(rules.folders_import_downwards, {file: source})
    assert named in breach


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("cli/planted.py", "from stompy.broker import Broker\nfrom stompy.connection.planted import x"),
        ("protocol/planted.py", "from stompy.frames.planted import x\nfrom stompy.errors import StompError"),
        ("broker/planted.py", "from stompy.deadline import Deadline\nfrom stompy.transport.planted import x"),
        ("types.py", for_types("from stompy.frames.frame import Frame")),
        ("__init__.py", "from stompy.connection.planted import x"),
    ],
)
def test_an_import_that_points_down_is_let_through(plant: Plant, file: str, source: str) -> None:
    assert plant(rules.folders_import_downwards, {file: source}) == []


@pytest.mark.parametrize("folder", ["frames", "protocol"])
@pytest.mark.parametrize("module", ["time", "threading", "socket", "ssl", "select", "queue", "asyncio"])
@pytest.mark.parametrize("form", ["import {}", "from {} import x", "import {} as y", "from stompy.world import {}"])
def test_an_impure_import_is_found(plant: Plant, folder: str, module: str, form: str) -> None:
    (breach,) = plant(rules.pure_folders_stay_pure, {f"{folder}/planted.py": form.format(module)})
    assert breach == f"stompy.{folder}.planted:1: pure code must not import {module}"


@pytest.mark.parametrize("wrap", [for_types, in_function])
def test_an_impure_import_is_found_where_it_hides(plant: Plant, wrap: Callable[[str], str]) -> None:
    (breach,) = plant(rules.pure_folders_stay_pure, {"frames/planted.py": wrap("import time")})
    assert "must not import time" in breach


def test_a_clock_that_comes_through_a_shared_module_is_found(plant: Plant) -> None:
    source = "from stompy.deadline import Deadline"
    (breach,) = plant(rules.pure_folders_stay_pure, {"protocol/planted.py": source})
    assert breach.endswith("pure code must not run time through stompy.deadline")


@pytest.mark.parametrize("wrap", [str, for_types, in_function])
@pytest.mark.parametrize("source", ["import time", "from queue import Queue", "import os.path", "import random as x"])
def test_a_part_of_the_world_that_does_not_come_through_the_seam_is_found(
    plant: Plant, wrap: Callable[[str], str], source: str
) -> None:
    (breach,) = plant(rules.the_world_comes_through_its_seam, {"link/planted.py": wrap(source)})
    assert breach.endswith("is to be imported from stompy.world")


def test_the_seam_itself_is_not_to_be_named(plant: Plant) -> None:
    (breach,) = plant(rules.the_world_comes_through_its_seam, {"link/planted.py": "import stompy.world as world"})
    assert "a name is to be imported" in breach
    assert plant(rules.the_world_comes_through_its_seam, {"link/planted.py": "from stompy.world import time"}) == []


def test_pure_code_may_name_a_shared_type(plant: Plant) -> None:
    source = for_types("from stompy.deadline import Deadline")
    assert plant(rules.pure_folders_stay_pure, {"protocol/planted.py": source}) == []


@pytest.mark.parametrize("wrap", [str, in_function])
def test_a_cycle_is_found(plant: Plant, wrap: Callable[[str], str]) -> None:
    (breach,) = plant(
        rules.no_import_cycles,
        {
            "frames/one.py": "from stompy.frames.two import x",
            "frames/two.py": "from stompy.frames import three",
            "frames/three.py": wrap("import stompy.frames.one as one"),
        },
    )
    walk = "stompy.frames.one -> stompy.frames.two -> stompy.frames.three -> stompy.frames.one"
    assert breach == f"import cycle: {walk}"


def test_a_module_behind_a_cycle_is_not_blamed_for_it(plant: Plant) -> None:
    (breach,) = plant(
        rules.no_import_cycles,
        {
            "frames/before.py": "from stompy.frames.one import x",
            "frames/one.py": "from stompy.frames.two import x",
            "frames/two.py": "from stompy.frames.one import x",
        },
    )
    assert "before" not in breach


def test_a_cycle_through_a_folder_is_found(plant: Plant) -> None:
    (breach,) = plant(
        rules.no_import_cycles,
        {
            "testing/__init__.py": "from stompy.testing.one import x",
            "testing/one.py": "from stompy.testing import x",
        },
    )
    assert "stompy.testing -> stompy.testing.one -> stompy.testing" in breach


def test_a_cycle_of_annotations_is_none_that_runs(plant: Plant) -> None:
    one, two = for_types("from stompy.frames.two import x"), "from stompy.frames.one import y"
    assert plant(rules.no_import_cycles, {"frames/one.py": one, "frames/two.py": two}) == []


@pytest.mark.parametrize("folder", ["cli", "frames"])
def test_a_cycle_of_annotations_is_counted(plant: Plant, folder: str) -> None:
    one, two = for_types(f"from stompy.{folder}.two import x"), f"from stompy.{folder}.one import y"
    (breach,) = plant(rules.circles_are_known, {f"{folder}/one.py": one, f"{folder}/two.py": two})
    assert f"stompy.{folder}.one, stompy.{folder}.two" in breach


@pytest.mark.parametrize("source", ["other._hidden", "self.part._hidden", "make()._hidden", "Other._hidden()"])
def test_a_reach_into_a_private_name_is_found(plant: Plant, source: str) -> None:
    (breach,) = plant(rules.private_names_stay_private, {"compat/planted.py": f"def f(self, other):\n    {source}"})
    assert breach.startswith("compat: 1 reaches")
    assert "stompy.compat.planted:2" in breach


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def f(self):\n        self._own = 1\n        return self._own",
        "class A:\n    __slots__ = ('_own',)\n    def f(self, other):\n        return other._own",
        "class A(B):\n    def f(self):\n        return super()._inherited()",
        "import argparse\ndef f(group: argparse._ArgumentGroup): ...",
        "def f(one):\n    return one.__class__",
    ],
)
def test_a_name_of_the_own_module_is_no_reach(plant: Plant, source: str) -> None:
    assert plant(rules.private_names_stay_private, {"compat/planted.py": source}) == []


def test_circles_and_reaches_are_no_more_in_all_than_agreed() -> None:
    assert sum(rules.CIRCLES.values()) <= rules.MOST_IN_CIRCLES
    assert sum(rules.REACHES.values()) <= rules.MOST_REACHES


def test_tests_reach_into_no_more_private_names_than_agreed() -> None:
    files = (TOP / "tests").rglob("*.py")
    reaches = [
        f"{file}:{node.lineno}" for file in files for node in rules.reaches_of(ast.parse(file.read_text("utf-8")))
    ]
    assert len(reaches) <= rules.MOST_REACHES_OF_TESTS, "\n".join(reaches)


def test_a_class_with_the_name_of_a_class_in_another_folder_is_found(plant: Plant) -> None:
    planted = {"frames/planted.py": "class Worker: ...", "compat/planted.py": "class Worker: ..."}
    (breach,) = plant(rules.public_classes_have_names_of_their_own, planted)
    assert breach == "Worker: a class in stompy.frames.planted and stompy.worker.worker"


@pytest.mark.parametrize("source", ["class _Worker: ...", "def f():\n    class Worker: ..."])
def test_a_private_class_may_have_any_name(plant: Plant, source: str) -> None:
    assert plant(rules.public_classes_have_names_of_their_own, {"frames/planted.py": source}) == []


@pytest.mark.parametrize(
    "source", ["from . import frame", "from .frame import Frame", "from ..errors import StompError"]
)
def test_a_relative_import_is_found(plant: Plant, source: str) -> None:
    (breach,) = plant(rules.imports_are_absolute, {"frames/planted.py": source})
    assert breach.startswith("stompy.frames.planted:1: relative import")


@pytest.mark.parametrize(
    "source",
    [
        "import stompy",
        "import stompy as s",
        "from stompy import connect",
        "from stompy import errors",
        "import stompy.errors",
    ],
)
def test_an_import_of_the_public_package_is_found(plant: Plant, source: str) -> None:
    (breach,) = plant(rules.nothing_inside_imports_the_public_package, {"cli/planted.py": source})
    assert breach.startswith("stompy.cli.planted:1: imports the public package")


@pytest.mark.parametrize(
    "source", ["import stompy.errors as errors", "from stompy.frames import frame", "import stompyx"]
)
def test_a_full_path_is_not_the_public_package(plant: Plant, source: str) -> None:
    assert plant(rules.nothing_inside_imports_the_public_package, {"cli/planted.py": source}) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("frames/__init__.py", "from stompy.frames.frame import Frame"),
        ("frames/__init__.py", "__all__ = ['Frame']"),
        ("frames/__init__.py", "import logging"),
        ("broker/__init__.py", "def start(): ..."),
        ("broker/__init__.py", "broker = Broker()"),
        ("__init__.py", "class Client: ..."),
        ("__init__.py", "if not TYPE_CHECKING:\n    def connect(): ..."),
        ("__init__.py", "if sys.platform:\n    from stompy.connection.planted import x"),
        ("frames/__init__.py", "if TYPE_CHECKING:\n    from stompy.frames.frame import Frame"),
        ("planted/__init__.py", "from __future__ import annotations"),
    ],
    ids=lambda value: value.replace("/", "."),
)
def test_an_init_file_with_more_than_its_docstring_is_found(plant: Plant, file: str, source: str) -> None:
    assert plant(rules.init_files_hold_a_docstring, {file: source})


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("attic/__init__.py", '"""A folder."""\n\nfrom __future__ import annotations'),
        ("__init__.py", "from stompy.connection.planted import x\n__all__ = ['x']"),
        ("__init__.py", "if TYPE_CHECKING:\n    from stompy.connection.planted import x\n_LAZY = {'x': 'y'}"),
        ("__init__.py", "if not TYPE_CHECKING:\n    __getattr__, __dir__ = late(__name__, {})"),
    ],
)
def test_an_init_file_as_it_should_be_is_let_through(plant: Plant, file: str, source: str) -> None:
    assert plant(rules.init_files_hold_a_docstring, {file: source}) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("transport/planted.py", "import requests"),
        ("connection/planted.py", in_function("from requests.adapters import HTTPAdapter")),
        ("connection/planted.py", "import pyspark"),
        ("worker/planted.py", in_function("import pyspark.sql")),
        ("connection/planted.py", for_types("from pyspark.sql import DataFrame")),
        ("connection/planted.py", "from typing_extensions import Unpack"),
        ("broker/planted.py", "import pytest"),
        ("protocol/planted.py", "import tenacity"),
        ("__init__.py", "import pyspark"),
    ],
)
def test_a_third_party_import_is_found(plant: Plant, file: str, source: str) -> None:
    (breach,) = plant(rules.third_party_imports_are_declared, {file: source})
    assert "must not import" in breach


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("connection/planted.py", "import tenacity"),
        ("spark/planted.py", "from pyspark.sql import DataFrame"),
        ("testing/planted.py", "import pytest"),
        ("link/planted.py", "import socket, ssl, xml.dom"),
    ],
)
def test_a_declared_import_is_let_through(plant: Plant, file: str, source: str) -> None:
    assert plant(rules.third_party_imports_are_declared, {file: source}) == []
