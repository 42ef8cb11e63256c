"""A broker as a process: a small program takes the broker's place, the rest is real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.testing.brokers import BrokerSettings, BrokerUnavailableError
from stompy.testing.products import PRODUCTS
from tests.support import process_brokers
from tests.support.options import chosen
from tests.support.process_brokers import INSTALLED, ProcessBroker
from tests.testing.toys import TOY, InstalledToy

TOP = Path(__file__).parents[2]
ACTIVEMQ = INSTALLED["activemq"]
RABBITMQ = INSTALLED["rabbitmq4"]


@pytest.fixture
def broker() -> Iterator[ProcessBroker]:
    made = ProcessBroker(TOY, BrokerSettings(), InstalledToy())
    yield made
    made.close()


def test_it_runs_and_leaves_nothing(broker: ProcessBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with broker:
        assert broker.version == "1.2.3"
        assert broker._process is not None
        pid = broker._process.pid
        assert len(list(tmp_path.glob("stompy-toy-*"))) == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert broker.log() == ""


def test_it_comes_back_on_its_port_after_a_restart_and_a_kill(broker: ProcessBroker) -> None:
    broker.start()
    url = broker.url()
    broker.restart()
    assert broker.url() == url
    broker.kill()
    with pytest.raises(stompy.ConnectError):
        stompy.connect(url)
    broker.start()
    assert broker.url() == url


def test_it_is_shut_down_in_good_order_and_killed_without(broker: ProcessBroker) -> None:
    broker.start()
    broker.shut_down()
    assert "in good order" in broker.log()
    broker.start()
    broker.kill()
    assert "in good order" not in broker.log()


def test_while_paused_it_says_nothing_and_then_goes_on(broker: ProcessBroker) -> None:
    broker.start()
    broker.pause()
    with pytest.raises(stompy.ConnectTimeoutError):
        stompy.connect(broker.url(), timeouts=stompy.Timeouts(connect=0.2))
    broker.unpause()
    stompy.connect(broker.url()).close(timeout=1)


def test_a_paused_one_can_be_ended(broker: ProcessBroker) -> None:
    broker.start()
    broker.pause()
    broker.restart()
    broker.pause()
    broker.kill()
    broker.start()
    broker.pause()


def test_one_that_dies_tells_its_log() -> None:
    broker = ProcessBroker(TOY, BrokerSettings(), InstalledToy("raise SystemExit('no room')"))
    with pytest.raises(BrokerUnavailableError, match=r"process: it ended with status 1 while starting; (?s:.*)no room"):
        broker.start()
    assert broker.log() == ""


def test_one_that_is_not_there_says_why() -> None:
    broker = ProcessBroker(TOY, BrokerSettings(), InstalledToy(absent="nothing installed"))
    with pytest.raises(BrokerUnavailableError, match="process: nothing installed"):
        broker.start()


@pytest.mark.broker
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.needs(f"process:{kind}")) for kind in ("activemq", "rabbitmq3", "rabbitmq4")],
)
def test_a_real_broker_runs_as_a_process(kind: str) -> None:
    settings = BrokerSettings(users={"ann": "s:c"}, tls=True, client_certificates=True, persistent=True)
    with ProcessBroker(PRODUCTS[kind], settings, INSTALLED[kind]) as broker:
        assert broker.version.startswith("6." if kind == "activemq" else kind[-1])
        with stompy.connect(broker.url(login="ann")) as conn:
            conn.send("/queue/kept", "kept", headers={"persistent": "true"}, confirm=True)
        broker.kill()
        broker.start()
        with stompy.connect(broker.url(login="ann")) as conn:
            assert conn.subscribe("/queue/kept").receive(timeout=20).text == "kept"


HOLDER = """
import sys
from stompy.testing.brokers import BrokerSettings
from tests.support.process_brokers import ProcessBroker
from tests.testing.toys import TOY, InstalledToy
broker = ProcessBroker(TOY, BrokerSettings(), InstalledToy())
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


