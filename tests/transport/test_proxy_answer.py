from __future__ import annotations

import pytest

from stompy.deadline import Deadline
from stompy.errors import ProxyError, ProxyLoginRefused, StompTimeout
from stompy.transport.memory import memory_pair
from stompy.transport.proxy_answer import Answer


def test_an_answer_in_pieces_is_read_as_one_in_a_row() -> None:
    ours, theirs = memory_pair()
    answer = Answer(ours, "http://p:1", "b:7", Deadline(5))
    answer.say(b"hello")
    assert theirs.recv(Deadline(5)) == b"hello"
    for piece in (b"ab", b"c\r", b"\n", b"12", b"3"):
        theirs.sendall(piece, Deadline(5))
    assert answer.take_until(b"\r\n", most=10) == b"abc\r\n"
    assert answer.take(2) == b"12"
    with pytest.raises(ProxyError, match="sent more than its answer"):
        answer.finish()
    assert answer.take(1) == b"3"
    answer.finish()


def test_silence_costs_no_more_than_the_deadline() -> None:
    ours, _ = memory_pair()
    with pytest.raises(StompTimeout):
        Answer(ours, "http://p:1", "b:7", Deadline(0.01)).take(1)


def test_errors_name_the_proxy_and_the_broker() -> None:
    ours, _ = memory_pair()
    answer = Answer(ours, "http://p:1", "b:7", Deadline(5))
    for error in (answer.error("sighed"), answer.login_refused("sighed")):
        assert str(error) == "b:7: the proxy http://p:1 sighed"
        assert (error.proxy, error.address) == ("http://p:1", "b:7")
    assert isinstance(answer.login_refused("x"), ProxyLoginRefused)
