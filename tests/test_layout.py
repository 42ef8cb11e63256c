"""The tests mirror the folders of the package, no file is too long, and the package has no more code than agreed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.code_lines import code_lines

TOP = Path(__file__).parent.parent
FOLDERS = ("stompy", "tests", "tools", "benchmarks", "examples", "docs")
MAX_LINES = 800
MOST_CODE, MOST_FILES = 31_961, 199
"""Lines without blanks, comments and docstrings, and files, of the package; smaller numbers are always welcome.

About 1,250 of them are the world of `stompy.testing.simulate`, most of which was in tests/simulation before.
"""


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


def long_files(top: Path) -> list[str]:
    """Return the Python files of more than `MAX_LINES`."""
    files = (file for folder in FOLDERS for file in (top / folder).rglob("*.py*") if file.suffix in {".py", ".pyi"})
    return sorted(
        file.relative_to(top).as_posix()
        for file in files
        if len(file.read_text(encoding="utf-8").splitlines()) > MAX_LINES
    )


def test_no_file_is_too_long() -> None:
    assert long_files(TOP) == []


@pytest.mark.parametrize(("lines", "found"), [(MAX_LINES, []), (MAX_LINES + 1, ["tests/link/test_all.py"])])
def test_a_long_file_is_found(tree: Path, lines: int, found: list[str]) -> None:
    (tree / "tests/link/test_all.py").write_text("\n" * lines)
    assert long_files(tree) == found


def size_of(package: Path) -> tuple[int, int]:
    """Return the lines of code of a package, and its files."""
    sources = [file.read_text(encoding="utf-8") for file in package.rglob("*.py")]
    return sum(map(code_lines, sources)), len(sources)


def test_the_package_has_no_more_code_than_agreed() -> None:
    code, files = size_of(TOP / "stompy")
    assert (code <= MOST_CODE, files <= MOST_FILES) == (True, True), f"{code} lines of code in {files} files"


def test_code_is_counted_without_blanks_comments_and_docstrings(tree: Path) -> None:
    (tree / "stompy/link/reader.py").write_text('"""Reads."""\n\n# why\nx = (\n    1\n)\n')
    assert size_of(tree / "stompy") == (3, 3)
