"""The programs in examples/ run as they are, without arguments and against a broker of one's own.

Those that take an address, and go on until they are stopped, have tests in `test_ten.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stompy.broker import Broker
from tests.examples.test_ten import TEN

TOP = Path(__file__).parents[2]
FILES = sorted(path for path in (TOP / "examples").glob("*.py") if not path.name.startswith("test_"))
PROGRAMS = [path for path in FILES if path.stem not in TEN]

SHOWN = {
    "flights.py": "EV           781    17.0",
    "hello.py": "received: hello",
    "listener.py": "disconnected: by us",
    "order_service.py": "booked: order 3 at attempt 2",
    "outbox.py": "confirmed by the broker: 10",
    "receipts.py": "confirmed by the broker: 1000",
    "transaction.py": "received: SOME TEXT",
    "worker_by_iteration.py": "put aside: order 2 has a negative amount",
}
"""A line that each prints."""


def run(program: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(program), *argv],
        env={**os.environ, "PYTHONPATH": str(TOP), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )


def test_each_program_has_its_line() -> None:
    assert [program.name for program in PROGRAMS] == sorted(SHOWN)


@pytest.mark.broker
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_runs_without_arguments(program: Path) -> None:
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert SHOWN[program.name] in done.stdout.splitlines()


@pytest.mark.broker
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_takes_the_address_of_a_broker(program: Path) -> None:
    with Broker() as broker:
        done = run(program, broker.url)
        assert broker.stats().messages_in > 0
    assert (done.returncode, done.stderr) == (0, "")
    assert SHOWN[program.name] in done.stdout.splitlines()
