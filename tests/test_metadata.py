"""What the distribution says of itself is what the source says."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import stompy

TOP = Path(__file__).parent.parent


@pytest.mark.needs("installation")
def test_the_installed_version_is_that_of_the_source() -> None:
    assert version("stompy-client") == stompy.__version__


@pytest.mark.needs("installation")
def test_the_package_is_found_beside_a_folder_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "stompy").mkdir()  # a checkout
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import stompy; print(stompy.connect.__name__)"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("connect\n", "")


def test_tenacity_is_the_only_requirement_outside_the_extras() -> None:
    metadata = configparser.ConfigParser()
    metadata.read(TOP / "setup.cfg", encoding="utf-8")
    (requirement,) = metadata["options"]["install_requires"].split()
    assert requirement.startswith("tenacity>=")


def test_only_users_have_extras() -> None:
    metadata = configparser.ConfigParser()
    metadata.read(TOP / "setup.cfg", encoding="utf-8")
    extras = {"otel", "prometheus", "testing", "websocket", "top", "spool", "spark"}
    assert set(metadata["options.extras_require"]) == extras
    install = (TOP / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `pip install 'stompy-client\[(\w+)\]'`", install, re.MULTILINE)) == extras


def test_the_package_is_marked_as_typed() -> None:
    assert (TOP / "stompy" / "py.typed").is_file()


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert "## [Unreleased]" in (TOP / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_hosted_checks_call_targets_that_there_are_on_every_supported_python() -> None:
    workflow = (TOP / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = set(re.findall(r"- run: make ([\w-]+)", workflow))
    assert called
    assert called <= targets
    metadata = configparser.ConfigParser(interpolation=None)
    metadata.read(TOP / "setup.cfg", encoding="utf-8")
    supported = re.findall(r"Python :: (3\.\d+)", metadata["metadata"]["classifiers"])
    (matrix,) = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r"3\.\d+", matrix) == supported
