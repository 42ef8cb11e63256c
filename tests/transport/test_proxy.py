from __future__ import annotations

import base64
import contextlib
import pickle
import socket
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from stompy.deadline import Budget, Deadline
from stompy.errors import (
    ConfigurationError,
    ConnectionLostError,
    ConnectTimeoutError,
    ProxyError,
    ProxyLoginRefusedError,
    TlsError,
)
from stompy.secret import Secret
from stompy.transport.proxy import Proxy, ProxyDialer, parse_proxy
from stompy.transport.tcp import TcpDialer, TcpListener, TcpOptions
from stompy.transport.tls.context import server_context
from stompy.transport.tls.options import Tls
from stompy.transport.tls.transport import TlsDialer, TlsListener
from tests.support.certificates import Certificates
from tests.support.ports import reserved_port
from tests.support.proxies import LittleProxy
from tests.transport.conftest import Calling, ample

SECRET = "s3cr3t"


class TestUrl:
    @pytest.mark.parametrize(
        ("url", "proxy"),
        [
            ("http://p:3128", Proxy("http", "p", 3128)),
            ("HTTP://p.example:8080/", Proxy("http", "p.example", 8080)),
            ("socks5://p", Proxy("socks5", "p", 1080)),
            ("socks5h://u:x@[::1]:9", Proxy("socks5", "::1", 9, "u", "x")),
            ("socks5://[fe80::1%25eth0]", Proxy("socks5", "fe80::1%eth0", 1080)),
            ("http://us%40er:a%3Ab%2F@p:1", Proxy("http", "p", 1, "us@er", "a:b/")),
            ("http://user@p:1", Proxy("http", "p", 1, "user", None)),
            ("http://user:@p:1", Proxy("http", "p", 1, "user", "")),
        ],
    )
    def test_it_is_read(self, url: str, proxy: Proxy) -> None:
        assert parse_proxy(url) == proxy

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("p:3128", "the address of a proxy is"),
            ("https://p:443", "the address of a proxy is"),
            ("socks4://p", "the address of a proxy is"),
            ("http://", "the address of a proxy is"),
            ("http://p:3128/path", "the address of a proxy is"),
            ("http://p:1?x=y", "the address of a proxy is"),
            ("http://p q:1", "the address of a proxy is"),
            ("http://p:1\n", "the address of a proxy is"),
            (f"http://u:{SECRET}@x@p:1", "the address of a proxy is"),
            (f"http://u:{SECRET}/x@p:1", "the address of a proxy is"),
            ("http://p", "needs a port from 1 to 65535"),
            ("http://p:0", "needs a port from 1 to 65535"),
            ("http://p:65536", "needs a port from 1 to 65535"),
            (f"http://u:{SECRET}%@p:1", "not percent-encoded UTF-8"),
            (f"http://u:{SECRET}%ff@p:1", "not percent-encoded UTF-8"),
            (f"http://u:{SECRET}%0d%0aX@p:1", "not percent-encoded UTF-8"),
            (f"http://u%3Au:{SECRET}@p:1", "cannot contain ':'"),
            (f"socks5://u:{SECRET}{'x' * 255}@p:1", "at most 255 bytes"),
        ],
    )
    def test_what_is_wrong_is_named_without_the_passcode(self, url: str, message: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            parse_proxy(url)
        assert message in str(caught.value)
        assert SECRET not in str(caught.value)

    def test_what_is_no_text_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="not bytes"):
            parse_proxy(b"http://p:1")  # type: ignore[arg-type]

    def test_it_travels_and_shows_no_passcode(self) -> None:
        proxy = parse_proxy(f"socks5://u:{SECRET}@p")
        assert pickle.loads(pickle.dumps(proxy)) == proxy
        assert SECRET not in repr(proxy)
        assert str(proxy) == "socks5://p:1080"


@pytest.fixture(params=["http", "socks5"])
def proxy(request: pytest.FixtureRequest) -> Iterator[LittleProxy]:
    with LittleProxy(request.param) as running:
        yield running


@pytest.fixture(params=["http", "socks5"])
def guarded(request: pytest.FixtureRequest) -> Iterator[LittleProxy]:
    with LittleProxy(request.param, login=f"ann:{SECRET}") as running:
        yield running


@pytest.fixture
def target() -> Iterator[TcpListener]:
    listener = TcpListener()
    yield listener
    listener.close()


