"""Published packages do on stompy.compat as on the stomp.py that they are installed with.

Each test runs a package's own tests, and a program of ours that uses it, twice: first with stomp.py, then with
stompy.compat in its place, each time on a new broker. `make test-dropin` installs the packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from stompy.testing.containers import broker_or_skip
from tests.published.packages import PACKAGES, Package, installed, sources
from tests.support.needs import each
from tests.support.options import chosen

pytestmark = [pytest.mark.needs("published"), pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).with_name("programs")
LIMIT = 280.0
STOMP_PY, DROP_IN = ("-m", "pytest"), ("-m", "stompy.compat", "-m", "pytest")
OPTIONS = ("-q", "--timeout=30", "-p", "timeout", "-p", "published_place", "-p", "no:cacheprovider")


class Place:
    """A broker, and where the packages are.

    Args:
        kind: of the broker.
        folder: for the reports.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder

    def run(self, package: Package, how: tuple[str, ...]) -> dict[str, str]:
        """Run everything of a package on a new broker; return how each test came out."""
        with broker_or_skip(self.kind, tls=package.tls) as broker:
            place = {
                "PUBLISHED_PORT": str(urlsplit(broker.url(tls=package.tls)).port),
                "PUBLISHED_CA": str(broker.ca_file) if package.tls else "",
            }
            embedded = self.kind != "activemq"
            left_out = ("-k", f"not ({package.beyond})") if embedded and package.beyond else ()
            # The program is copied, so that it is no part of this project's tests.
            program = str(shutil.copy(PROGRAMS / package.program, self._folder))
            found = self._pytest(package, how, place, (program, *left_out), self._folder)
            # What needs no broker is run beside one of the two.
            for tests, options in ((package.offline if embedded else (), ()), (package.online, left_out)):
                if tests:
                    unpacked = sources(Path(chosen.published), package)
                    found |= self._pytest(package, how, place, (*tests, *options), unpacked)
            return found

    def _pytest(
        self, package: Package, how: tuple[str, ...], place: dict[str, str], tests: tuple[str, ...], folder: Path
    ) -> dict[str, str]:
        report = self._folder / "report.xml"
        paths = (installed(Path(chosen.published).resolve(), package), PROGRAMS)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "STOMPY_"))},
            **place,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PUBLISHED_FOLDER": str(self._folder),
        }
        # `-P`: the sources of a package shall not be found instead of what is installed.
        command = [sys.executable, "-P", *how, *OPTIONS, f"--junitxml={report}", *tests]
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        # A test that hangs ends the run without a report.
        outcomes = dict(_outcomes(report)) if report.exists() else {}
        report.unlink(missing_ok=True)
        if set(outcomes.values()) != {"passed"}:
            print(ran.stdout, ran.stderr)
        return outcomes


def _outcomes(report: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(report).iter("testcase"):
        failed = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        yield f"{case.get('classname')}::{case.get('name')}", failed[0] if failed else "passed"


@pytest.fixture(params=each(("like-activemq", "activemq")))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_does_as_with_stomp_py(place: Place, package: Package) -> None:
    expected, found = place.run(package, STOMP_PY), place.run(package, DROP_IN)
    if any(outcome == "passed" != expected.get(test) for test, outcome in found.items()):
        # stomp.py now and then loses a race of its own, or waits forever, and has another try; stompy.compat has one.
        expected = place.run(package, STOMP_PY)
    differences = {test: (expected.get(test), found.get(test)) for test in expected | found}
    differences = {test: pair for test, pair in differences.items() if pair[0] != pair[1]}
    assert differences.keys() == {test for test, _ in package.differences}, differences
    passed = [test for test, outcome in expected.items() if outcome == found.get(test) == "passed"]
    assert len(passed) == package.passed[place.kind == "activemq"], expected
