"""The tests mirror the folders of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent


def folders_without_tests(top: Path) -> list[str]:
    """Return the folders of the package for which tests/ has no folder of that name with a test in it."""
    package, tests = top / "stompy", top / "tests"
    folders = {path.parent.relative_to(package) for path in package.rglob("*.py") if path.name != "__init__.py"}
    return sorted(folder.as_posix() for folder in folders if not any((tests / folder).glob("test_*.py")))


def test_every_folder_has_its_tests() -> None:
    assert folders_without_tests(TOP) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("stompy/__init__.py", "stompy/errors.py", "stompy/link/reader.py", "tests/test_errors.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "tests/link").mkdir()
    return tmp_path


@pytest.mark.parametrize(("test", "found"), [("test_reader.py", []), ("test_all.py", []), ("conftest.py", ["link"])])
def test_a_folder_without_tests_is_found(tree: Path, test: str, found: list[str]) -> None:
    (tree / "tests/link" / test).touch()
    assert folders_without_tests(tree) == found
