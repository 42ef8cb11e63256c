"""The check of the built distributions notices what is stray and what lacks."""

from __future__ import annotations

import io
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tools import check_dists

FILES = {"stompy/__init__.py", "stompy/py.typed", "tests/test_a.py", "LICENSE", "README.md", "CHANGELOG.md", "Makefile"}
OF_THE_WHEEL = {"stompy/__init__.py", "stompy/py.typed"}


def wheel(tmp_path: Path, names: set[str]) -> Path:
    path = tmp_path / "stompy_client-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        for name in (*names, "stompy_client-1.dist-info/METADATA"):
            made.writestr(name, "")
    return path


def sdist(tmp_path: Path, names: set[str]) -> Path:
    path = tmp_path / "stompy_client-1.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name in (*names, "PKG-INFO", "setup.cfg", "stompy_client.egg-info/SOURCES.txt"):
            made.addfile(tarfile.TarInfo(f"stompy_client-1/{name}"), io.BytesIO())
    return path


def test_whole_distributions_are_let_through(tmp_path: Path) -> None:
    assert check_dists.check_wheel(wheel(tmp_path, OF_THE_WHEEL), FILES) == []
    assert check_dists.check_sdist(sdist(tmp_path, FILES), FILES) == []


@pytest.mark.parametrize(
    "stray", [".env", "stompy/secrets.json", "tests/conftest.py", "stompy/__pycache__/a.pyc", "build/lib/stompy/a.py"]
)
def test_a_stray_file_is_named(stray: str, tmp_path: Path) -> None:
    (of_wheel,) = check_dists.check_wheel(wheel(tmp_path, {*OF_THE_WHEEL, stray}), FILES)
    assert of_wheel.endswith(f"stray file {stray}")
    (of_sdist,) = check_dists.check_sdist(sdist(tmp_path, {*FILES, stray}), FILES)
    assert of_sdist.endswith(f"stray file {stray}")


@pytest.mark.parametrize("lacking", sorted(OF_THE_WHEEL))
def test_a_file_that_lacks_is_named(lacking: str, tmp_path: Path) -> None:
    (of_wheel,) = check_dists.check_wheel(wheel(tmp_path, OF_THE_WHEEL - {lacking}), FILES)
    assert of_wheel.endswith(f"lacks {lacking}")
    (of_sdist,) = check_dists.check_sdist(sdist(tmp_path, FILES - {lacking}), FILES)
    assert of_sdist.endswith(f"lacks {lacking}")


def test_one_wheel_and_one_sdist_are_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_dists.main([str(tmp_path)]) == 1
    assert "0 wheels, 0 sdists" in capsys.readouterr().err
    assert check_dists.main([]) == 2


def described(description: str = "[a](https://example.org/a) and [b](#b)", **fields: str) -> Message:
    metadata = Message()
    for name, value in {"Name": "stompy-client", **fields}.items():
        metadata[name.replace("_", "-")] = value
    metadata.set_payload(description)
    return metadata


def test_metadata_that_can_be_published_is_let_through() -> None:
    assert check_dists.check_metadata(described()) == []


@pytest.mark.parametrize("value", ["", ", "])
def test_an_empty_field_is_named(value: str) -> None:
    assert check_dists.check_metadata(described(Author=value)) == ["the field Author is empty"]


@pytest.mark.parametrize("link", ["docs/index.md", "LICENSE", "../a", "/a"])
def test_a_link_that_a_package_index_cannot_follow_is_named(link: str) -> None:
    (problem,) = check_dists.check_metadata(described(f"[a]({link})"))
    assert link in problem


def test_what_a_release_has_to_fill_in_is_named() -> None:
    assert check_dists.missing_at_a_release(described()) == ["AUTHOR", "AUTHOR_EMAIL", "URL"]
    assert check_dists.missing_at_a_release(described(Author="A", Author_email="a@b", Project_URL="Source, x")) == []


def test_a_version_is_released_when_the_changelog_has_it() -> None:
    changelog = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2030-01-01\n"
    assert check_dists.is_released("1.2.0", changelog)
    assert not check_dists.is_released("1.3.0", changelog)
