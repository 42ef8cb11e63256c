"""`stompy worker`: what it finds, and what it says about it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stompy.broker import Broker
from tests.cli.conftest import Run

TOP = Path(__file__).parents[2]


def test_check_shows_the_tasks(run: Run) -> None:
    result = run("worker", "tests.worker.programs:slow", "--check")
    assert (result.code, result.out) == (0, b"slow: /queue/a\n")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("tests.worker.programs", "does not name a worker"),
        ("tests.worker.programs:slwo", "tests.worker.programs has no 'slwo'; did you mean 'slow'?"),
        ("tests.worker.nothing:slow", "cannot be imported: No module named 'tests.worker.nothing'"),
        ("tests.worker.programs:note", "is a function, not a stompy.Worker"),
    ],
)
def test_what_is_no_worker_is_refused(run: Run, target: str, message: str) -> None:
    result = run("worker", target)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert message in result.err


def test_a_wrong_number_is_refused(run: Run) -> None:
    assert run("worker", "a:b", "--concurrency", "0").code == 2


def test_reload_starts_again_when_a_file_changes(tmp_path: Path, broker: Broker) -> None:
    module = tmp_path / "mod.py"
    text = "import stompy\nworker = stompy.Worker(name='{}')\nworker.add(print, '/queue/a')\n"
    module.write_text(text.format("first"))
    process = subprocess.Popen(
        [sys.executable, "-m", "stompy", "worker", "mod:worker", "--reload"],
        cwd=tmp_path,
        env={**os.environ, "STOMPY_URL": broker.url, "PYTHONPATH": str(TOP)},
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        while b"first: started" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.01)  # so that the time of the file differs
        module.write_text(text.format("second"))
        while b"second: started" not in process.stderr.readline():
            assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0
