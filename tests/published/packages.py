"""Published packages that are built on stomp.py; `python -m tests.published.packages FOLDER` installs them.

Each gets a folder of its own, with the release of stomp.py that it resolves to, as programs for 7.0, 8.2 and 9.0 cannot
share one. Those whose sources hold tests have these unpacked beside.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A published package.

    Attributes:
        name: on the package index.
        version: of it.
        beside: what its tests need, and the release of stomp.py where the package names none.
        offline: tests of its own that need no broker; paths in its sources.
        online: tests of its own that need one on port 61613.
        beyond: tests that no client passes on the embedded broker, as an expression of pytest's `-k`.
        tls: it speaks TLS only.
        passed: how many tests pass with both, on the embedded broker and on ActiveMQ.
        differences: tests, and why they come out otherwise with stompy.compat.
    """

    name: str
    version: str
    beside: tuple[str, ...] = ()
    offline: tuple[str, ...] = ()
    online: tuple[str, ...] = ()
    beyond: str = ""
    tls: bool = False
    passed: tuple[int, int] = (0, 0)
    differences: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def program(self) -> str:
        """The name of our program that uses the package, in `programs`."""
        return f"use_{self.name.replace('-', '_')}.py"


PACKAGES = (
    Package("amqstompclient", "2.0.3", passed=(10, 10)),
    Package(
        "bluesky-stomp",
        "0.2.0",
        ("numpy",),
        offline=("tests/unit_tests",),
        online=("tests/system_tests",),
        # ActiveMQ names a temporary queue to its own connection as that named it; the embedded broker does not.
        beyond="reply or receive or listener or deserialization or subscribe_before or reconnect",
        passed=(79, 16),
    ),
    Package("CMSMonitoring", "0.6.13", passed=(2, 2)),
    # ActiveMQ ignores headers for RabbitMQ, such as x-queue-name; the embedded broker refuses them.
    Package("django-stomp", "6.1.0", ("django<6",), beyond="published or move", passed=(1, 4)),
    Package(
        "gridappsd-python",
        "2026.9.0",
        ("GitPython", "python-on-whales"),
        offline=(
            "tests/test_goss.py",
            "tests/test_json.py",
            "tests/test_topics.py",
            "tests/test_difference_builder.py",
        ),
        passed=(28, 4),
    ),
    Package("intelmq", "3.5.0", ("stomp.py==7.0.0",), tls=True, passed=(2, 2)),
    Package("panda-common", "0.1.11", passed=(1, 1)),
    Package(
        "resilient-circuits", "51.0.9.1", ("mock",), offline=("tests/test_stomp_component.py",), tls=True, passed=(7, 1)
    ),
    Package("rucio-clients", "41.5.1", ("stomp.py==9.0.0",), passed=(3, 3)),
    Package("workflows", "3.3", offline=("tests",), passed=(7, 4)),
    Package(
        "zhmcclient",
        "1.26.0",
        ("requests-mock", "testfixtures", "importlib-metadata", "requests-toolbelt", "more-itertools"),
        offline=("tests/unit/zhmcclient/test_notification.py", "tests/unit/zhmcclient/test_auto_updater.py"),
        tls=True,
        differences=(
            ("use_zhmcclient::test_no_verification", "without `ca_certs`, its stomp.py 8.2 verifies nothing"),
        ),
        passed=(26, 3),
    ),
)


def table() -> str:
    """Return the rows of the page that says what was tried."""
    rows = []
    for package in PACKAGES:
        differs = "; ".join(why for _, why in package.differences) or "none"
        cells = (f"{package.name} {package.version}", *map(str, package.passed), differs)
        rows.append(f"| {' | '.join(cells)} |\n")
    return "".join(rows)


def installed(folder: Path, package: Package) -> Path:
    """Return the folder of a package that is to be on `sys.path`."""
    return folder / package.name / "installed"


def sources(folder: Path, package: Package) -> Path:
    """Return the folder with the unpacked sources of a package."""
    (found,) = (path for path in (folder / package.name / "sources").iterdir() if path.is_dir())
    return found


def install(folder: Path, package: Package) -> None:
    """Install a package, unless that was done already."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pinned, done = f"{package.name}=={package.version}", folder / package.name / "done"
    wanted = f"{pinned} {' '.join(package.beside)}"
    if done.exists() and done.read_text() == wanted:
        return
    shutil.rmtree(folder / package.name, ignore_errors=True)
    subprocess.run([*pip, "install", "--target", installed(folder, package), pinned, *package.beside], check=True)
    if package.offline or package.online:
        archives = folder / package.name / "sources"
        command = [*pip, "download", "--no-deps", "--no-binary", package.name, "--dest", str(archives), pinned]
        subprocess.run(command, check=True)
        for archive in archives.glob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(archives, filter="data")
    done.write_text(wanted)


if __name__ == "__main__":
    for each in PACKAGES:
        install(Path(sys.argv[1]), each)
