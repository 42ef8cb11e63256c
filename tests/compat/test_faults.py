"""What goes wrong with stomp.py works with stompy.compat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from tests.compat.conftest import RELEASES
from tests.compat.faults import FAULTS, faults_of

TOP = Path(__file__).parents[2]

Outcomes = dict[str, dict[str, str]]


def started(library: str, limits: tuple[str, str], names: list[str], folder: Path, path: Path) -> subprocess.Popen[str]:
    arguments = [library, *limits, *map(str, sorted(folder.glob("*.pem"))), ",".join(names)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.compat.faults", *arguments],
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run everything with each library, all at the same time; what goes wrong with stomp.py has three attempts."""
    folder = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "authority.pem"))
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    processes = {"stompy.compat": started("stompy.compat", ("20", "1"), list(FAULTS), folder, TOP)}
    for release, path in RELEASES.items():
        processes[release] = started("stomp", ("1.5", "3"), faults_of(release), folder, path)
    return {library: json.loads(process.communicate()[0]) for library, process in processes.items()}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("release", "fault"), [(release, fault) for release in RELEASES for fault in faults_of(release)]
)
def test_stomp_py_has_the_fault_and_stompy_compat_has_not(outcomes: Outcomes, release: str, fault: str) -> None:
    assert outcomes[release][fault] != "", "this release does not have this fault"
    assert outcomes["stompy.compat"][fault] == ""


def test_the_page_counts_the_faults_of_each_release() -> None:
    page = " ".join((TOP / "docs/reference/compat.md").read_text(encoding="utf-8").split())
    newest, older = len(faults_of("9.0.0")), len(faults_of("8.2.0"))
    assert f"runs {newest} programs that go wrong with 9.0.0, and {older} that go wrong with 8.2.0" in page
