#!/usr/bin/env python3
"""Installs each built distribution into a fresh environment, uses it there, and runs tests of the sdist on it.

    tools/check_installed.py dist/*

The sdist, which has the tests, must be among them. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

PROGRAM = """
import sys
import stompy
from stompy.broker import Broker

assert sys.prefix in stompy.__file__, stompy.__file__
missing = [name for name in stompy.__all__ if not hasattr(stompy, name)]
assert not missing, missing
with Broker() as broker, stompy.connect(broker.url) as connection:
    connection.send("/queue/installed", "hello", confirm=True)
print("imported and used:", stompy.__version__, "from", stompy.__file__)
"""

INSTALLED = ("tests/broker/console", "tests/testing/test_plugin.py")
"""The tests that run on each: of files of the package that are no Python, and of its entry points."""

ON_WHEEL = ("tests/protocol", "tests/transport")
"""And on the wheel, which was made of the sdist: sessions without a socket, and sockets."""


def unpack_tests(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist without its package, so that its tests import the installed one, and return where it is."""
    with tarfile.open(sdist) as opened:
        opened.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    shutil.rmtree(tree / "stompy")
    return tree


def check(dist: Path, tree: Path) -> None:
    """Install a distribution, use what it installs, away from the source tree, and run the tests of `tree` on it.

    Raises:
        subprocess.CalledProcessError: something did not work.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "venv")
        venv.create(home, with_pip=True)
        python, command = home / "bin" / "python", home / "bin" / "stompy"
        pip: list[Path | str] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, dist.resolve()], check=True, cwd=folder)
        subprocess.run([python, "-W", "error", "-c", PROGRAM], check=True, cwd=folder)
        subprocess.run([command, "--version"], check=True, cwd=folder)
        subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True, cwd=folder)
        subprocess.run([*pip, dist.resolve(), "--group", "test"], check=True, cwd=tree)
        pytest: list[Path | str] = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-n",
            "2",
            "-m",
            "not broker",
            *INSTALLED,
            *(ON_WHEEL if dist.suffix == ".whl" else ()),
        ]
        environment = {**os.environ, "STOMPY_BROKERS_FROM": "none"}
        subprocess.run(pytest, check=True, cwd=tree, env=environment)


def main(argv: Sequence[str]) -> int:
    """Check every distribution that is named."""
    (sdist,) = [Path(name) for name in argv if name.endswith(".tar.gz")]
    with tempfile.TemporaryDirectory() as folder:
        tree = unpack_tests(sdist, Path(folder))
        for name in argv:
            print(f"-- {Path(name).name}", flush=True)
            check(Path(name), tree)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
