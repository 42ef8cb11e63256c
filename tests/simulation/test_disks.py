"""Disks of a simulated world: files after a power failure, and programs that go on after faults of their disks."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from stompy.testing.network import Weather
from tests.simulation.disks import DiskFault, Disks, Kind
from tests.simulation.outboxes import OutboxProgram
from tests.simulation.plans import Plan, Producer
from tests.simulation.programs import run
from tests.simulation.spools import HAS_ARROW, SpoolProgram

BODY = b"x" * 2_000
KINDS: tuple[Kind, ...] = ("power", "EIO", "ENOSPC", "stall")


def left_of(folder: Path, random: Random, *, syncs: bool, names: bool) -> dict[str, bytes]:
    """Write a file under another name, as a spool does, over an older one; return what a power failure leaves."""
    disks = Disks(print)
    disk = disks.add(folder, (), random)
    folder.mkdir()

    def write(body: bytes, *, syncs: bool, names: bool) -> None:
        handle = disks("open", os.open, str(folder / "new"), os.O_CREAT | os.O_WRONLY, 0o600)
        disks("write", os.write, handle, body)
        if syncs:
            disks("fsync", int, handle)
        os.close(handle)
        disks("replace", os.replace, str(folder / "new"), str(folder / "file"))
        handle = disks("open", os.open, str(folder), os.O_RDONLY)
        if names:
            disks("fsync", int, handle)
        os.close(handle)

    write(b"older", syncs=True, names=True)
    write(BODY, syncs=syncs, names=names)
    disk.restore(disk.cut())
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("syncs", [True, False])
@pytest.mark.parametrize("names", [True, False])
def test_a_power_failure_leaves_what_was_synced_and_anything_of_the_rest(
    tmp_path: Path, *, syncs: bool, names: bool
) -> None:
    random = Random(1)
    found = [left_of(tmp_path / str(number), random, syncs=syncs, names=names) for number in range(100)]
    files = {left["file"] for left in found}
    assert (b"older" in files) is not names
    assert BODY in files
    parts = {file for file in files if file not in (b"older", BODY)}
    assert all(BODY.startswith(part) for part in parts)
    assert (parts > {b""}) is not syncs
    assert any("new" in left for left in found) is not names


@pytest.mark.parametrize("at", [3, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_an_outbox_goes_on_after_what_happens_to_its_disk(kind: Kind, at: int) -> None:
    faults = (DiskFault(kind, at, 2.0), DiskFault(kind, 0, 0.1, "fsync outbox-lock"))
    outbox = OutboxProgram("/queue/a", (4, 3), pause=0.2, batch=2, kills=(), disk=faults)
    plan = Plan(1, None, Weather(), (), (), restarts=(), rate=0.01, outboxes=(outbox,))
    result = run(plan)
    assert result.breaches == []
    assert any("the power of o0 fails" in line for line in result.trace) is (kind == "power")
    assert run(plan).trace == result.trace


@pytest.mark.skipif(not HAS_ARROW, reason="pyarrow is missing")
@pytest.mark.parametrize("at", [10, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_spools_go_on_after_what_happens_to_their_disk(kind: Kind, at: int) -> None:
    faults = (DiskFault(kind, at, 2.0), DiskFault(kind, 0, 0.1, "replace seg-"))
    spool = SpoolProgram("/queue/a", (1, 1), receivers=2, prefetch=3, most=2, kills=(), disk=faults)
    producer = Producer(
        "/queue/a", (("confirm", "pause", "pause", "transaction"), ("async", "pause", "batch")), False, None
    )
    plan = Plan(1, None, Weather(), (producer,), (), restarts=(), rate=0.01, spools=(spool,))
    result = run(plan)
    assert result.breaches == []
    assert any("the power of s00 s01 r0 fails" in line for line in result.trace) is (kind == "power")
    assert run(plan).trace == result.trace
