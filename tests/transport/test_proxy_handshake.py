from __future__ import annotations

import base64

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ProxyError, ProxyLoginRefusedError, StompTimeoutError
from stompy.secret import Secret
from stompy.transport.proxy import ProxyStream, ascii_host, http_connect, socks5_connect
from tests.support.memory import memory_pair


def test_an_answer_in_pieces_is_read_as_one_in_a_row() -> None:
    ours, theirs = memory_pair()
    stream = ProxyStream(ours, "http://p:1", "b:7", Deadline(5))
    stream.send(Secret(b"hello"))
    assert theirs.recv(Deadline(5)) == b"hello"
    for piece in (b"ab", b"c\r", b"\n", b"12", b"3"):
        theirs.sendall(piece, Deadline(5))
    assert stream.read_until(b"\r\n", limit=10) == b"abc\r\n"
    assert stream.read(2) == b"12"
    with pytest.raises(ProxyError, match="sent more than its answer"):
        stream.check_end()
    assert stream.read(1) == b"3"
    stream.check_end()


def test_silence_costs_no_more_than_the_deadline() -> None:
    ours, _ = memory_pair()
    with pytest.raises(StompTimeoutError):
        ProxyStream(ours, "http://p:1", "b:7", Deadline(0.01)).read(1)


def test_errors_name_the_proxy_and_the_broker() -> None:
    ours, _ = memory_pair()
    stream = ProxyStream(ours, "http://p:1", "b:7", Deadline(5))
    for error in (stream.error("sighed"), stream.login_refused("sighed")):
        assert str(error) == "b:7: the proxy http://p:1 sighed"
        assert (error.proxy, error.address) == ("http://p:1", "b:7")
    assert isinstance(stream.login_refused("x"), ProxyLoginRefusedError)


def asked_http(
    answer: bytes, *, host: str = "b.example", login: str | None = None, passcode: str | None = None
) -> bytes:
    """Return the request that is written to a proxy that answers so; raises what comes of the answer."""
    ours, theirs = memory_pair(1_000_000)
    theirs.sendall(answer, Deadline(5))
    theirs.shutdown_write()
    stream = ProxyStream(ours, "http://p:1", "b.example:7", Deadline(5))
    http_connect(stream, host, 7, login=login, passcode=None if passcode is None else Secret(passcode))
    stream.check_end()
    return theirs.recv(Deadline(5))


OK = b"HTTP/1.1 200 OK\r\n\r\n"


def test_a_request_names_the_broker_twice_and_nothing_else() -> None:
    assert asked_http(OK) == b"CONNECT b.example:7 HTTP/1.1\r\nHost: b.example:7\r\n\r\n"
    assert asked_http(OK, host="::1").startswith(b"CONNECT [::1]:7 HTTP/1.1\r\nHost: [::1]:7\r\n")


def test_a_login_is_written_in_base64_of_utf8() -> None:
    line = asked_http(OK, login="änn", passcode="a:b").split(b"\r\n")[2]
    assert line == b"Proxy-Authorization: Basic " + base64.b64encode("änn:a:b".encode())
    assert b"Basic " + base64.b64encode(b"ann:") in asked_http(OK, login="ann")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n",
        b"HTTP/1.1 299 \r\n\r\n",
        b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
def test_every_success_is_one(answer: bytes) -> None:
    asked_http(answer)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", r"the proxy http://p:1 refused: 403 Forbidden$"),
        (b"HTTP/1.1 502\r\n\r\nbody", r"refused: 502$"),
        (b"HTTP/1.1 301 " + b"x" * 200 + b"\r\n\r\n", r"refused: 301 x{100}$"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP: 'SSH-2.0-x"),
        (b"HTTP/2 200 OK\r\n\r\n", "does not speak HTTP"),
        (b"\x05\xff", "closed the connection instead of answering"),
        (b"HTTP/1.1 200 OK\r\n", "closed the connection instead of answering"),
        (b"", "closed the connection instead of answering"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 400_000, "sent an answer that is too long"),
        (OK + b"CONNECTED\n", "sent more than its answer"),
    ],
)
def test_everything_else_is_reported(answer: bytes, message: str) -> None:
    with pytest.raises(ProxyError, match=message) as caught:
        asked_http(answer)
    assert (caught.value.proxy, caught.value.address) == ("http://p:1", "b.example:7")
    assert not isinstance(caught.value, ProxyLoginRefusedError)


