#!/usr/bin/env python3
"""Installs each built distribution into a fresh environment and uses it there: `tools/check_installed.py dist/*`.

Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
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


def check(dist: Path) -> None:
    """Install a distribution and use what it installs, away from the source tree.

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


def main(argv: Sequence[str]) -> int:
    """Check every distribution that is named."""
    for name in argv:
        print(f"-- {Path(name).name}", flush=True)
        check(Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
