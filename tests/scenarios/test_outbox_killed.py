"""Kill -9 at random moments: nothing whose `put` has returned is missing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.deadline import Deadline
from stompy.outbox.store import Room, Store
from tests.support.peer import WITHIN
from tests.support.seed import SEED_SETTING
from tests.support.seed import chance as chance_of

TOP = Path(__file__).parent.parent.parent
LONGEST_LIFE = 0.4
"""Seconds from the first line of the victim's program; its opening is among the moments."""

VICTIM = textwrap.dedent(
    """
    import os, sys, threading
    from stompy.backoff import Backoff
    from stompy.outbox.outbox import Outbox

    path, url, seed = sys.argv[1:]
    os.write(1, b"start\\n")
    outbox = Outbox(path, url, backoff=Backoff(first=0.01, longest=0.05))

    def work(name):
        for number in range(1_000_000):
            body = (f"{seed} {name} {number} " * (1 + 200 * (number % 50 == 7))).encode()
            identity = outbox.put(f"/queue/{name}", body)
            os.write(1, identity.encode() + b"\\n")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    """
)


def live_and_die(path: str, url: str, chance: random.Random) -> set[str]:
    """Run a victim, kill it at a moment of chance, and return the ids whose `put` had returned."""
    command = [sys.executable, "-c", VICTIM, path, url, str(chance.random())]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TOP)}
    ) as victim:
        assert victim.stdout is not None
        assert victim.stderr is not None
        try:
            first = victim.stdout.readline()
            time.sleep(chance.uniform(0, LONGEST_LIFE))  # the moment of chance, nothing is waited for
        finally:
            victim.send_signal(signal.SIGKILL)
        lines = victim.stdout.read().decode().splitlines()
        assert first == b"start\n", victim.stderr.read().decode()
    # A last line that is cut is an id that was never reported.
    return {line for line in lines if len(line) == 32}


def on_disk(path: str) -> set[str]:
    """Open the outbox, which checks it to the end, and return the ids of what waits."""
    store = Store(path, room=Room(), name="stompy-test", on_commit=lambda ledger: None)
    found: set[str] = set()
    last = 0
    while rows := store.read(after=last, limit=1_000, max_bytes=10**9):
        found.update(row.id for row in rows)
        last = rows[-1].seq
    assert store.close(Deadline(WITHIN))
    return found


def arrived(broker: Broker) -> set[str]:
    """Return the dedupe ids of what the broker has."""
    found: set[str] = set()
    with connect(broker.url) as connection:
        for queue in range(3):
            # What a victim was confirmed is in the queue by now; what still comes from it is on its disk too.
            count = broker.depth(f"/queue/{queue}")
            subscription = connection.subscribe(f"/queue/{queue}")
            for _ in range(count):
                found.add(subscription.receive(timeout=WITHIN).headers["stompy-dedupe-id"])
    return found


def kill_often(path: str, times: int, *, with_broker: bool) -> None:
    chance = chance_of("kills")
    put: set[str] = set()
    with Broker() as broker:
        if not with_broker:
            broker.close()
        for _ in range(times):
            put |= live_and_die(path, broker.url, chance)
        there = on_disk(path) if os.path.exists(path) else set()
        if with_broker:
            there |= arrived(broker)
    assert put, "no victim lived long enough to put anything"
    assert put <= there, f"{len(put - there)} of {len(put)} messages are lost ({SEED_SETTING})"


@pytest.mark.parametrize("with_broker", [False, True])
def test_nothing_that_was_put_is_lost_by_a_kill(tmp_path: Path, with_broker: bool) -> None:
    kill_often(str(tmp_path / "a.outbox"), 5, with_broker=with_broker)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("with_broker", [False, True])
def test_nothing_that_was_put_is_lost_by_a_hundred_kills(tmp_path: Path, with_broker: bool) -> None:
    kill_often(str(tmp_path / "a.outbox"), 100, with_broker=with_broker)


def test_the_kernel_frees_the_file_of_a_process_that_was_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.outbox")
    on_disk(path)
    chance = chance_of("a hundred kills")
    for _ in range(2):
        live_and_die(path, "stomp://127.0.0.1:1", chance)
        on_disk(path)
