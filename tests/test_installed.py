"""Another distribution also installs a package `stompy`: importing says so, whichever was installed later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OURS = Path(__file__).parents[1] / "stompy"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder like `site-packages`, with this package in it."""
    package = tmp_path / "stompy"
    package.mkdir()
    for entry in OURS.iterdir():
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    (tmp_path / "stompy_client-0.1.0.dist-info").mkdir()
    return tmp_path


def imported(site: Path, statement: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {statement}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=site)


def test_alone_it_imports_silently(site: Path) -> None:
    done = imported(site, "import stompy")
    assert (done.returncode, done.stderr) == (0, "")


def test_beside_the_other_one_importing_warns_and_names_both(site: Path) -> None:
    (site / "stompy-0.3.1.dist-info").mkdir()
    done = imported(site, "import stompy; stompy.StompError")
    assert done.returncode == 0
    assert "RuntimeWarning: the distributions stompy 0.3.1 and stompy-client both install the package" in done.stderr


@pytest.mark.parametrize("module", ["broker", "errors", "worker.worker", "cli.main"])
def test_under_the_other_ones_package_importing_fails_in_words(site: Path, module: str) -> None:
    (site / "stompy" / "__init__.py").unlink()
    (site / "stompy" / "__init__.py").write_text("")
    done = imported(site, f"import stompy.{module}")
    assert done.returncode == 1
    assert "belongs to another distribution than stompy-client; one environment can hold only one" in done.stderr
