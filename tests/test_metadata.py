"""What the distribution says of itself is what the source says."""

from __future__ import annotations

import configparser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import stompy

TOP = Path(__file__).parent.parent


def test_the_installed_version_is_that_of_the_source() -> None:
    try:
        installed = version("stompy-client")
    except PackageNotFoundError:
        pytest.skip("the tests run from the source tree, without an installation")
    assert installed == stompy.__version__


def test_tenacity_is_the_only_requirement_outside_the_extras() -> None:
    metadata = configparser.ConfigParser()
    metadata.read(TOP / "setup.cfg", encoding="utf-8")
    (requirement,) = metadata["options"]["install_requires"].split()
    assert requirement.startswith("tenacity>=")


def test_the_package_is_marked_as_typed() -> None:
    assert (TOP / "stompy" / "py.typed").is_file()


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert "## [Unreleased]" in (TOP / "CHANGELOG.md").read_text(encoding="utf-8")
