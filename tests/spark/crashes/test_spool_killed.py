"""Kill -9 at every step of a group, a frozen predecessor, a disk that is full: what may be acknowledged is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stompy.errors import SpoolBusyError, SpoolFullError
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.files import write_mark
from stompy.spark.spool.writer import SpoolWriter
from tests.spark.spool.builders import ids_in, known_ids, record, records, seal, settle, spool_files, spool_writer
from tests.support.seed import chance

TOP = Path(__file__).parent.parent.parent.parent

# Seals groups of five and says which may be acknowledged; dies at a step of the third group.
VICTIM = textwrap.dedent(
    """
    import os, signal, sys
    from stompy.spark.spool.claims import Claim
    from stompy.spark.spool.files import Files
    from tests.spark.spool.builders import known_ids, records, seal, spool_writer

    path, step = sys.argv[1:]
    calls = {"armed": False, "fsync": 0}

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def wrap(owner, name, *, before=None, after=None):
        real = getattr(owner, name)

        def wrapped(*arguments):
            if calls["armed"] and before:
                before(*arguments)
            result = real(*arguments)
            if calls["armed"] and after:
                after(*arguments)
            return result

        setattr(owner, name, wrapped)

    def torn(handle, data):
        write(handle, data[:100])
        die()

    def of_folder(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            die()

    write = os.write
    if step == "W1 in the write":
        wrap(os, "write", before=torn)
    elif step == "W1 before the sync":
        wrap(os, "fsync", before=lambda handle: die())
    elif step == "W2 before the rename":
        wrap(os, "replace", before=lambda *_: die())
    elif step == "W3 before the sync of the folder":
        wrap(os, "fsync", before=of_folder)
    elif step == "W4 before the fence":
        wrap(Claim, "check", before=lambda *_: die())
    elif step == "W4 after the fence":
        wrap(Claim, "check", after=lambda *_: die())

    writer = spool_writer(Files(path))
    os.write(1, b"begun\\n")
    while True:
        at = writer.next
        calls["armed"] = at % 15 == 10
        delivery = seal(writer, records(range(at, at + 5)))
        calls["armed"] = False
        if step == "W5 after the ack" and at % 15 == 10:
            os.write(1, f"{writer.next}\\n".encode())
            die()
        os.write(1, f"{writer.next}\\n".encode())
        if step == "W6 after the receipt":
            writer.confirm(delivery)
            if at % 15 == 10:
                die()
    """
)

STEPS = (
    "W1 in the write",
    "W1 before the sync",
    "W2 before the rename",
    "W3 before the sync of the folder",
    "W4 before the fence",
    "W4 after the fence",
    "W5 after the ack",
    "W6 after the receipt",
)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(TOP)}


def live_and_die(path: Path, step: str) -> int:
    """Run a victim to its death and return up to where it might have acknowledged."""
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(path), step], capture_output=True, env=environment(), timeout=50, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    printed = done.stdout.decode().split()
    assert printed[0] == "begun"
    return int(printed[-1]) if len(printed) > 1 else 0


@pytest.mark.hard_case("T1", "T2", "T3")
@pytest.mark.parametrize("step", STEPS)
def test_killed_twice_at_a_step_nothing_is_lost_or_twice_and_what_is_unsettled_is_suspect(
    tmp_path: Path, step: str
) -> None:
    path = tmp_path / "spool"
    files = spool_files(path)
    acknowledged = 0
    for _ in range(2):
        acknowledged = max(acknowledged, live_and_die(path, step))
        writer = spool_writer(files)
        held = writer.next
        # Between the deaths everything is processed and removed.
        write_mark(files, "low", held)
        suspicious = known_ids(writer)
        writer.close()
        assert held >= acknowledged
        assert held % 5 == 0
        # All that was durable and not known to be settled may come again.
        assert suspicious >= (5 if held > acknowledged else 0)
    writer = spool_writer(files)
    seal(writer, records(range(last := writer.next, last + 5)))
    last = writer.next
    writer.close()
    assert ids_in(files) == [f"id-{number}" for number in range(last - 5, last)]
    assert [name for name in os.listdir(files.path("")) if name.startswith(".tmp")] == []


@pytest.mark.hard_case("T10")
def test_of_two_processes_the_second_is_refused_and_gets_the_spool_when_the_first_is_killed(tmp_path: Path) -> None:
    files = spool_files(tmp_path / "spool")
    with running(tmp_path / "spool") as first:
        with pytest.raises(SpoolBusyError, match=f"process {first.pid} on "):
            spool_writer(files)
        first.kill()
        first.wait()
    writer = spool_writer(files, patience=ClaimTimeouts(wait=10.0))
    assert writer.next > 0
    writer.close()


@pytest.mark.hard_case("T11")
def test_a_frozen_predecessor_never_acknowledges_after_its_successor_has_begun(tmp_path: Path) -> None:
    files = spool_files(tmp_path / "spool")
    with running(tmp_path / "spool") as zombie:
        os.kill(zombie.pid, signal.SIGSTOP)
        successor = spool_writer(files, patience=ClaimTimeouts(wait=30.0, frozen=0.5))
        begun_at = successor.next
        seal(successor, records(range(begun_at, begun_at + 3)))
        os.kill(zombie.pid, signal.SIGCONT)
        printed, words = zombie.communicate(timeout=30)
        assert "SpoolFencedError" in words.decode()
        acknowledged = [int(one) for one in printed.decode().split() if one.isdigit()]
        assert max(acknowledged, default=0) <= begun_at
        seal(successor, records(range(begun_at + 3, begun_at + 6)))
        successor.close()
    assert ids_in(files) == [f"id-{number}" for number in range(begun_at + 6)]


@pytest.mark.hard_case("T16")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_reported_and_what_was_there_is_kept(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        files = spool_files(small / "spool")
        writer = spool_writer(files)
        with pytest.raises(SpoolFullError, match="no space left on the disk"):
            fill(writer)
        held = writer.next
        assert held >= 5
        with pytest.raises(SpoolFullError):
            seal(writer, [record(held, body=bytes(100_000))])
        write_mark(files, "low", held)
        writer.close()
        writer = spool_writer(files)
        seal(writer, [record(held, body=bytes(100_000))])
        writer.close()
        assert ids_in(files) == [f"id-{held}"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def fill(writer: SpoolWriter) -> None:
    while True:
        settle(writer, [record(writer.next, body=chance("body").randbytes(100_000))])


@contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a writer that goes on until it is stopped."""
    command = [sys.executable, "-c", VICTIM, str(path), "never"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        try:
            # When it has reported some groups, it is at work.
            for _ in range(4):
                assert process.stdout.readline()
            yield process
        finally:
            process.kill()