@pytest.mark.parametrize(
    ("login", "message"), [(None, "requires a login and a passcode"), ("ann", "rejected the login and passcode")]
)
def test_a_login_that_is_required_is_reported(login: str | None, message: str) -> None:
    with pytest.raises(ProxyLoginRefusedError, match=message):
        asked_http(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", login=login)


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("b.example", "b.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("fe80::1%eth0", "fe80::1"),
        ("::1", "::1"),
    ],
)
def test_a_host_is_written_in_ascii(host: str, written: str) -> None:
    assert ascii_host(host) == written


@pytest.mark.parametrize("host", ["", "a b", "a\r\nHost: x", "a..b", "x" * 64, "::1\r\n", ".".join(["x" * 60] * 5)])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="not a usable host name"):
        ascii_host(host)


def asked_socks(
    answer: bytes, *, host: str = "b.example", login: str | None = None, passcode: str | None = None
) -> bytes:
    """Return what is written to a proxy that answers so; raises what comes of the answer."""
    ours, theirs = memory_pair()
    theirs.sendall(answer, Deadline(5))
    theirs.shutdown_write()
    stream = ProxyStream(ours, "socks5://p:1", "b.example:7", Deadline(5))
    socks5_connect(stream, host, 7, login=login, passcode=None if passcode is None else Secret(passcode))
    stream.check_end()
    return theirs.recv(Deadline(5))


FREE = b"\x05\x00"
DONE = b"\x05\x00\x00\x01" + bytes(6)
NAME = b"\x05\x01\x00\x03\x09b.example\x00\x07"


def test_a_name_is_left_to_the_proxy() -> None:
    assert asked_socks(FREE + DONE) == b"\x05\x01\x00" + NAME


def test_an_address_is_written_as_one() -> None:
    assert asked_socks(FREE + DONE, host="10.0.0.1").endswith(b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x07")
    assert asked_socks(FREE + DONE, host="::1").endswith(b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x07")


def test_a_login_is_offered_and_sent_where_it_is_required() -> None:
    assert asked_socks(FREE + DONE, login="ann", passcode="x") == b"\x05\x02\x00\x02" + NAME
    said = asked_socks(b"\x05\x02" + b"\x01\x00" + DONE, login="änn", passcode=None)
    assert said == b"\x05\x02\x00\x02" + b"\x01\x04" + "änn".encode() + b"\x00" + NAME


@pytest.mark.parametrize(
    "bound", [b"\x01" + bytes(6), b"\x03\x01x" + bytes(2), b"\x03\x00" + bytes(2), b"\x04" + bytes(18)]
)
def test_the_address_that_the_proxy_reports_is_ignored(bound: bytes) -> None:
    asked_socks(FREE + b"\x05\x00\x00" + bound)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (FREE + b"\x05\x01\x00\x01", "the proxy socks5://p:1 failed$"),
        (FREE + b"\x05\x02\x00\x01", "does not allow this connection by its rules"),
        (FREE + b"\x05\x03\x00\x01", "cannot reach the broker's network"),
        (FREE + b"\x05\x04\x00\x01", "cannot reach the broker's host, or does not know it"),
        (FREE + b"\x05\x05\x00\x01", "connection refused"),
        (FREE + b"\x05\x06\x00\x01", "TTL expired"),
        (FREE + b"\x05\x07\x00\x01", "does not support the CONNECT command"),
        (FREE + b"\x05\x08\x00\x01", "does not support this type of address"),
        (FREE + b"\x05\x63\x00\x01", r"refused with an unknown code \(99\)"),
        (FREE + b"\x05\x00\x00\x02" + bytes(9), r"unknown type of address \(2\)"),
        (FREE + b"\x04\x00\x00\x01" + bytes(6), "does not speak SOCKS5: it answered with byte 4"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SOCKS5: it began with byte 72"),
        (b"\x05\x01", r"an authentication method that was not offered \(1\)"),
        (b"\x05\x02", r"an authentication method that was not offered \(2\)"),
        (b"\x05", "closed the connection instead of answering"),
        (FREE + DONE[:-1], "closed the connection instead of answering"),
        (FREE + DONE + b"x", "sent more than its answer"),
    ],
)
def test_everything_but_success_is_reported(answer: bytes, message: str) -> None:
    with pytest.raises(ProxyError, match=message) as caught:
        asked_socks(answer)
    assert not isinstance(caught.value, ProxyLoginRefusedError)


@pytest.mark.parametrize(
    ("answer", "login", "message"),
    [
        (b"\x05\xff", None, "requires a login and a passcode"),
        (b"\x05\xff", "ann", "supports no authentication method"),
        (b"\x05\x02\x01\x01", "ann", "rejected the login and passcode"),
    ],
)
def test_a_proxy_that_does_not_know_us_says_so(answer: bytes, login: str | None, message: str) -> None:
    with pytest.raises(ProxyLoginRefusedError, match=message):
        asked_socks(answer, login=login, passcode="x")
