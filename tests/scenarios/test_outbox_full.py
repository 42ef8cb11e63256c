"""A disk without room: the put is refused, and what was there is kept and still sent."""

from __future__ import annotations

import os
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
    from stompy.errors import OutboxDamaged, OutboxError
    from stompy.outbox.outbox import Outbox

    with Outbox(sys.argv[1], "stomp://127.0.0.1:1", retry_delay=(0.01, 0.05)) as outbox:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        refused = 0
        while refused < 20:
            try:
                print(outbox.put("/queue/a", b"x" * 5_000))
            except OutboxDamaged:
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
        outbox.drain()
        with connect(broker.url) as connection:
            subscription = connection.subscribe("/queue/a")
            arrived = [subscription.receive(timeout=10).headers["stompy-dedupe-id"] for _ in range(len(put) + 1)]
    assert arrived[:-1] == put
