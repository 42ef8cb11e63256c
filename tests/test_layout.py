"""The tests mirror the package: each module has its own file of tests, and no such file outlives its module."""

from __future__ import annotations

from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent

OF_THE_WHOLE = frozenset({"architecture", "conftest", "door", "examples", "layout", "metadata"})
"""Files right under tests/ that are about the package as a whole."""


def modules_without_tests(top: Path) -> list[str]:
    """Return the modules that lack tests/<folder>/test_<module>.py."""
    return sorted(_modules(top) - _tested(top))


def strays_among_tests(top: Path) -> list[str]:
    """Return the modules that tests name by their path, and that are not there.

    Folders of tests that the package does not have (scenarios, support, ...) are free.
    """
    folders = {path.relative_to(top / "stompy") for path in (top / "stompy").rglob("*") if path.is_dir()} | {Path()}
    strays = {module for module in _tested(top) - _modules(top) if Path(module).parent in folders}
    return sorted(strays - OF_THE_WHOLE)


def _modules(top: Path) -> set[str]:
    package = top / "stompy"
    paths = (path.relative_to(package) for path in package.rglob("*.py"))
    return {path.with_suffix("").as_posix() for path in paths if not path.name.startswith("__")}


def _tested(top: Path) -> set[str]:
    tests = top / "tests"
    paths = (path.relative_to(tests) for path in tests.rglob("test_*.py"))
    return {path.with_name(path.stem.removeprefix("test_")).as_posix() for path in paths}


def test_every_module_has_its_tests() -> None:
    assert modules_without_tests(TOP) == []


def test_every_file_of_tests_has_its_module() -> None:
    assert strays_among_tests(TOP) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "stompy/__init__.py",
        "stompy/errors.py",
        "stompy/link/__init__.py",
        "stompy/link/reader.py",
        "tests/test_errors.py",
        "tests/test_architecture.py",
        "tests/link/test_reader.py",
        "tests/scenarios/test_reconnect.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def test_a_mirrored_tree_is_let_through(tree: Path) -> None:
    assert (modules_without_tests(tree), strays_among_tests(tree)) == ([], [])


@pytest.mark.parametrize("module", ["types", "link/flow"])
def test_a_module_without_tests_is_found(tree: Path, module: str) -> None:
    (tree / f"stompy/{module}.py").touch()
    assert modules_without_tests(tree) == [module]


@pytest.mark.parametrize("module", ["errors", "link/reader"])
def test_a_file_of_tests_without_its_module_is_found(tree: Path, module: str) -> None:
    (tree / f"stompy/{module}.py").unlink()
    assert strays_among_tests(tree) == [module]
