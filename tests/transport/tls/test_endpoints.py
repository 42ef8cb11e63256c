"""TLS sessions that come about, and a clear word for each way in which one does not."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stompy.deadline import Deadline
from stompy.errors import (
    ClientCertificateRefusedError,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    InsecureTlsWarning,
    TlsError,
)
from stompy.transport.tcp import TcpDialer, TcpListener, TcpOptions, TcpTransport
from stompy.transport.tls.context import server_context
from stompy.transport.tls.options import Tls, TlsVersion
from stompy.transport.tls.transport import TlsDialer, TlsListener, TlsTransport
from tests.support.certificates import Certificates
from tests.transport.conftest import Call, Calling, ample

OURS = f"127.1.{os.getpid() >> 8 & 255}.{os.getpid() & 255}" if sys.platform == "linux" else "127.0.0.1"
"""The address of this process's clients: one of another process may still look for its own server at the same port."""


class Server:
    """Accepts one client of this process by TLS and reads from it to the end."""

    def __init__(self, tls: Tls | ssl.SSLContext, calling: Calling) -> None:
        context = tls if isinstance(tls, ssl.SSLContext) else server_context(tls)
        tcp = TcpListener()
        self.port = tcp.address[1]
        self.listener = TlsListener(tcp, context)
        self.accepted: TlsTransport | None = None
        self.serving = calling(self._serve)

    def _serve(self) -> list[bytes]:
        self.accepted = self.listener.accept()
        while self.accepted is not None and not self.accepted.peer.startswith(f"{OURS}:"):
            self.accepted.close()
            self.accepted = self.listener.accept()
        self.listener.close()
        if self.accepted is None:
            return []
        parts = []
        try:
            while part := self.accepted.recv(ample()):
                parts.append(part)
                self.accepted.sendall(part, ample())
        finally:
            # The alert would be destroyed by a close with bytes unread.
            while self.accepted.recv(ample()):
                pass
            self.accepted.close()
        return parts


Serving = Callable[[Any], Server]


@pytest.fixture
def serving(calling: Calling) -> Iterator[Serving]:
    servers = []

    def start(tls: Tls | ssl.SSLContext) -> Server:
        servers.append(Server(tls, calling))
        return servers[-1]

    yield start
    for server in servers:
        server.listener.close()


def dialer(server: Server, tls: Tls | ssl.SSLContext, *, host: str = "127.0.0.1") -> TlsDialer:
    return TlsDialer(TcpDialer(host, server.port, options=TcpOptions(source=OURS)), tls)


def refusal(server: Server, tls: Tls | ssl.SSLContext) -> TlsError:
    with pytest.raises(TlsError) as caught:
        dialer(server, tls).dial(ample())
    error = caught.value
    assert error.address == f"127.0.0.1:{server.port}"
    assert isinstance(error.__cause__, (ssl.SSLError, ConnectionLostError))
    with pytest.raises(ConnectionLostError, match="the TLS handshake with"):
        server.serving.result()
    return error


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_bytes_go_both_ways_and_the_client_shows_its_certificate(
    version: TlsVersion, serving: Serving, certificates: Certificates
) -> None:
    server = serving(certificates.broker_options(ask_clients=True, version=version))
    transport = dialer(server, certificates.client_options(show=True)).dial(ample())
    transport.sendall(b"hello", ample())
    assert transport.recv(ample()) == b"hello"
    assert transport.tls.version() == f"TLSv{version}"
    assert server.accepted is not None
    shown = server.accepted.tls.getpeercert()
    assert shown is not None
    assert shown["subjectAltName"] == (("email", "client@example.org"),)
    assert f"TLSv{version}" in repr(transport)
    transport.close()
    assert server.serving.result() == [b"hello"]


def test_a_whole_chain_is_taken(serving: Serving, certificates: Certificates) -> None:
    server = serving(Tls(cert=certificates.with_intermediate))
    dialer(server, certificates.client_options()).dial(ample()).close()
    server.serving.result()


@pytest.mark.parametrize(
    ("which", "reason", "words"),
    [
        ("expired", "expired", "has expired on "),
        ("not_yet", "not-yet-valid", "is not valid yet; it is valid from "),
        ("of_other_host", "wrong-host", "is for other.example.org, not for 127.0.0.1"),
        ("self_signed", "self-signed", "is self-signed"),
        ("of_unknown_authority", "unknown-authority", "which is not trusted"),
        ("of_unknown_chain", "unknown-authority", "which is not trusted"),
        ("without_intermediate", "unknown-authority", "did not send an intermediate certificate"),
    ],
)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_a_servers_certificate_that_is_no_good_is_reported(
    which: str, reason: str, words: str, version: TlsVersion, serving: Serving, certificates: Certificates
) -> None:
    cert = getattr(certificates, which)
    server = serving(Tls(cert=cert, minimum_version=version, maximum_version=version))
    error = refusal(server, certificates.client_options())
    assert error.reason == reason
    assert words in str(error)
    assert error.safe_to_retry


