from __future__ import annotations

import base64

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, ProxyError, ProxyLoginRefused
from stompy.secret import Secret
from stompy.transport.http_connect import ascii_host, ask_http
from stompy.transport.memory import memory_pair
from stompy.transport.proxy_answer import Answer


def asked(answer: bytes, *, host: str = "b.example", login: str | None = None, passcode: str | None = None) -> bytes:
    """Return the request that is written to a proxy that answers so; raises what comes of the answer."""
    ours, theirs = memory_pair(1_000_000)
    theirs.sendall(answer, Deadline(5))
    theirs.shutdown_write()
    talk = Answer(ours, "http://p:1", "b.example:7", Deadline(5))
    ask_http(talk, host, 7, login=login, passcode=None if passcode is None else Secret(passcode))
    talk.finish()
    return theirs.recv(Deadline(5))


OK = b"HTTP/1.1 200 OK\r\n\r\n"


def test_a_request_names_the_broker_twice_and_nothing_else() -> None:
    assert asked(OK) == b"CONNECT b.example:7 HTTP/1.1\r\nHost: b.example:7\r\n\r\n"
    assert asked(OK, host="::1").startswith(b"CONNECT [::1]:7 HTTP/1.1\r\nHost: [::1]:7\r\n")


def test_a_login_is_written_in_base64_of_utf8() -> None:
    line = asked(OK, login="änn", passcode="a:b").split(b"\r\n")[2]
    assert line == b"Proxy-Authorization: Basic " + base64.b64encode("änn:a:b".encode())
    assert b"Basic " + base64.b64encode(b"ann:") in asked(OK, login="ann")


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
    asked(answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", r"the proxy http://p:1 refused: 403 Forbidden$"),
        (b"HTTP/1.1 502\r\n\r\nbody", r"refused: 502$"),
        (b"HTTP/1.1 301 " + b"x" * 200 + b"\r\n\r\n", r"refused: 301 x{100}$"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP: 'SSH-2.0-x"),
        (b"HTTP/2 200 OK\r\n\r\n", "does not speak HTTP"),
        (b"\x05\xff", "closed the connection instead of answering"),
        (b"HTTP/1.1 200 OK\r\n", "closed the connection instead of answering"),
        (b"", "closed the connection instead of answering"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 400_000, "sent an answer without an end"),
        (OK + b"CONNECTED\n", "sent more than its answer"),
    ],
)
def test_everything_else_is_told(answer: bytes, words: str) -> None:
    with pytest.raises(ProxyError, match=words) as caught:
        asked(answer)
    assert (caught.value.proxy, caught.value.address) == ("http://p:1", "b.example:7")
    assert not isinstance(caught.value, ProxyLoginRefused)


@pytest.mark.parametrize(
    ("login", "words"), [(None, "wants a login and a passcode"), ("ann", "does not take our login and passcode")]
)
def test_a_login_that_is_wanted_is_told(login: str | None, words: str) -> None:
    with pytest.raises(ProxyLoginRefused, match=words):
        asked(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", login=login)


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
