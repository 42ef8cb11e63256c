"""The check of the built distributions notices what is stray and what lacks."""

from __future__ import annotations

import io
import tarfile
import zipfile
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
