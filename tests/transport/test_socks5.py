from __future__ import annotations

import pytest

from stompy.deadline import Deadline
from stompy.errors import ProxyError, ProxyLoginRefused
from stompy.secret import Secret
from stompy.transport.memory import memory_pair
from stompy.transport.proxy_answer import Answer
from stompy.transport.socks5 import ask_socks


def asked(answer: bytes, *, host: str = "b.example", login: str | None = None, passcode: str | None = None) -> bytes:
    """Return what is written to a proxy that answers so; raises what comes of the answer."""
    ours, theirs = memory_pair()
    theirs.sendall(answer, Deadline(5))
    theirs.shutdown_write()
    talk = Answer(ours, "socks5://p:1", "b.example:7", Deadline(5))
    ask_socks(talk, host, 7, login=login, passcode=None if passcode is None else Secret(passcode))
    talk.finish()
    return theirs.recv(Deadline(5))


FREE = b"\x05\x00"
DONE = b"\x05\x00\x00\x01" + bytes(6)
NAME = b"\x05\x01\x00\x03\x09b.example\x00\x07"


def test_a_name_is_left_to_the_proxy() -> None:
    assert asked(FREE + DONE) == b"\x05\x01\x00" + NAME


def test_an_address_is_written_as_one() -> None:
    assert asked(FREE + DONE, host="10.0.0.1").endswith(b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x07")
    assert asked(FREE + DONE, host="::1").endswith(b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x07")


def test_a_login_is_offered_and_told_where_it_is_wanted() -> None:
    assert asked(FREE + DONE, login="ann", passcode="x") == b"\x05\x02\x00\x02" + NAME
    said = asked(b"\x05\x02" + b"\x01\x00" + DONE, login="änn", passcode=None)
    assert said == b"\x05\x02\x00\x02" + b"\x01\x04" + "änn".encode() + b"\x00" + NAME


@pytest.mark.parametrize(
    "bound", [b"\x01" + bytes(6), b"\x03\x01x" + bytes(2), b"\x03\x00" + bytes(2), b"\x04" + bytes(18)]
)
def test_the_address_that_the_proxy_tells_of_is_read_over(bound: bytes) -> None:
    asked(FREE + b"\x05\x00\x00" + bound)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (FREE + b"\x05\x01\x00\x01", "the proxy socks5://p:1 failed$"),
        (FREE + b"\x05\x02\x00\x01", "does not allow this connection by its rules"),
        (FREE + b"\x05\x03\x00\x01", "cannot reach the broker's network"),
        (FREE + b"\x05\x04\x00\x01", "cannot reach the broker's host, or does not know it"),
        (FREE + b"\x05\x05\x00\x01", "connection refused"),
        (FREE + b"\x05\x06\x00\x01", "its time ran out"),
        (FREE + b"\x05\x07\x00\x01", "does not know how to connect"),
        (FREE + b"\x05\x08\x00\x01", "does not know that kind of address"),
        (FREE + b"\x05\x63\x00\x01", r"refused for a reason that SOCKS5 does not have \(99\)"),
        (FREE + b"\x05\x00\x00\x02" + bytes(9), r"unknown kind of address \(2\)"),
        (FREE + b"\x04\x00\x00\x01" + bytes(6), "does not speak SOCKS5: it answered with byte 4"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SOCKS5: it began with byte 72"),
        (b"\x05\x01", r"a way of logging in that was not offered \(1\)"),
        (b"\x05\x02", r"a way of logging in that was not offered \(2\)"),
        (b"\x05", "closed the connection instead of answering"),
        (FREE + DONE[:-1], "closed the connection instead of answering"),
        (FREE + DONE + b"x", "sent more than its answer"),
    ],
)
def test_everything_but_success_is_told(answer: bytes, words: str) -> None:
    with pytest.raises(ProxyError, match=words) as caught:
        asked(answer)
    assert not isinstance(caught.value, ProxyLoginRefused)


@pytest.mark.parametrize(
    ("answer", "login", "words"),
    [
        (b"\x05\xff", None, "wants a login and a passcode"),
        (b"\x05\xff", "ann", "takes no login of ours"),
        (b"\x05\x02\x01\x01", "ann", "does not take our login and passcode"),
    ],
)
def test_a_proxy_that_does_not_know_us_says_so(answer: bytes, login: str | None, words: str) -> None:
    with pytest.raises(ProxyLoginRefused, match=words):
        asked(answer, login=login, passcode="x")
