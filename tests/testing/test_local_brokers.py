"""Brokers in containers: each kind whose image was built here is started once and put through its life."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.testing.brokers import BrokerSettings, BrokerUnavailableError
from stompy.testing.containers import ContainerBroker
from stompy.testing.products import PRODUCTS
from tests.support import local_brokers
from tests.support.durable import make_queues
from tests.support.local_brokers import LABEL, OWNER_LABEL, LocalBroker, owner
from tests.support.needs import each
from tests.support.peer import until

docker = pytest.importorskip("docker")
pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]


TOP = Path(__file__).parents[2]
MAJOR = {"activemq": "6", "activemq5": "5", "artemis": "2", "rabbitmq3": "3", "rabbitmq4": "4"}
USERS = {"ann": "s:c\\r#1", "bob": "plain"}


def container(kind: str, **options: Any) -> ContainerBroker:
    """Return a broker of a kind in a container of an image that was built here."""
    return LocalBroker(PRODUCTS[kind], BrokerSettings.of(options))


@pytest.fixture(scope="module", params=each(PRODUCTS, group="container"))
def broker(request: pytest.FixtureRequest) -> Iterator[ContainerBroker]:
    """Each kind with all that it can be asked for."""
    with container(request.param, users=USERS, tls=True, client_certificates=True, persistent=True) as made:
        yield made


def shake_hands(broker: ContainerBroker, *, with_certificate: bool) -> str:
    """Return the first line of the answer to a CONNECT over TLS."""
    assert broker.certificates is not None
    context = ssl.create_default_context(cafile=broker.ca_file)
    if with_certificate:
        context.load_cert_chain(broker.certificates.client_cert, broker.certificates.client_key)
    with (
        socket.create_connection((broker.host, broker.ports["stomp+ssl"]), timeout=20) as sock,
        context.wrap_socket(sock, server_hostname=broker.host) as wrapped,
    ):
        wrapped.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:bob\npasscode:plain\n\n\0")
        return wrapped.recv(4096).partition(b"\n")[0].decode()


def test_it_calls_itself_by_name_and_version(broker: ContainerBroker) -> None:
    name, _, version = broker.server.partition("/")
    assert name in ("ActiveMQ", "ActiveMQ-Artemis", "RabbitMQ")
    assert version.startswith(broker.version)
    assert broker.version.count(".") == 2
    assert broker.version.split(".")[0] == MAJOR[broker.kind]


def test_it_lets_its_users_in_and_nobody_else(broker: ContainerBroker) -> None:
    # Her passcode has a backslash, which is written in another way for a RabbitMQ, before it has said that it is one.
    with stompy.connect(broker.url(), dialect="rabbitmq" if broker.kind.startswith("rabbitmq") else None):
        pass
    with stompy.connect(broker.url(login="bob")) as conn:
        conn.send("/queue/life", "hello", confirm=True)
        assert conn.subscribe("/queue/life").receive(timeout=20).text == "hello"
    with pytest.raises(stompy.ConnectError):
        stompy.connect(broker.url(login=""))


def test_its_tls_wants_a_certificate_of_its_authority(broker: ContainerBroker) -> None:
    assert shake_hands(broker, with_certificate=True) == "CONNECTED"
    with pytest.raises(ssl.SSLError):
        shake_hands(broker, with_certificate=False)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ending", ["restart", "kill"])
def test_it_comes_back_at_the_same_address_with_what_was_persistent(broker: ContainerBroker, ending: str) -> None:
    url, queue = broker.url(login="bob"), f"/queue/kept-by-{ending}"
    make_queues(broker, url, queue)
    with stompy.connect(url) as conn:
        conn.send(queue, ending, headers={"persistent": "true"}, confirm=True)
    getattr(broker, ending)()
    if ending == "kill":
        with pytest.raises(stompy.ConnectError):
            stompy.connect(url)
        broker.start()
    assert broker.url(login="bob") == url
    with stompy.connect(url) as conn:
        assert conn.subscribe(queue).receive(timeout=15).text == ending


def test_while_paused_it_says_nothing_and_then_goes_on(broker: ContainerBroker) -> None:
    broker.pause()
    with pytest.raises(stompy.ConnectTimeoutError):
        stompy.connect(broker.url(login="bob"), timeouts=stompy.Timeouts(connect=0.5))
    broker.unpause()
    with stompy.connect(broker.url(login="bob")):
        pass


def test_a_paused_one_can_be_killed(broker: ContainerBroker) -> None:
    broker.pause()
    broker.kill()
    broker.start()


@pytest.mark.needs("activemq")
def test_one_that_does_not_start_tells_its_log_and_is_removed() -> None:
    broken = container("activemq", configuration='<noSuchElement xmlns="nobody"/>')
    with pytest.raises(BrokerUnavailableError, match=r"it ended with status \d+ while starting; (?s:.*)noSuchElement"):
        broken.start()
    assert broken.container is None


LEFT = """
import os, signal
from tests.testing.test_local_brokers import container
broker = container("activemq")
broker.start()
print(broker.container.get_container_id(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.needs("activemq")
def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    container("activemq")
    done = subprocess.run(
        [sys.executable, "-c", LEFT], env={**os.environ, "PYTHONPATH": str(TOP)}, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    left = done.stdout.strip()
    local_brokers.prepare.cache_clear()
    local_brokers.prepare()
    with contextlib.closing(docker.from_env()) as client:

        def gone() -> bool:
            with contextlib.suppress(docker.errors.NotFound):
                return not client.containers.get(left)
            return True

        until(gone)  # another process may be removing it


# What earlier runs left


class Container:
    def __init__(self, owner: str | None) -> None:
        self.name = f"of {owner}"
        self.labels = {LABEL: "1", **({} if owner is None else {OWNER_LABEL: owner})}
        self.removed = False
        self.vanishes = False  # between the list and the inspection

    def remove(self, *, force: bool, v: bool) -> None:
        self.removed = force and v


class Client:
    """What is used of a docker client, over a set of containers."""

    def __init__(self, *containers: Container) -> None:
        self.all = containers
        self.containers = self

    def close(self) -> None: ...

    def list(self, *, all: bool, filters: dict[str, str], ignore_removed: bool = False) -> list[Container]:
        assert all
        assert filters == {"label": LABEL}
        if not ignore_removed and any(each.vanishes for each in self.all):
            raise docker.errors.NotFound("No such container")
        return [each for each in self.all if not each.vanishes]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that removes what earlier runs left, of these containers."""

    def prepare(*containers: Container) -> None:
        monkeypatch.setattr(docker, "from_env", lambda: Client(*containers))
        local_brokers.prepare()

    local_brokers.prepare.cache_clear()
    yield prepare
    local_brokers.prepare.cache_clear()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are identified by /proc")
def test_only_what_dead_processes_of_this_machine_left_is_removed(prepared: Callable[..., None]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    machine, pid, started = owner().split(":")
    kept = [Container(owner()), Container(None), Container("elsewhere:1:2"), Container(f"{machine}:x:1")]
    removed = [Container(f"{machine}:{gone.pid}:12"), Container(f"{machine}:{pid}:{int(started) - 1}")]
    prepared(*kept, *removed)
    assert [each.removed for each in kept] == [False] * 4
    assert [each.removed for each in removed] == [True] * 2


def test_a_container_that_another_process_removes_meanwhile_is_ignored(prepared: Callable[..., None]) -> None:
    machine, pid, started = owner().split(":")
    vanishing, left = Container(owner()), Container(f"{machine}:{pid}:{int(started) - 1}")
    vanishing.vanishes = True
    prepared(vanishing, left)
    assert left.removed


def test_docker_that_is_not_there_leaves_no_socket_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_brokers.docker_missing.cache_clear()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        assert "docker cannot be reached" in (local_brokers.docker_missing() or "")
        gc.collect()
    local_brokers.docker_missing.cache_clear()
    assert [str(each.message) for each in caught] == []
