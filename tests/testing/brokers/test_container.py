"""Brokers in containers of docker: each kind whose image is here is started once and put through its life."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.testing.brokers import handshake, images
from stompy.testing.brokers.container import ContainerBroker
from stompy.testing.brokers.running import BrokerSettings, BrokerUnavailableError
from stompy.testing.containers import PRODUCTS, candidates, missing
from tests.support.needs import each
from tests.support.peer import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

TOP = Path(__file__).parents[3]
MAJOR = {"activemq": "6", "activemq5": "5", "artemis": "2", "rabbitmq3": "3", "rabbitmq4": "4"}
USERS = {"ann": "s:c\\r#1", "bob": "plain"}


def container(kind: str, **options: Any) -> ContainerBroker:
    """Return a broker of a kind, or skip the test where there is no image of it."""
    reasons: list[str] = []
    for broker in candidates(PRODUCTS[kind], BrokerSettings.of(options), reasons):
        if isinstance(broker, ContainerBroker):
            return broker
    return missing(kind, "; ".join(reasons))


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


def comes_back(broker: ContainerBroker, ending: str, queue: str) -> bool:
    """Return whether a message that was confirmed is there after an ending and another start."""
    url = broker.url(login="bob")
    with stompy.connect(url) as conn:
        conn.send(queue, ending, headers={"persistent": "true"}, confirm=True)
    getattr(broker, ending)()
    if ending == "kill":
        assert handshake.ask(broker.host, broker.ports["stomp"]) is None
        broker.start()
    assert broker.url(login="bob") == url
    with stompy.connect(url) as conn:
        try:
            return conn.subscribe(queue).receive(timeout=15).text == ending
        except stompy.ReceiveTimeoutError:
            return False


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ending", ["restart", "kill"])
def test_it_comes_back_at_the_same_address_with_what_was_persistent(broker: ContainerBroker, ending: str) -> None:
    # RabbitMQ 3.10 itself has lost 3 of 45 messages that it had confirmed, when it was killed.
    tries = 3 if broker.kind == "rabbitmq3" and ending == "kill" else 1
    assert any(comes_back(broker, ending, f"/queue/kept-by-{ending}-{number}") for number in range(tries))


def test_while_paused_it_says_nothing_and_then_goes_on(
    broker: ContainerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.pause()
    monkeypatch.setattr(handshake, "_PATIENCE", 0.5)
    assert handshake.ask(broker.host, broker.ports["stomp"]) is None
    broker.unpause()
    monkeypatch.undo()
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
from tests.testing.brokers.test_container import container
broker = container("activemq")
broker.start()
print(broker.container.get_container_id(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.needs("activemq")
def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    import docker

    container("activemq")
    done = subprocess.run(
        [sys.executable, "-c", LEFT], env={**os.environ, "PYTHONPATH": str(TOP)}, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    left = done.stdout.strip()
    images.prepare.cache_clear()
    images.prepare()
    with contextlib.closing(docker.from_env()) as client:

        def gone() -> bool:
            with contextlib.suppress(docker.errors.NotFound):
                return not client.containers.get(left)
            return True

        until(gone)  # another process may be removing it
