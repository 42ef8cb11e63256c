"""The command line against each broker: a real file through a queue, as two processes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.candidates import LOGIN, Candidate

pytestmark = [pytest.mark.broker, pytest.mark.once, pytest.mark.scenario("the command line")]

TOP = Path(__file__).parents[2]
FLIGHTS = TOP / "examples" / "data" / "flights.ndjson"


def stompy_command(candidate: Candidate, *argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "stompy", *argv, "--login", LOGIN],
        env={**os.environ, "PYTHONPATH": str(TOP), **candidate.environment},
        capture_output=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("receipt", [[], ["--confirm"]])
def test_a_real_file_goes_through_a_queue_byte_for_byte_and_in_order(
    receipt: list[str], candidate: Candidate, queue: str
) -> None:
    sent = stompy_command(candidate, "send", queue, "--lines", str(FLIGHTS), *receipt)
    assert (sent.returncode, sent.stderr.decode()) == (0, f"stompy: sent 5000 messages to {queue}\n")
    came = stompy_command(candidate, "subscribe", queue, "--count", "5000", "--timeout", "20", "--format", "json")
    assert (came.returncode, came.stderr) == (0, b"")
    records = [json.loads(line) for line in came.stdout.splitlines()]
    bodies = [one["body"].encode() if "body" in one else base64.b64decode(one["body_base64"]) for one in records]
    assert b"".join(body + b"\n" for body in bodies) == FLIGHTS.read_bytes()


def test_a_broker_can_be_asked_what_it_is(candidate: Candidate, queue: str) -> None:
    done = stompy_command(candidate, "ping", "--destination", queue)
    assert done.returncode == 0
    assert b"message in" in done.stdout