def make_home(folder: Path, *jars: str) -> Path:
    (folder / "lib").mkdir(parents=True)
    for jar in jars:
        (folder / "lib" / jar).touch()
    return folder


ALL = tuple(f"activemq-{part}-6.3.1.jar" for part in ("broker", "console", "stomp", "spring"))


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java" / "bin").mkdir(parents=True)
    (tmp_path / "java" / "bin" / "java").touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))


@pytest.mark.usefixtures("java")
def test_why_activemq_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "activemq_home", "")
    assert "--activemq-home is not given" in (ACTIVEMQ.missing() or "")
    monkeypatch.setattr(chosen, "activemq_home", str(make_home(tmp_path / "half", *ALL[:2])))
    assert "has no activemq-stomp jar" in (ACTIVEMQ.missing() or "")
    older = (jar.replace("6.3.1", "5.1") for jar in ALL)
    monkeypatch.setattr(chosen, "activemq_home", str(make_home(tmp_path / "old", *older)))
    assert "is not a 6.x" in (ACTIVEMQ.missing() or "")
    monkeypatch.setattr(chosen, "activemq_home", str(make_home(tmp_path / "whole", *ALL)))
    assert ACTIVEMQ.missing() is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "no Java here" in (ACTIVEMQ.missing() or "")


def test_activemq_looks_for_ports_first_and_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "activemq_home", str(make_home(tmp_path / "whole", *ALL)))
    first = ACTIVEMQ.launch(BrokerSettings(), None, tmp_path, {})
    assert dict(first.ports) == {"stomp": 0, "stomp+nio": 0}
    assert f"xbean:file:{tmp_path}/activemq.xml" in first.command
    again = ACTIVEMQ.launch(BrokerSettings(), None, tmp_path, {"stomp": 7})
    assert b"stomp://127.0.0.1:7?" in again.files["activemq.xml"]
    assert ACTIVEMQ.found_ports("INFO Listening for connections at: stomp+nio://host:41 more") == {"stomp+nio": 41}


def install(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "rabbitmq-server").touch(0o755)
    (folder / "lib" / f"rabbitmq_server-{version}").mkdir(parents=True)
    return folder


def test_why_rabbitmq_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_brokers, "RABBITMQ", tmp_path)
    assert "no RabbitMQ in" in (RABBITMQ.missing() or "")
    monkeypatch.setattr(process_brokers, "RABBITMQ", install(tmp_path / "old", "3.10.8"))
    assert "is 3.10.8, not a 4.x" in (RABBITMQ.missing() or "")
    monkeypatch.setattr(process_brokers, "RABBITMQ", install(tmp_path / "new", "4.0.5"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no Erlang here" in (RABBITMQ.missing() or "")
    (tmp_path / "epmd").touch(0o755)
    assert RABBITMQ.missing() is None


def test_rabbitmq_is_apart_from_a_service_and_keeps_its_ports(tmp_path: Path) -> None:
    first = RABBITMQ.launch(BrokerSettings(tls=True), None, tmp_path, {})
    assert first.ports.keys() == {"stomp", "ws", "stomp+ssl", "wss"}
    assert first.environment["RABBITMQ_MNESIA_BASE"] == str(tmp_path / "mnesia")
    assert f"stomp.listeners.tcp.1 = 127.0.0.1:{first.ports['stomp']}" in first.files["rabbitmq.conf"].decode()
    again = RABBITMQ.launch(BrokerSettings(tls=True), None, tmp_path, first.ports)
    assert again.ports == first.ports
    assert again.environment["RABBITMQ_NODENAME"] == first.environment["RABBITMQ_NODENAME"]


def test_a_kind_that_is_not_run_as_a_process_says_so() -> None:
    with pytest.raises(BrokerUnavailableError, match="process: artemis is not run as a process"):
        process_brokers.process_broker(PRODUCTS["artemis"], BrokerSettings())
