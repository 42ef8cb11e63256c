"""Connecting over TLS, Unix sockets and proxies."""

from __future__ import annotations

from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from stompy.transport.tls.options import TlsVersion
from stompy.transport.unix import UnixListener
from tests.connection.test_connector import broker as broker  # the fixture serves here too
from tests.connection.test_connector import dead as dead  # the fixture serves here too
from tests.connection.test_connector import good
from tests.connection.test_connector import silent as silent  # the fixture serves here too
from tests.support.certificates import Certificates
from tests.support.peer import Peer, until
from tests.support.proxies import LittleProxy
from tests.transport.conftest import Calling


class TestTls:
    @pytest.mark.parametrize("version", ["1.2", "1.3"])
    def test_messages_go_through_it(self, version: TlsVersion, certificates: Certificates) -> None:
        options = certificates.broker_options(ask_clients=True, version=version)
        with (
            Broker(tls=options) as secure,
            stompy.connect(secure.url, tls=certificates.client_options(show=True)) as conn,
        ):
            assert secure.url.startswith("stomp+ssl://127.0.0.1:")
            subscription = conn.subscribe("/queue/a")
            conn.send("/queue/a", "hello", confirm=True)
            assert subscription.receive(timeout=20).text == "hello"

    def test_an_unknown_authority_is_told_and_its_address_named(self, certificates: Certificates) -> None:
        with Broker(tls=certificates.broker_options()) as secure, pytest.raises(stompy.TlsError) as caught:
            stompy.connect(secure.url)
        assert caught.value.reason == "unknown-authority"
        assert str(caught.value).startswith(
            secure.url.removeprefix("stomp+ssl://") + ": the peer's certificate was issued by"
        )

    def test_a_good_broker_behind_one_that_is_not_is_taken(self, certificates: Certificates) -> None:
        bad, good = stompy.Tls(cert=certificates.expired), certificates.broker_options()
        with (
            Broker(tls=bad) as first,
            Broker(tls=good) as second,
            stompy.connect([first.url, second.url], tls=certificates.client_options()) as conn,
        ):
            assert conn.address == second.url.removeprefix("stomp+ssl://")

    @pytest.mark.parametrize("version", ["1.2", "1.3"])
    def test_a_refused_certificate_of_ours_is_told_as_what_it_is(
        self, version: TlsVersion, certificates: Certificates
    ) -> None:
        unknown = stompy.Tls(ca=certificates.ca, cert=certificates.unknown_client)
        with Broker(tls=certificates.broker_options(ask_clients=True, version=version)) as secure:
            for _ in range(10):  # whether CONNECT can still be sent is a race
                with pytest.raises(
                    stompy.ClientCertificateRefusedError, match="does not trust the authority of the client certificate"
                ):
                    stompy.connect(secure.url, tls=unknown)

    def test_a_plain_client_is_told_that_the_port_is_for_tls(self, certificates: Certificates) -> None:
        with Broker(tls=certificates.broker_options()) as secure:
            for _ in range(10):
                with pytest.raises(stompy.TlsError, match=r"write stomp\+ssl:// instead of stomp://") as caught:
                    stompy.connect(secure.url.replace("stomp+ssl", "stomp"))
                assert caught.value.reason == "needs-tls"

    def test_a_tls_client_is_told_that_the_port_is_plain(self, broker: Broker) -> None:
        with pytest.raises(stompy.TlsError, match="speaks STOMP on this port, not TLS"):
            stompy.connect(broker.url.replace("stomp", "stomp+ssl"))

    def test_a_silent_peer_ends_by_the_connect_timeout(self, silent: str) -> None:
        with pytest.raises(stompy.ConnectTimeoutError, match="does it speak TLS on this port"):
            stompy.connect(silent.replace("stomp", "stomps"), timeouts=stompy.Timeouts(connect=0.1))

    def test_a_session_comes_back_after_its_broker_did(self, certificates: Certificates) -> None:
        with (
            Broker(tls=certificates.broker_options()) as secure,
            stompy.connect(secure.url, tls=certificates.client_options(), reconnect=True) as conn,
        ):
            subscription = conn.subscribe("/queue/a")
            secure.restart()
            until(lambda: conn.stats().reconnects == 1)
            conn.send("/queue/a", "again", confirm=True)
            assert subscription.receive(timeout=20).text == "again"


class TestUnix:
    def test_messages_go_through_it_and_it_comes_back(self, tmp_path: Path) -> None:
        path = tmp_path / "broker.sock"
        with Broker(unix=path, users={"fred": "sesame"}) as local:
            assert local.url == f"stomp+unix://{path}"
            url = local.url.replace("://", "://fred:sesame@")
            with stompy.connect(url, reconnect=True) as conn:
                subscription = conn.subscribe("/queue/a")
                local.close()
                local.start()
                until(lambda: conn.stats().reconnects == 1)
                conn.send("/queue/a", "hello", confirm=True)
                assert subscription.receive(timeout=20).text == "hello"
                assert str(path) in repr(conn)
        assert not path.exists()

    def test_its_host_header_is_the_own_machine(self, tmp_path: Path, calling: Calling) -> None:
        listener = UnixListener(tmp_path / "s")
        connecting = calling(lambda: stompy.connect(listener.address, heartbeat=(0, 0)))
        transport = listener.accept()
        assert transport is not None
        peer = Peer(transport)
        assert peer.take_connect().headers["host"] == "localhost"
        peer.close()
        listener.close()
        with pytest.raises(stompy.ConnectError):
            connecting.result()


class TestProxy:
    @pytest.mark.parametrize("kind", ["http", "socks5"])
    @pytest.mark.parametrize("secure", [False, True])
    def test_messages_go_through_it_and_come_back_after_a_cut(
        self, kind: str, secure: bool, certificates: Certificates
    ) -> None:
        options = {"tls": certificates.broker_options()} if secure else {}
        with (
            LittleProxy(kind, login="ann:pr0xy") as proxy,
            Broker(**options) as running,  # type: ignore[arg-type]
            stompy.connect(
                running.url,
                tls=certificates.client_options() if secure else None,
                proxy=proxy.url_with_login,
                reconnect=True,
            ) as conn,
        ):
            subscription = conn.subscribe("/queue/a")
            proxy.cut()
            until(lambda: conn.stats().reconnects == 1)
            conn.send("/queue/a", "hello", confirm=True)
            assert subscription.receive(timeout=20).text == "hello"
            port = int(running.url.rpartition(":")[2])
            assert proxy.asked == [("127.0.0.1", port)] * 2
            assert "pr0xy" not in repr(conn)

    def test_a_broker_behind_a_proxy_that_is_down_is_told(self, broker: Broker, dead: str) -> None:
        with pytest.raises(stompy.ProxyError, match=r"cannot be reached: .* connection refused"):
            stompy.connect(good(broker), proxy=dead.replace("stomp", "socks5"))

    def test_a_unix_socket_needs_no_proxy(self, dead: str, tmp_path: Path) -> None:
        with Broker(unix=tmp_path / "s") as local:
            stompy.connect(local.url, proxy=dead.replace("stomp", "socks5")).close()
