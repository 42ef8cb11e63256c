"""The embedded broker with the face of the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.broker import BrokerLimits
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ConnectionLostError, SendTimeoutError, StompTimeoutError
from stompy.testing.brokers import handshake
from stompy.testing.brokers.embedded import EmbeddedBroker, FreezableTransport, Freezer
from stompy.testing.brokers.running import BrokerSettings
from stompy.transport.memory import memory_pair

pytestmark = pytest.mark.broker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(BrokerSettings(users={"ann": "secret"}), attempts=2) as made:
        yield made


def test_it_serves_its_users_alone(broker: EmbeddedBroker) -> None:
    for url in (broker.url(), broker.url(login="ann")):
        with stompy.connect(url) as conn:
            conn.send("/queue/a", "x", confirm=True)
    with pytest.raises(stompy.ConnectError):
        stompy.connect(broker.url(login=""))


def test_a_wrong_login_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = BrokerLimits.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "login_delay", 3600.0)
    with (
        EmbeddedBroker(BrokerSettings(users={"ann": "secret"})) as broker,
        pytest.raises(stompy.ConnectRefusedError, match="wrong login"),
    ):
        stompy.connect(broker.url(login=""), timeouts=stompy.Timeouts(connect=5))


def test_it_keeps_queues_and_port_over_restart_and_kill(broker: EmbeddedBroker) -> None:
    url = broker.url(login="ann")
    with stompy.connect(url) as conn:
        conn.send("/queue/a", "kept", confirm=True)
    broker.restart()
    broker.kill()
    with pytest.raises(stompy.ConnectError):
        stompy.connect(url)
    broker.start()
    assert broker.url(login="ann") == url
    with stompy.connect(url) as conn:
        assert conn.subscribe("/queue/a").receive(timeout=5).text == "kept"


def test_a_kill_ends_the_links_of_its_clients(broker: EmbeddedBroker) -> None:
    with stompy.connect(broker.url(login="ann"), timeouts=stompy.Timeouts(close=1)) as conn:
        broker.kill()
        with pytest.raises(stompy.StompError):
            conn.subscribe("/queue/a").receive(timeout=5)


def test_while_paused_nothing_is_answered_and_then_all_of_it(broker: EmbeddedBroker) -> None:
    with stompy.connect(broker.url(login="ann"), heartbeat=(0, 0)) as conn:
        broker.pause()
        receipt = conn.send_async("/queue/a", "x")
        assert receipt is not None
        with pytest.raises(StompTimeoutError):
            receipt.result(timeout=0.2)
        broker.unpause()
        receipt.result(timeout=5)


def test_a_paused_one_takes_connections_and_says_nothing(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_PATIENCE", 0.2)
    broker.pause()
    port = int(broker.url().rpartition(":")[2])
    assert handshake.ask("127.0.0.1", port, login="ann", passcode="secret") is None


@pytest.mark.parametrize("ending", ["kill", "restart", "stop"])
def test_a_paused_one_can_be_ended(broker: EmbeddedBroker, ending: str) -> None:
    with stompy.connect(broker.url(login="ann"), heartbeat=(0, 0), timeouts=stompy.Timeouts(close=1)) as conn:
        broker.pause()
        conn.send("/queue/a", "x")
        getattr(broker, ending)()


@pytest.mark.parametrize("options", [{"memory_limit": 1}, {"configuration": "x"}])
def test_what_it_has_not_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="the embedded broker has no setting"):
        EmbeddedBroker(BrokerSettings.of(options))


def test_it_has_one_connector(broker: EmbeddedBroker) -> None:
    assert (broker.connectors, broker.certificates, broker.log()) == (("stomp",), None, "")
    with pytest.raises(ConfigurationError, match=r"no connector 'stomp\+ssl' \(it has stomp\)"):
        broker.url(tls=True)


@pytest.mark.parametrize("asked", [False, True])
def test_with_tls_it_speaks_nothing_else(asked: bool) -> None:
    settings = BrokerSettings(users={"ann": "secret"}, tls=True, client_certificates=asked)
    with EmbeddedBroker(settings) as broker:
        assert broker.connectors == ("stomp+ssl",)
        with pytest.raises(ConfigurationError, match=r"no connector 'stomp'"):
            broker.url()
        url = broker.url(tls=True, login="ann")
        assert url.startswith("stomp+ssl://ann:secret@127.0.0.1:")
        assert broker.certificates is not None
        shown = (broker.certificates.client_cert, broker.certificates.client_key) if asked else (None, None)
        with stompy.connect(url, tls=stompy.Tls(ca=broker.ca_file, cert=shown[0], key=shown[1])) as conn:
            conn.send("/queue/a", "x", confirm=True)
        if asked:
            with pytest.raises(stompy.TlsError):
                stompy.connect(url, tls=stompy.Tls(ca=broker.ca_file))
    assert not Path(broker.ca_file).exists()


def test_it_may_listen_on_a_unix_socket(tmp_path: Path) -> None:
    with EmbeddedBroker(BrokerSettings(users={"ann": "secret"}), unix=tmp_path / "s") as broker:
        assert broker.connectors == ("stomp+unix",)
        with stompy.connect(broker.url("stomp+unix", login="ann")) as conn:
            conn.send("/queue/a", "x", confirm=True)


def test_frozen_bytes_wait_and_are_not_lost() -> None:
    near, far = memory_pair()
    freezer = Freezer()
    frozen = FreezableTransport(near, freezer)
    far.sendall(b"kept", Deadline(5))
    freezer.freeze()
    with pytest.raises(StompTimeoutError):
        frozen.recv(Deadline(0.05))
    with pytest.raises(SendTimeoutError) as caught:
        frozen.sendall(b"x", Deadline(0.05))
    assert caught.value.outcome == "not-sent"
    freezer.thaw()
    assert frozen.recv(Deadline(5)) == b"kept"
    frozen.close()
    far.close()


def test_a_shutdown_ends_what_is_frozen() -> None:
    near, far = memory_pair()
    freezer = Freezer()
    frozen = FreezableTransport(near, freezer)
    freezer.freeze()
    far.sendall(b"late", Deadline(5))
    freezer.end_all()
    assert frozen.recv(Deadline(5)) == b""
    with pytest.raises(ConnectionLostError):
        frozen.sendall(b"x", Deadline(5))
    assert "FreezableTransport" in repr(frozen)
    assert frozen.peer
    frozen.shutdown_write()
    frozen.close()
    far.close()
