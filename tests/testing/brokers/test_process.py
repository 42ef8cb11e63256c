"""A broker as a process: a small program takes the broker's place, the rest is real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.testing.brokers import handshake
from stompy.testing.brokers.process import ProcessBroker
from stompy.testing.brokers.settings import BrokerSettings, BrokerUnavailable
from stompy.testing.containers import PRODUCTS
from tests.testing.brokers.conftest import ToyProduct

TOP = Path(__file__).parents[3]


@pytest.fixture
def broker() -> Iterator[ProcessBroker]:
    made = ProcessBroker(ToyProduct(), BrokerSettings())
    yield made
    made.stop()


def folders() -> list[Path]:
    import tempfile

    return list(Path(tempfile.gettempdir()).glob("stompy-toy-*"))


def test_it_runs_and_leaves_nothing(broker: ProcessBroker) -> None:
    before = folders()
    with broker:
        assert broker.version == "1.2.3"
        assert broker._process is not None
        pid = broker._process.pid
        assert len(folders()) == len(before) + 1
    assert folders() == before
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert broker.log() == ""


def test_it_comes_back_on_its_port_after_a_restart_and_a_kill(broker: ProcessBroker) -> None:
    broker.start()
    url = broker.url()
    broker.restart()
    assert broker.url() == url
    broker.kill()
    assert handshake.ask("127.0.0.1", broker.ports["stomp"]) is None
    broker.start()
    assert broker.url() == url
    assert handshake.ask("127.0.0.1", broker.ports["stomp"]) is not None


def test_it_is_shut_down_in_good_order_and_killed_without(broker: ProcessBroker) -> None:
    broker.start()
    broker.shut_down()
    assert "in good order" in broker.log()
    broker.start()
    broker.kill()
    assert "in good order" not in broker.log()


def test_while_paused_it_says_nothing_and_then_goes_on(broker: ProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_PATIENCE", 0.2)
    broker.start()
    broker.pause()
    assert handshake.ask("127.0.0.1", broker.ports["stomp"]) is None
    broker.unpause()
    monkeypatch.setattr(handshake, "_PATIENCE", 10.0)
    assert handshake.ask("127.0.0.1", broker.ports["stomp"]) is not None


def test_a_paused_one_can_be_ended(broker: ProcessBroker) -> None:
    broker.start()
    broker.pause()
    broker.restart()
    broker.pause()
    broker.kill()
    broker.start()
    broker.pause()


def test_one_that_dies_tells_its_log() -> None:
    broker = ProcessBroker(ToyProduct("raise SystemExit('no room')"), BrokerSettings())
    with pytest.raises(BrokerUnavailable, match=r"process: it ended with status 1 while starting; (?s:.*)no room"):
        broker.start()
    assert broker.log() == ""


def test_one_that_is_not_there_says_why() -> None:
    broker = ProcessBroker(ToyProduct(absent="nothing installed"), BrokerSettings())
    with pytest.raises(BrokerUnavailable, match="process: nothing installed"):
        broker.start()


@pytest.mark.broker
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.needs(f"process:{kind}")) for kind in ("activemq", "rabbitmq3", "rabbitmq4")],
)
def test_a_real_broker_runs_as_a_process(kind: str) -> None:
    settings = BrokerSettings(users={"ann": "s:c"}, tls=True, client_certificates=True, persistent=True)
    with ProcessBroker(PRODUCTS[kind], settings) as broker:
        assert broker.version.startswith("6." if kind == "activemq" else kind[-1])
        with stompy.connect(broker.url(login="ann")) as conn:
            conn.send("/queue/kept", "kept", headers={"persistent": "true"}, confirm=True)
        broker.kill()
        broker.start()
        with stompy.connect(broker.url(login="ann")) as conn:
            assert conn.subscribe("/queue/kept").receive(timeout=20).text == "kept"


HOLDER = """
import sys
from stompy.testing.brokers.process import ProcessBroker
from stompy.testing.brokers.settings import BrokerSettings
from tests.testing.brokers.conftest import ToyProduct
broker = ProcessBroker(ToyProduct(), BrokerSettings())
broker.start()
print(broker._process.pid, broker._folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked for in /proc")
def test_it_goes_with_a_test_run_that_is_killed() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    assert holder.stdout is not None
    pid, folder = holder.stdout.readline().split()
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    give_up = time.monotonic() + 20
    while Path(folder).exists() or is_running(pid):
        assert time.monotonic() < give_up, "the broker outlived its test run"
        time.sleep(0.01)


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
