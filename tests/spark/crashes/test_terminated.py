"""SIGTERM at every step of a group, by which Spark ends a source's process: it disconnects, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.spark.option_tables import stream_options
from stompy.spark.source.engine import StreamEngine
from tests.spark.receiver.helpers import QUEUE, bodies, eventually, fill

TOP = Path(__file__).parents[3]
GIVEN = {"destination": QUEUE, "prefetch": "20", "dedupheader": "n", "locktimeout": "20"}

# What Spark's Python does for a source: asks over and over how far it is, on the main thread.
VICTIM = textwrap.dedent(
    """
    import os, signal, sys, time
    from stompy.connection.message import Message
    from stompy.spark.source.engine import StreamEngine
    from stompy.spark.datasource import end_on_sigterm
    from stompy.spark.option_tables import stream_options
    from stompy.spark.spool.claims import Claim
    from stompy.spark.spool.writer import SpoolWriter

    url, folder, step, given = sys.argv[1:]
    armed = []

    def term(*_):
        if armed:
            armed.clear()
            # Twice, as Spark does it.
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    def wrap(owner, name, *, before=None, after=None):
        real = getattr(owner, name)

        def wrapped(*arguments, **more):
            if before:
                before(*arguments)
            result = real(*arguments, **more)
            if after:
                after(*arguments)
            return result

        setattr(owner, name, wrapped)

    def of_folder(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            term()

    def second(writer, *_):
        if writer.next >= 10 and not hasattr(writer, "killed"):
            armed.append(step)
            writer.__dict__["killed"] = True

    wrap(SpoolWriter, "store", before=second)
    if step == "W1 in the write":
        wrap(os, "write", after=term)
    elif step == "W1 before the sync":
        wrap(os, "fsync", before=term)
    elif step == "W2 before the rename":
        wrap(os, "replace", before=term)
    elif step == "W3 before the sync of the folder":
        wrap(os, "fsync", before=of_folder)
    elif step == "W4 before the fence":
        wrap(Claim, "check", before=term)
    elif step == "W4 behind the fence":
        wrap(Claim, "check", after=term)
    elif step == "W5 before the ack":
        wrap(Message, "ack_async", before=term)
    elif step == "W5 behind the ack":
        wrap(Message, "ack_async", after=term)
    elif step == "W6 at the receipt":
        wrap(SpoolWriter, "confirm", before=term)

    end_on_sigterm()
    options = dict(pair.split("=") for pair in given.split(","))
    engine = StreamEngine(stream_options({"url": url, "spooldir": folder, **options}))
    try:
        start = engine.initial()
        while True:
            start = engine.latest(start)
            time.sleep(0.01)
    finally:
        engine.stop()
    """
)

STEPS = (
    "W1 in the write",
    "W1 before the sync",
    "W2 before the rename",
    "W3 before the sync of the folder",
    "W4 before the fence",
    "W4 behind the fence",
    "W5 before the ack",
    "W5 behind the ack",
    "W6 at the receipt",
)


@pytest.mark.hard_case("T28")
@pytest.mark.parametrize("step", STEPS)
def test_a_source_that_is_terminated_at_a_step_loses_nothing_and_takes_nothing_twice(tmp_path: Path, step: str) -> None:
    given = ",".join(f"{name}={value}" for name, value in GIVEN.items())
    with Broker() as broker:
        fill(broker.url, range(100))
        done = subprocess.run(
            [sys.executable, "-c", VICTIM, broker.url, str(tmp_path / "spool"), step, given],
            env={**os.environ, "PYTHONPATH": str(TOP)}, capture_output=True, timeout=50, check=False,
        )  # fmt: skip
        assert done.returncode == 128 + signal.SIGTERM, done.stderr.decode()
        eventually(lambda: broker.stats().sessions == 0)
        held = bodies(tmp_path)
        assert broker.depth(QUEUE) >= 100 - len(held), "only what is in the spool was acknowledged"
        engine = StreamEngine(stream_options({"url": broker.url, "spooldir": str(tmp_path / "spool"), **GIVEN}))
        try:
            start = engine.initial()
            eventually(lambda: engine.latest(start)["next"] >= 100 and broker.depth(QUEUE) == 0)
        finally:
            engine.stop()
        assert bodies(tmp_path) == list(range(100))
