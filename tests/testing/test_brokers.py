"""What may be asked of a broker, its certificates, and the embedded broker with the face of the real ones."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.broker import BrokerLimits
from stompy.errors import ConfigurationError, StompTimeoutError
from stompy.testing.brokers import BrokerSettings, BrokerUnavailableError, Certificates, EmbeddedBroker

pytestmark = pytest.mark.broker
pytest.importorskip("trustme")


# Settings


def test_an_option_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no such option of a broker: user \(there are .*users"):
        BrokerSettings.of({"user": "ann"})


@pytest.mark.parametrize(
    "options",
    [{"client_certificates": True}, {"memory_limit": 0}, {"users": {"": "x"}}, {"users": {}}],
    ids=["mtls-without-tls", "no-memory", "empty-login", "no-users"],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        BrokerSettings.of(options)


def test_a_passcode_is_not_shown() -> None:
    assert "secret" not in repr(BrokerSettings(users={"ann": "secret"}, configuration="secret"))


def test_users_are_not_changed_from_outside() -> None:
    users = {"ann": "secret"}
    settings = BrokerSettings(users=users)
    users["eve"] = "x"
    assert settings.users == {"ann": "secret"}


def test_the_error_lists_every_reason() -> None:
    error = BrokerUnavailableError("artemis", ("official: no pull", "local: not built"))
    assert str(error) == "no artemis broker: official: no pull; local: not built"


# Certificates


@pytest.fixture
def certificates() -> Iterator[Certificates]:
    made = Certificates(hosts=["broker.example"])
    yield made
    made.close()


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, *, host: str) -> None:
    """Carry the handshake out in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting, "the handshake did not end"


def server_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates.ca_file)
    return context


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "broker.example"])
def test_client_and_broker_trust_each_other_under_every_name(certificates: Certificates, host: str) -> None:
    client = ssl.create_default_context(cafile=certificates.ca_file)
    client.load_cert_chain(certificates.client_cert, certificates.client_key)
    shake_hands(client, server_context(certificates), host=host)


def test_another_authority_is_not_trusted(certificates: Certificates) -> None:
    stranger = Certificates()
    client = ssl.create_default_context(cafile=stranger.ca_file)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server_context(certificates), host="localhost")
    stranger.close()


def test_private_keys_are_for_their_owner_alone_and_go_with_the_rest(certificates: Certificates) -> None:
    key = Path(certificates.client_key)
    assert key.stat().st_mode & 0o077 == 0
    certificates.close()
    certificates.close()
    assert not key.exists()
    assert not Path(certificates.ca_file).exists()


# The embedded broker


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


def test_a_paused_one_takes_connections_and_says_nothing(broker: EmbeddedBroker) -> None:
    broker.pause()
    with pytest.raises(stompy.ConnectTimeoutError):
        stompy.connect(broker.url(), timeouts=stompy.Timeouts(connect=0.2))


@pytest.mark.parametrize("ending", ["kill", "restart", "close"])
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


def test_what_a_paused_one_has_received_is_lost_when_it_is_killed(broker: EmbeddedBroker) -> None:
    timeouts = stompy.Timeouts(close=1)
    with stompy.connect(broker.url(login="ann"), heartbeat=(0, 0), timeouts=timeouts, reconnect=False) as conn:
        broker.pause()
        conn.send("/queue/a", "lost")
        broker.kill()
    broker.start()
    assert broker.broker.depth("/queue/a") == 0
