"""Run the command in this process, or as one of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stompy.broker import Broker
from stompy.cli.main import main
from stompy.dialects.brokers import dialect_named

TOP = Path(__file__).parents[2]
FLIGHTS = TOP / "examples" / "data" / "flights.ndjson"


@dataclass(frozen=True)
class Result:
    """How the command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def error(self) -> str:
        """The one line on standard error, which must be an error."""
        (line,) = self.err.splitlines()
        assert line.startswith("stompy: error: ")
        return line.removeprefix("stompy: error: ")


Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("STOMPY_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def peer_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the embedded broker taken for an ActiveMQ, which has a header for everything."""
    monkeypatch.setattr("stompy.connection.config.dialect_of", lambda server: dialect_named("activemq"))


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Return what sets standard input."""

    def given(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return given


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Return what runs the command in this process."""

    def run_main(*argv: str) -> Result:
        capsysbinary.readouterr()
        code = main(argv)
        out, err = capsysbinary.readouterr()
        return Result(code, out, err.decode())

    return run_main


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that finds the package."""
    return {**os.environ, "PYTHONPATH": str(TOP), **more}


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts the command as a process; the processes are ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start_command(
        *argv: str, env: dict[str, str] | None = None, module: str = "stompy", **settings: Any
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            env=environment(**(env or {})),
            stdout=settings.pop("stdout", subprocess.PIPE),
            stderr=settings.pop("stderr", subprocess.PIPE),
            **settings,
        )
        processes.append(process)
        return process

    yield start_command
    for process in processes:
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait(10)
