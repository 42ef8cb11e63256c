"""`set_ssl`, against embedded brokers with TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import stompy.compat as stomp
from stompy import Tls
from stompy.broker import Broker
from stompy.errors import InsecureTlsWarning
from tests.compat.conftest import Recorder
from tests.support.certificates import Certificates
from tests.support.peer import until

Connected = Callable[..., Any]
Refused = stomp.exception.ConnectFailedException


def localhost(broker: Broker) -> tuple[str, int]:
    return "localhost", int(broker.url.rsplit(":", 1)[1])


@pytest.fixture
def connected(certificates: Certificates) -> Iterator[Connected]:
    """Return what starts brokers and connects to the first of them that can be, by TLS to all or to some."""
    with ExitStack() as ending:

        def connect(*options: Tls | ssl.SSLContext | None, only: slice = slice(None), **settings: Any) -> Any:
            hosts = [localhost(ending.enter_context(Broker(tls=each))) for each in options]
            connection = stomp.Connection(hosts, reconnect_attempts_max=1)
            connection.set_ssl(for_hosts=hosts[only], **{"ca_certs": certificates.ca, **settings})
            connection.connect("guest", "guest", wait=True)
            ending.callback(connection.disconnect, receipt="bye")
            return connection

        yield connect


def exchanges(connection: Any) -> bool:
    """Return whether a message goes to the broker and back."""
    recorder = Recorder()
    connection.set_listener("recorder", recorder)
    connection.subscribe("/queue/a", id="1")
    connection.send("/queue/a", "grüße")
    until(lambda: recorder.named("message"))
    return [frame.body for frame in recorder.named("message")] == ["grüße"]


def test_messages_go_over_tls(connected: Connected, certificates: Certificates) -> None:
    assert exchanges(connected(Tls(cert=certificates.server)))


def test_the_name_of_the_host_is_sent(connected: Connected, certificates: Certificates) -> None:
    names: list[str | None] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    context.sni_callback = lambda _, name, __: names.append(name)
    connected(context)
    assert names == ["localhost"]


def test_hosts_that_are_not_named_are_reached_without_tls(connected: Connected, certificates: Certificates) -> None:
    connection = connected(None, Tls(cert=certificates.server), only=slice(1, 2))
    assert connection.get_ssl() is None
    assert exchanges(connection)


def test_the_settings_of_a_host_can_be_read(connected: Connected, certificates: Certificates) -> None:
    connection = connected(Tls(cert=certificates.server), password="t0p")
    settings = connection.get_ssl()
    assert (settings["ca_certs"], settings["password"], settings["verify"]) == (certificates.ca, "t0p", True)
    assert connection.get_ssl(connection.transport.current_host_and_port) == settings
    assert connection.get_ssl(("elsewhere", 61613)) is None


@pytest.mark.parametrize("wrong", ["of_other_host", "of_unknown_authority", "expired", "self_signed"])
def test_a_wrong_certificate_is_refused(connected: Connected, certificates: Certificates, wrong: str) -> None:
    with pytest.raises(Refused, match="certificate"):
        connected(Tls(cert=getattr(certificates, wrong)))


def test_the_next_host_is_tried_after_a_wrong_certificate(connected: Connected, certificates: Certificates) -> None:
    connection = connected(Tls(cert=certificates.of_other_host), Tls(cert=certificates.server))
    assert exchanges(connection)


def test_verification_can_be_switched_off(connected: Connected, certificates: Certificates) -> None:
    with pytest.warns(InsecureTlsWarning):
        connection = connected(Tls(cert=certificates.of_unknown_authority), verify=False)
    assert exchanges(connection)


def test_a_validator_sees_certificate_and_host(connected: Connected, certificates: Certificates) -> None:
    seen: list[tuple[Any, str]] = []

    def validator(certificate: Any, host: str) -> tuple[bool, str]:
        seen.append((certificate, host))
        return True, ""

    assert exchanges(connected(Tls(cert=certificates.server), cert_validator=validator))
    ((certificate, host),) = seen
    assert ("DNS", "localhost") in certificate["subjectAltName"]
    assert host == "localhost"


def test_a_validator_can_refuse(connected: Connected, certificates: Certificates) -> None:
    with pytest.raises(Refused, match="not pinned"):
        connected(Tls(cert=certificates.server), cert_validator=lambda *_: (False, "not pinned"))


def test_a_client_shows_its_certificate(connected: Connected, certificates: Certificates) -> None:
    broker = certificates.broker_options(ask_clients=True)
    assert exchanges(connected(broker, cert_file=certificates.client))
    encrypted = certificates.encrypted("t0p")
    assert exchanges(connected(broker, cert_file=encrypted, key_file=encrypted, password="t0p"))


@pytest.mark.parametrize("shown", [None, "unknown_client"])
def test_a_client_without_the_right_certificate_is_refused(
    connected: Connected, certificates: Certificates, shown: str | None
) -> None:
    cert_file = shown and getattr(certificates, shown)
    with pytest.raises(Refused, match="certificate"):
        connected(certificates.broker_options(ask_clients=True), cert_file=cert_file)


@pytest.mark.parametrize("missing", ["cert_file", "ca_certs"])
def test_a_missing_file_is_named(connected: Connected, certificates: Certificates, missing: str) -> None:
    with pytest.raises(Refused, match=r"/nowhere\.pem"):
        connected(Tls(cert=certificates.server), **{missing: "/nowhere.pem"})


def test_a_module_in_the_place_of_ssl_makes_the_context(
    connected: Connected, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As intelmq has it, whose `ca_certs` is then a mark that only its own module knows."""

    class Patched:
        def __getattr__(self, name: str) -> Any:
            return getattr(ssl, name)

        def create_default_context(self, purpose: ssl.Purpose, *, cafile: str) -> ssl.SSLContext:
            assert cafile == "/a mark/"
            return ssl.create_default_context(purpose, cafile=certificates.ca)

    assert stomp.transport.ssl is ssl
    assert stomp.transport.DEFAULT_SSL_VERSION == ssl.PROTOCOL_TLS_CLIENT
    monkeypatch.setattr(stomp.transport, "ssl", Patched())
    assert exchanges(connected(Tls(cert=certificates.server), ca_certs="/a mark/"))


def test_a_version_forbids_newer_ones(connected: Connected, certificates: Certificates) -> None:
    broker = certificates.broker_options(version="1.3")
    assert exchanges(connected(broker))
    with pytest.raises(Refused, match="version"):
        connected(broker, ssl_version=ssl.PROTOCOL_TLSv1_2)