def dialer(url: str, target: TcpListener, *, host: str = "broker.test") -> ProxyDialer:
    return ProxyDialer(parse_proxy(url), host, target.address[1])


class TestConnecting:
    @pytest.mark.parametrize("host", ["broker.test", "127.0.0.1"])
    def test_bytes_go_both_ways_and_the_proxy_resolves_the_name(
        self, host: str, proxy: LittleProxy, target: TcpListener
    ) -> None:
        client = dialer(proxy.url, target, host=host)
        transport = client.dial(ample())
        accepted = target.accept()
        assert accepted is not None
        assert accepted.peer.startswith("127.0.0.9:")  # the proxy's
        transport.sendall(b"ping", ample())
        assert accepted.recv(ample()) == b"ping"
        accepted.sendall(b"pong", ample())
        assert transport.recv(ample()) == b"pong"
        assert proxy.asked == [(host, target.address[1])]
        assert (client.host, client.address) == (host, f"{host}:{target.address[1]}")
        transport.close()
        accepted.close()

    def test_a_name_of_other_letters_is_encoded_for_the_network(self, proxy: LittleProxy, target: TcpListener) -> None:
        with pytest.raises(ProxyError):
            dialer(proxy.url, target, host="bücher.invalid").dial(ample())
        assert proxy.asked[0][0] == "xn--bcher-kva.invalid"

    def test_a_login_is_sent(self, guarded: LittleProxy, target: TcpListener) -> None:
        transport = dialer(guarded.url_with_login, target).dial(ample())
        accepted = target.accept()
        assert accepted is not None
        accepted.close()
        assert transport.recv(ample()) == b""
        transport.close()

    @pytest.mark.parametrize(
        ("credentials", "message"), [("", "requires a login and a passcode"), ("ann:guess@", "rejected the login")]
    )
    def test_a_proxy_that_does_not_know_us_says_so(
        self, credentials: str, message: str, guarded: LittleProxy, target: TcpListener
    ) -> None:
        with pytest.raises(ProxyLoginRefusedError, match=message) as caught:
            dialer(guarded.url.replace("://", f"://{credentials}"), target).dial(ample())
        assert caught.value.address == f"broker.test:{target.address[1]}"
        assert caught.value.proxy == guarded.url
        assert "guess" not in str(caught.value)
        assert not caught.value.safe_to_retry

    def test_a_broker_that_the_proxy_cannot_reach_is_reported(self, proxy: LittleProxy, target: TcpListener) -> None:
        target.close()
        with pytest.raises(ProxyError, match=r"refused: 502 Bad Gateway|was refused by the broker") as caught:
            dialer(proxy.url, target).dial(ample())
        assert caught.value.safe_to_retry
        with pytest.raises(ProxyError, match=r"refused: 502 Bad Gateway|cannot reach the broker's host"):
            dialer(proxy.url, target, host="nowhere.invalid").dial(ample())

    def test_a_proxy_that_is_not_there_is_distinguished_from_the_broker(self, target: TcpListener) -> None:
        with reserved_port() as port, pytest.raises(ProxyError, match="connection refused") as caught:
            dialer(f"socks5://127.0.0.1:{port}", target).dial(ample())
        assert str(caught.value).startswith(
            f"broker.test:{target.address[1]}: the proxy socks5://127.0.0.1:{port} cannot be reached: "
        )

    @pytest.mark.parametrize("kind", ["http", "socks5"])
    def test_a_proxy_that_says_nothing_ends_by_the_deadline(
        self, kind: str, raw_server: socket.socket, target: TcpListener
    ) -> None:
        port = raw_server.getsockname()[1]
        with pytest.raises(ConnectTimeoutError, match="did not connect to the broker in time"):
            dialer(f"{kind}://127.0.0.1:{port}", target).dial(Deadline(0.05))

    @pytest.mark.parametrize("kind", ["http", "socks5"])
    def test_a_proxy_that_cannot_be_reached_in_time_is_reported(
        self, kind: str, target: TcpListener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def late(self: TcpDialer, deadline: Deadline) -> None:
            raise ConnectTimeoutError("no answer in time", address=self.address)

        monkeypatch.setattr(TcpDialer, "dial", late)
        with pytest.raises(
            ConnectTimeoutError, match=rf"the proxy {kind}://p:1 cannot be reached: p:1: no answer in time"
        ):
            dialer(f"{kind}://p:1", target).dial(ample())

    @pytest.mark.parametrize("host", ["a..b", "x" * 300, "a b", ".".join(["x" * 60] * 5)])
    def test_what_is_no_host_is_refused(self, host: str, proxy: LittleProxy, target: TcpListener) -> None:
        with pytest.raises(ConfigurationError, match="not a usable host name"):
            dialer(proxy.url, target, host=host).dial(ample())
        assert not proxy.asked

    def test_the_options_are_those_of_the_way_to_the_proxy(self, target: TcpListener) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            way = parse_proxy(f"http://127.0.0.1:{server.getsockname()[1]}")
            client = ProxyDialer(way, "broker.test", 1, options=TcpOptions(source="127.0.0.7"))
            with pytest.raises(ConnectTimeoutError):
                client.dial(Deadline(0.05))
            accepted, address = server.accept()
            assert address[0] == "127.0.0.7"
            assert accepted.recv(1000).startswith(b"CONNECT broker.test:1 HTTP/1.1\r\n")
            accepted.close()


class TestSecrets:
    def shown(self, error: BaseException) -> str:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())

    @pytest.mark.parametrize("kind", ["http", "socks5"])
    def test_no_traceback_shows_the_passcode_with_its_locals(self, kind: str, target: TcpListener) -> None:
        parsed = parse_proxy(f"{kind}://ann:{SECRET}@127.0.0.1:1")
        with LittleProxy(kind, login="ann:other") as stranger:
            way = Proxy(parsed.kind, "127.0.0.1", int(stranger.place.rpartition(":")[2]), parsed.login, parsed.passcode)
            with pytest.raises(ProxyLoginRefusedError) as caught:
                ProxyDialer(way, "broker.test", 7).dial(ample())
        text = self.shown(caught.value)
        assert "ann" in text
        assert SECRET not in text
        assert base64.b64encode(f"ann:{SECRET}".encode()).decode() not in text

    @pytest.mark.parametrize("kind", ["http", "socks5"])
    def test_nor_does_one_of_a_proxy_that_went_away_during_the_request(self, kind: str) -> None:
        class Gone(TcpDialer):
            def dial(self, deadline: Deadline) -> Any:
                return Going()

        class Going:
            def sendall(self, data: bytes, deadline: Budget) -> None:
                if data != b"\x05\x02\x00\x02":
                    raise ConnectionLostError("gone")

            def recv(self, deadline: Deadline) -> bytes:
                return b"\x05\x02"

            def close(self) -> None:
                pass

        client = ProxyDialer(Proxy(kind, "p", 1, "ann", SECRET), "b", 7)  # type: ignore[arg-type]
        client._dialer = Gone("p", 1)
        with pytest.raises(ProxyError, match="closed the connection: gone") as caught:
            client.dial(ample())
        text = self.shown(caught.value)
        assert SECRET not in text
        assert base64.b64encode(f"ann:{SECRET}".encode()).decode() not in text

    def test_nor_does_one_of_a_wrong_address(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            parse_proxy(Secret(f"gopher://ann:{SECRET}@p:1"))
        assert SECRET not in self.shown(caught.value)


class TestTls:
    def test_it_goes_through_untouched_and_expects_the_broker(
        self, proxy: LittleProxy, target: TcpListener, calling: Calling, certificates: Certificates
    ) -> None:
        leaf = Tls(cert=certificates.of_other_host)
        listener = TlsListener(target, server_context(leaf))
        serving = calling(lambda: serve_one(listener))
        client = TlsDialer(dialer(proxy.url, target), Tls(ca=certificates.ca, server_name="other.example.org"))
        transport = client.dial(ample())
        transport.sendall(b"hello", ample())
        assert transport.recv(ample()) == b"hello"
        transport.close()
        serving.result()

    def test_the_certificate_must_be_the_brokers_and_not_the_proxys(
        self, proxy: LittleProxy, target: TcpListener, calling: Calling, certificates: Certificates
    ) -> None:
        listener = TlsListener(target, server_context(certificates.broker_options()))
        serving = calling(lambda: serve_one(listener))
        with pytest.raises(TlsError, match=r"not for broker\.test") as caught:
            TlsDialer(dialer(proxy.url, target), certificates.client_options()).dial(ample())
        assert caught.value.reason == "wrong-host"
        serving.result()


def serve_one(listener: TlsListener) -> None:
    accepted = listener.accept()
    assert accepted is not None
    with contextlib.suppress(ConnectionLostError):
        while part := accepted.recv(ample()):
            accepted.sendall(part, ample())
    accepted.close()
