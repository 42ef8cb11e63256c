"""Processes of a program, and pytest, find stompy.compat too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPAWNING = """
import multiprocessing, sys
import stompy.compat
stompy.compat.install()

def child():
    import stomp.connect
    assert stomp.__name__ == "stompy.compat" and stomp.connect.__name__ == "stompy.compat.connect"

if __name__ == "__main__":
    stomp = None
    for method in multiprocessing.get_all_start_methods():
        process = multiprocessing.get_context(method).Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0, method
"""

GUARDED = SPAWNING.replace("stompy.compat.install()\n", "").replace(
    "    stomp = None\n", "    stompy.compat.install()\n"
)

STARTING = """
import subprocess, sys
find = "import stomp.connect; print(stomp.connect.__name__)"
print(subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=True).stdout)
"""

TEST = """
import stomp.listener

def test_it():
    assert stomp.__name__ == "stompy.compat"
"""


@pytest.mark.parametrize("text", [SPAWNING, GUARDED], ids=["at the top", "guarded"])
def test_children_of_multiprocessing_find_the_drop_in(tmp_path: Path, text: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(text)
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_children_of_a_program_find_the_drop_in(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STARTING)
    ran = subprocess.run([sys.executable, "-m", "stompy.compat", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "stompy.compat.connect"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 brought -P")
def test_a_safe_path_keeps_what_the_caller_puts_first(tmp_path: Path) -> None:
    """With `-P`, Python puts no folder of the program before those of PYTHONPATH."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "helper.py").touch()
    program = tmp_path / "program.py"
    program.write_text("import helper, stomp\n")
    command = [sys.executable, "-P", "-m", "stompy.compat", str(program)]
    path = os.pathsep.join([str(tmp_path / "first"), os.getcwd()])
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


COMMANDS = (("-m", "stompy.compat", "-m", "pytest"), ("-m", "pytest", "-p", "stompy.compat.plugin"))


@pytest.mark.parametrize("how", COMMANDS)
@pytest.mark.parametrize("processes", [0, 1])
def test_pytest_runs_with_warnings_as_errors(tmp_path: Path, how: tuple[str, ...], processes: int) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, *how, "-q", "-n", str(processes), "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