def test_the_authorities_of_the_system_are_trusted_by_default(serving: Serving, certificates: Certificates) -> None:
    error = refusal(serving(certificates.broker_options()), Tls())
    assert error.reason == "unknown-authority"


def test_a_revoked_certificate_is_reported(serving: Serving, certificates: Certificates) -> None:
    listed = certificates.crl(certificates.server)
    error = refusal(serving(certificates.broker_options()), Tls(ca=certificates.ca, crl=listed))
    assert error.reason == "revoked"
    assert "is revoked" in str(error)


def test_a_certificate_on_no_list_is_taken(serving: Serving, certificates: Certificates) -> None:
    server = serving(certificates.broker_options())
    dialer(server, Tls(ca=certificates.ca, crl=certificates.crl())).dial(ample()).close()
    server.serving.result()


def test_an_authority_without_a_list_is_reported(serving: Serving, certificates: Certificates) -> None:
    server = serving(Tls(cert=certificates.of_unknown_authority))
    error = refusal(server, Tls(ca=certificates.other_ca, crl=certificates.crl()))
    assert error.reason == "no-revocation-list"


class Renamed:
    """Dials the loopback under another name."""

    def __init__(self, port: int, name: str) -> None:
        self._dialer = TcpDialer("127.0.0.1", port, options=TcpOptions(source=OURS))
        self.address = self._dialer.address
        self.host = name

    def dial(self, deadline: Deadline) -> TcpTransport:
        return self._dialer.dial(deadline)


class TestNames:
    def test_another_name_may_be_asked_for(self, serving: Serving, certificates: Certificates) -> None:
        server = serving(Tls(cert=certificates.of_other_host))
        dialer(server, Tls(ca=certificates.ca, server_name="other.example.org")).dial(ample()).close()
        server.serving.result()

    @pytest.mark.parametrize(
        ("host", "sent"),
        [("localhost", "localhost"), ("localhost.", "localhost"), ("127.0.0.1", None), ("::1%lo", None)],
    )
    def test_the_server_hears_the_name_that_is_wanted(
        self, host: str, sent: str | None, serving: Serving, certificates: Certificates
    ) -> None:
        heard = []
        context = server_context(certificates.broker_options())
        context.sni_callback = lambda tls, name, context: heard.append(name)
        server = serving(context)
        TlsDialer(Renamed(server.port, host), certificates.client_options()).dial(ample()).close()
        server.serving.result()
        assert heard == [sent]

    @pytest.mark.parametrize("name", [".example.org", "a..b", "x" * 70 + ".example"])
    def test_what_cannot_be_a_name_is_refused(self, name: str, serving: Serving, certificates: Certificates) -> None:
        server = serving(certificates.broker_options())
        with pytest.raises(ConfigurationError, match="not a valid name of a TLS server"):
            dialer(server, Tls(ca=certificates.ca, server_name=name)).dial(ample())
        with pytest.raises(ConnectionLostError):
            server.serving.result()


class TestOurCertificate:
    def test_tls_1_2_tells_in_the_handshake_that_ours_is_refused(
        self, serving: Serving, certificates: Certificates
    ) -> None:
        server = serving(certificates.broker_options(ask_clients=True, version="1.2"))
        error = refusal(server, Tls(ca=certificates.ca, cert=certificates.unknown_client))
        assert isinstance(error, ClientCertificateRefusedError)
        assert "does not trust the authority of the client certificate" in str(error)
        assert not error.safe_to_retry

    def test_tls_1_2_reports_that_one_is_required(self, serving: Serving, certificates: Certificates) -> None:
        server = serving(certificates.broker_options(ask_clients=True, version="1.2"))
        assert "or it requires a client certificate" in str(refusal(server, certificates.client_options()))

    @pytest.mark.parametrize(
        ("which", "words"),
        [
            ("unknown_client", "does not trust the authority of the client certificate"),
            ("expired_client", "rejected the client certificate: it has expired"),
            (None, "the peer requires a client certificate"),
        ],
    )
    def test_tls_1_3_tells_it_to_the_first_read(
        self, which: str | None, words: str, serving: Serving, certificates: Certificates
    ) -> None:
        server = serving(certificates.broker_options(ask_clients=True, version="1.3"))
        cert = None if which is None else getattr(certificates, which)
        transport = dialer(server, Tls(ca=certificates.ca, cert=cert)).dial(ample())
        with pytest.raises(ClientCertificateRefusedError, match=words) as caught:
            transport.recv(ample())
        assert isinstance(caught.value.__cause__, ssl.SSLError)
        transport.close()
        with pytest.raises(ConnectionLostError, match="the TLS handshake with"):
            server.serving.result()


