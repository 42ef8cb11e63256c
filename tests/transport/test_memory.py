from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConnectError, ConnectionLostError, ConnectTimeoutError, SendTimeoutError
from tests.support.memory import MemoryDialer, MemoryListener, memory_pair
from tests.transport.conftest import ample

if TYPE_CHECKING:
    from tests.transport.conftest import Calling


def test_a_direction_holds_exactly_its_capacity() -> None:
    one, other = memory_pair(capacity=4)
    one.sendall(b"1234", Deadline(0))
    with pytest.raises(SendTimeoutError, match="0 of 1 written") as caught:
        one.sendall(b"5", Deadline(0))
    assert caught.value.outcome == "not-sent"
    other.sendall(b"abcd", Deadline(0))
    assert other.recv() == b"1234"
    one.sendall(b"5678", Deadline(0))


def test_a_cut_send_leaves_the_part_that_fitted() -> None:
    one, other = memory_pair(capacity=4)
    with pytest.raises(SendTimeoutError, match="4 of 6 written") as caught:
        one.sendall(b"123456", Deadline(0))
    assert caught.value.outcome == "unknown"
    assert other.recv() == b"1234"


def test_a_writer_goes_on_when_the_reader_makes_room(calling: Calling) -> None:
    one, other = memory_pair(capacity=1)
    writer = calling(lambda: one.sendall(b"abc", ample()))
    assert [other.recv(ample()) for _ in range(3)] == [b"a", b"b", b"c"]
    writer.result()


def test_the_peers_shutdown_ends_a_blocked_writer(calling: Calling) -> None:
    one, other = memory_pair(capacity=1)
    writer = calling(lambda: one.sendall(b"abc", ample()))
    writer.until_blocked()
    other.shutdown()
    with pytest.raises(ConnectionLostError, match="the peer accepts no more bytes") as caught:
        writer.result()
    assert caught.value.outcome == "unknown"


def test_a_capacity_below_one_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        memory_pair(capacity=0)


def test_both_ends_of_a_pair_share_a_name_of_their_own() -> None:
    one, other = memory_pair()
    assert one.peer == other.peer
    assert one.peer != memory_pair()[0].peer


def test_a_closed_listener_refuses() -> None:
    listener = MemoryListener("here")
    listener.close()
    with pytest.raises(ConnectError, match=r"^here: connection refused$") as caught:
        MemoryDialer(listener).dial(ample())
    assert caught.value.address == "here"
    assert not isinstance(caught.value, ConnectTimeoutError)


def test_a_full_backlog_ends_dialing_by_the_deadline() -> None:
    listener = MemoryListener("here", backlog=1)
    dialer = MemoryDialer(listener)
    dialer.dial(ample())
    with pytest.raises(ConnectTimeoutError, match=r"^here: no answer in time$"):
        dialer.dial(Deadline(0.01))


def test_a_waiting_dialer_gets_the_place_that_accept_frees(calling: Calling) -> None:
    listener = MemoryListener(backlog=1)
    dialer = MemoryDialer(listener)
    dialer.dial(ample())
    second = calling(lambda: dialer.dial(ample()))
    second.until_blocked()
    assert listener.accept() is not None
    second.result().sendall(b"second", ample())
    accepted = listener.accept()
    assert accepted is not None
    assert accepted.recv(ample()) == b"second"


def test_close_refuses_dialers_that_wait_for_a_place(calling: Calling) -> None:
    listener = MemoryListener(backlog=1)
    dialer = MemoryDialer(listener)
    first = dialer.dial(ample())
    second = calling(lambda: dialer.dial(ample()))
    second.until_blocked()
    listener.close()
    with pytest.raises(ConnectError, match="connection refused"):
        second.result()
    assert first.recv(ample()) == b""


def test_the_pairs_of_a_listener_have_its_capacity() -> None:
    listener = MemoryListener(capacity=2)
    dialed = MemoryDialer(listener, host="b.example").dial(ample())
    with pytest.raises(SendTimeoutError, match="2 of 3 written"):
        dialed.sendall(b"123", Deadline(0))


def test_a_dialer_has_the_host_it_was_given() -> None:
    listener = MemoryListener("here")
    assert MemoryDialer(listener, host="b.example").host == "b.example"
    assert MemoryDialer(listener).address == "here"
