"""A disk without room: the put is refused, and what was there is kept and still sent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.outbox.outbox import Outbox

TOP = Path(__file__).parent.parent.parent

VICTIM = textwrap.dedent(
    """
    import resource, sys
    from stompy.backoff import Backoff
    from stompy.errors import OutboxDamagedError, OutboxError
    from stompy.outbox.outbox import Outbox

    with Outbox(sys.argv[1], "stomp://127.0.0.1:1", backoff=Backoff(first=0.01, longest=0.05)) as outbox:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        refused = 0
        while refused < 20:
            try:
                print(outbox.put("/queue/a", b"x" * 5_000))
            except OutboxDamagedError:
                raise
            except OutboxError:
                refused += 1
        try:
            print(outbox.put("/queue/a", b"small"))
        except OutboxError:
            pass
        assert outbox.stats().waiting > 10
    """
)


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limit on the size of files")
def test_what_was_put_before_the_disk_was_full_is_kept_and_sent(tmp_path: Path) -> None:
    path = str(tmp_path / "a.outbox")
    ran = subprocess.run(
        [sys.executable, "-c", VICTIM, path],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    assert ran.returncode == 0, ran.stderr
    put = ran.stdout.split()
    assert len(put) > 10
    with Broker() as broker, Outbox(path, broker.url) as outbox:
        outbox.put("/queue/a", b"there is room again")
        outbox.flush()
        with connect(broker.url) as connection:
            subscription = connection.subscribe("/queue/a")
            arrived = [subscription.receive(timeout=10).headers["stompy-dedupe-id"] for _ in range(len(put) + 1)]
    assert arrived[:-1] == put


ON_A_FULL_DISK = textwrap.dedent(
    """
    import os, resource, sys
    from stompy.backoff import Backoff
    from stompy.errors import OutboxDamagedError, OutboxFullError
    from stompy.outbox.outbox import Outbox

    path, url, ending = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        with Outbox(path, url, backoff=Backoff(first=0.01, longest=0.05), batch=50) as outbox:
            outbox.flush()
            try:
                outbox.put("/queue/a", b"no room")
            except OutboxFullError:
                while (stats := outbox.stats()).waiting:
                    pass  # what it tries to remove just now counts as waiting
                print("full", stats.waiting, stats.sent)
            if ending == "room":
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if ending == "killed":
                os.kill(os.getpid(), 9)
    except OutboxDamagedError:
        print("damaged")
    """
)


def on_a_full_disk(path: str, url: str, ending: str) -> list[str]:
    """Run the program where no file can be written, and return what it says."""
    ran = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, path, url, ending],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(TOP), "PYTHONUNBUFFERED": "1"},
    )
    assert ran.returncode == (-signal.SIGKILL if ending == "killed" else 0), ran.stderr
    return ran.stdout.split()


def filled(folder: Path, *, killed: bool) -> tuple[str, list[str]]:
    """Make an outbox of 300 messages that was closed, or that was left with all of them in its log."""
    path = str(folder / "a.outbox")
    with Outbox(path, "stomp://127.0.0.1:1") as outbox:
        put = [outbox.put("/queue/a", str(number)) for number in range(300)]
        if killed:
            (folder / "killed").mkdir()
            for name in ("", "-wal", "-lock"):
                shutil.copy(path + name, folder / "killed")
    return (str(folder / "killed" / "a.outbox") if killed else path), put


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limit on the size of files")
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("ending", ["room", "full", "killed"])
def test_what_is_in_it_leaves_although_the_disk_is_full_already_when_it_is_opened(
    tmp_path: Path, killed: bool, ending: str
) -> None:
    path, put = filled(tmp_path, killed=killed)
    with Broker() as broker:
        assert on_a_full_disk(path, broker.url, ending) == ["full", "0", "300"]
        with connect(broker.url) as connection:
            subscription = connection.subscribe("/queue/a")
            arrived = [subscription.receive(timeout=10).headers["stompy-dedupe-id"] for _ in put]
        assert arrived == put
        with Outbox(path, broker.url) as outbox:
            outbox.flush()
            # Without room until its end it could not note what was confirmed: its copies have the same ids.
            assert outbox.stats().sent == (0 if ending == "room" else 300)


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limit on the size of files")
def test_a_corrupt_one_on_a_full_disk_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path, _ = filled(tmp_path, killed=True)
    log = bytearray(Path(path + "-wal").read_bytes())
    log[len(log) // 2] ^= 1
    Path(path + "-wal").write_bytes(log)
    before = {file.name: file.read_bytes() for file in Path(path).parent.iterdir()}
    assert on_a_full_disk(path, "stomp://127.0.0.1:1", "full") == ["damaged"]
    assert {file.name: file.read_bytes() for file in Path(path).parent.iterdir()} == before
