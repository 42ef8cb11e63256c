"""Programs that gevent has patched behave as those with threads do."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from stompy.broker import Broker
from stompy.testing.brokers import Certificates
from stompy.transport.tls.options import Tls

OVER = ["stomp", "stomp+ssl", "ws", "wss"]


def run(*arguments: str) -> None:
    """Run `gevent_program`, which must find nothing wrong, and in which no greenlet may fail."""
    command = [sys.executable, "-m", "gevent.monkey", "--module", "tests.scenarios.gevent_program", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout.splitlines()[-1:], done.returncode) == (["ok"], 0), done.stderr[-4000:]
    assert "by a bug" not in done.stderr
    assert "<Greenlet" not in done.stderr  # gevent reports one that failed


@pytest.mark.parametrize("over", OVER)
def test_a_patched_program_with_the_broker_in_another_process(over: str) -> None:
    secure, web = over in ("stomp+ssl", "wss"), over in ("ws", "wss")
    with (
        contextlib.closing(Certificates()) as certificates,
        Broker(tls=Tls(cert=certificates.broker_file) if secure else None, ws=web) as broker,
    ):
        run(over, broker.ws_url if web else broker.url, certificates.ca_file)


@pytest.mark.parametrize("over", OVER)
def test_a_patched_program_with_the_broker_in_itself(over: str) -> None:
    run(over)