class TestNoTls:
    def test_versions_that_do_not_meet_are_reported(self, serving: Serving, certificates: Certificates) -> None:
        server = serving(certificates.broker_options(version="1.2"))
        error = refusal(server, Tls(ca=certificates.ca, minimum_version="1.3"))
        assert error.reason == "no-common-version"

    def test_a_peer_that_answers_in_plain_text_is_reported(
        self, raw_server: socket.socket, calling: Calling, certificates: Certificates
    ) -> None:
        dialing = dial(raw_server, calling, certificates)
        peer, _ = raw_server.accept()
        with peer:
            peer.sendall(b"ERROR\nmessage:what is this\n\n\0")
            with pytest.raises(TlsError, match="speaks STOMP on this port, not TLS") as caught:
                dialing.result()
        assert caught.value.reason == "not-tls"

    def test_a_peer_of_another_protocol_is_named(
        self, raw_server: socket.socket, calling: Calling, certificates: Certificates
    ) -> None:
        dialing = dial(raw_server, calling, certificates)
        peer, _ = raw_server.accept()
        with peer:
            peer.sendall(b"\0\0\1\x2f\1ActiveMQ\0\0\0\x0c")
            with pytest.raises(TlsError, match="speaks OpenWire on this port, not TLS") as caught:
                dialing.result()
        assert caught.value.reason == "not-tls"

    def test_a_peer_that_hangs_up_is_reported(
        self, raw_server: socket.socket, calling: Calling, certificates: Certificates
    ) -> None:
        dialing = dial(raw_server, calling, certificates)
        peer, _ = raw_server.accept()
        peer.recv(1_000_000)
        peer.close()
        with pytest.raises(TlsError, match="does it speak TLS on this port") as caught:
            dialing.result()
        assert caught.value.reason == "closed"

    def test_a_peer_that_says_nothing_ends_by_the_deadline(
        self, raw_server: socket.socket, certificates: Certificates
    ) -> None:
        client = TlsDialer(TcpDialer(*raw_server.getsockname()), certificates.client_options())
        with pytest.raises(ConnectTimeoutError, match="does it speak TLS on this port") as caught:
            client.dial(Deadline(0.05))
        assert caught.value.address == client.address

    def test_a_port_without_a_listener_is_no_tls_error(self, certificates: Certificates) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
        with pytest.raises(ConnectError, match="connection refused") as caught:
            TlsDialer(TcpDialer(*address), certificates.client_options()).dial(ample())
        assert not isinstance(caught.value, TlsError)

    def test_a_file_that_cannot_be_used_is_reported_before_anything_is_dialed(self, raw_server: socket.socket) -> None:
        raw_server.settimeout(0)
        with pytest.raises(ConfigurationError):
            TlsDialer(TcpDialer(*raw_server.getsockname()), Tls(ca="/nowhere/ca.pem")).dial(ample())
        with pytest.raises(BlockingIOError):
            raw_server.accept()


def dial(raw_server: socket.socket, calling: Calling, certificates: Certificates) -> Call:
    client = TlsDialer(TcpDialer(*raw_server.getsockname()), certificates.client_options())
    return calling(lambda: client.dial(ample()))


class TestWithoutChecks:
    def test_each_connect_says_so_in_the_log(
        self, serving: Serving, certificates: Certificates, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.warns(InsecureTlsWarning):
            blind, half_blind = (
                Tls(insecure_skip_verification=True),
                Tls(ca=certificates.ca, insecure_skip_hostname=True),
            )
        own = ssl.create_default_context()
        own.check_hostname, own.verify_mode = False, ssl.CERT_NONE
        for tls, cert, what in (
            (blind, certificates.of_unknown_authority, "certificate"),
            (half_blind, certificates.of_other_host, "host name"),
            (own, certificates.self_signed, "certificate"),
        ):
            server = serving(Tls(cert=cert))
            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="stompy.transport"):
                dialer(server, tls).dial(ample()).close()
            server.serving.result()
            assert [record.message for record in caplog.records] == [
                f"127.0.0.1:{server.port}: TLS does not check the broker's {what};"
                " an attacker in the network can impersonate it"
            ]

    def test_one_that_checks_is_quiet(
        self, serving: Serving, certificates: Certificates, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = serving(certificates.broker_options())
        with caplog.at_level(logging.WARNING, logger="stompy.transport"):
            dialer(server, certificates.client_options()).dial(ample()).close()
        server.serving.result()
        assert not caplog.records
