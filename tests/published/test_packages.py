"""The page about stompy.compat shows the packages that `make test-dropin` runs."""

from __future__ import annotations

from pathlib import Path

from tests.published.packages import PACKAGES, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compat.md"


def test_the_page_shows_the_packages() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_each_package_has_a_program() -> None:
    programs = {path.name for path in (Path(__file__).parent / "programs").glob("use_*.py")}
    assert programs == {package.program for package in PACKAGES}
