from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, SendTimeoutError, StompTimeoutError
from stompy.transport.base import RECV_SIZE, Dialer, DirectTransport, Transport, TransportListener
from tests.transport.conftest import ample, meet, place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.certificates import Certificates
    from tests.transport.conftest import Calling

Pair = tuple[Transport, Transport]

BIG = bytes(range(256)) * 65_536
"""16 MiB: more than any window here."""


def read_to_the_end(transport: Transport) -> bytes:
    parts = []
    while part := transport.recv(ample()):
        assert len(part) <= RECV_SIZE
        parts.append(part)
    return b"".join(parts)


class PassedMeanwhile(Deadline):
    """A deadline that always passes while one waits for the peer, however quick the peer is."""

    @property
    def expired(self) -> bool:
        return True


def fill(transport: Transport) -> None:
    """Send until not one byte more fits."""
    for _ in range(200):
        try:
            transport.sendall(BIG, Deadline(0.02))
        except SendTimeoutError as error:
            if error.outcome == "not-sent":
                return
    pytest.fail("the window never filled")


@pytest.fixture(params=["as usual", "switching threads all the time"])
def switching(request: pytest.FixtureRequest) -> Iterator[None]:
    before = sys.getswitchinterval()
    if request.param != "as usual":
        sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_bytes_arrive_in_both_directions(pair: Pair) -> None:
    one, other = pair
    one.sendall(b"ping", ample())
    assert other.recv(ample()) == b"ping"
    other.sendall(b"pong", ample())
    assert one.recv(ample()) == b"pong"


def test_a_peer_has_a_name_for_messages(pair: Pair) -> None:
    assert all(end.peer and end.peer in repr(end) for end in pair)


def test_more_than_a_window_arrives_whole_and_in_order(pair: Pair, calling: Calling) -> None:
    one, other = pair

    def write() -> None:
        one.sendall(BIG, ample())
        one.shutdown_write()

    writer = calling(write)
    assert read_to_the_end(other) == BIG
    writer.result()


def test_both_ends_send_more_than_a_window_at_once(pair: Pair, calling: Calling) -> None:
    def write(end: Transport) -> None:
        end.sendall(BIG, ample())
        end.shutdown_write()

    writers = [calling(partial(write, end)) for end in pair]
    readers = [calling(partial(read_to_the_end, end)) for end in pair]
    assert [reader.result() == BIG for reader in readers] == [True, True]
    for writer in writers:
        writer.result()


def test_recv_returns_what_is_there_even_if_the_deadline_has_passed(pair: Pair) -> None:
    one, other = pair
    one.sendall(b"x", ample())
    assert other.recv(ample()) == b"x"
    one.sendall(b"y", Deadline(0))
    assert other.recv(ample()) == b"y"


def test_recv_past_its_deadline_raises_and_the_stream_is_unharmed(pair: Pair) -> None:
    one, other = pair
    for seconds in (0, 0.01):
        with pytest.raises(StompTimeoutError, match=r"no bytes from .* in time"):
            other.recv(Deadline(seconds))
    one.sendall(b"late", ample())
    assert other.recv(ample()) == b"late"


def test_recv_without_a_deadline_waits_for_bytes(pair: Pair, calling: Calling) -> None:
    one, other = pair
    reader = calling(other.recv)
    reader.until_blocked()
    one.sendall(b"here", ample())
    assert reader.result() == b"here"


def test_a_deadline_that_never_comes_waits_for_bytes(pair: Pair, calling: Calling) -> None:
    one, other = pair
    for deadline in (Deadline(None), Deadline(1e12)):
        reader = calling(partial(other.recv, deadline))
        reader.until_blocked()
        one.sendall(b"here", deadline)
        assert reader.result() == b"here"


def test_the_end_of_the_stream_comes_after_all_bytes_and_stays(pair: Pair) -> None:
    one, other = pair
    one.sendall(b"last bytes", ample())
    one.close()
    assert read_to_the_end(other) == b"last bytes"
    assert other.recv(ample()) == b""


def test_half_closed_stream_still_carries_the_other_direction(pair: Pair) -> None:
    one, other = pair
    one.sendall(b"question", ample())
    one.shutdown_write()
    assert read_to_the_end(other) == b"question"
    other.sendall(b"answer", ample())
    assert one.recv(ample()) == b"answer"


def test_sendall_after_half_close_is_lost_with_nothing_sent(pair: Pair) -> None:
    one, _ = pair
    one.shutdown_write()
    with pytest.raises(ConnectionLostError) as caught:
        one.sendall(b"x", ample())
    assert caught.value.outcome == "not-sent"


@pytest.mark.usefixtures("switching")
def test_shutdown_wakes_a_blocked_recv(pair: Pair, calling: Calling) -> None:
    one, _ = pair
    reader = calling(one.recv)
    reader.until_blocked()
    one.shutdown()
    assert reader.result() == b""


def test_the_peers_shutdown_wakes_a_blocked_recv(pair: Pair, calling: Calling) -> None:
    one, other = pair
    reader = calling(one.recv)
    reader.until_blocked()
    other.shutdown()
    assert reader.result() == b""


@pytest.mark.usefixtures("switching")
def test_shutdown_wakes_a_blocked_sendall(pair: Pair, calling: Calling) -> None:
    one, _ = pair
    writer = calling(lambda: one.sendall(BIG, ample()))
    writer.until_blocked()
    one.shutdown()
    with pytest.raises(ConnectionLostError, match="was shut down") as caught:
        writer.result()
    assert caught.value.outcome == "unknown"
    assert not isinstance(caught.value, SendTimeoutError)


@pytest.mark.usefixtures("switching")
def test_shutdown_wakes_writers_and_readers_while_both_windows_are_full(pair: Pair, calling: Calling) -> None:
    one, other = pair
    fill(one)
    fill(other)
    writers = [calling(partial(end.sendall, BIG, ample())) for end in pair]
    for writer in writers:
        writer.until_blocked()
    one.shutdown()
    one.close()
    for writer in writers:
        with pytest.raises(ConnectionLostError) as caught:
            writer.result()
        assert not isinstance(caught.value, SendTimeoutError)
    assert one.recv(ample()) == b""


def test_after_shutdown_unread_bytes_are_not_delivered(pair: Pair) -> None:
    one, other = pair
    one.sendall(b"12", ample())
    one.shutdown_write()
    other.shutdown()
    assert other.recv() == b""


def test_sendall_after_shutdown_is_lost_with_nothing_sent(pair: Pair) -> None:
    one, _ = pair
    for end_it in (one.shutdown, one.close):
        end_it()
        with pytest.raises(ConnectionLostError) as caught:
            one.sendall(b"x", ample())
        assert caught.value.outcome == "not-sent"


@pytest.mark.parametrize("pair", ["tcp", "unix", "ws", "wss"], indirect=True)
def test_what_cannot_be_written_now_comes_with_the_next_bytes(pair: Pair, calling: Calling) -> None:
    writer, reader = pair
    assert isinstance(writer, DirectTransport)
    written = bytearray()
    rest = None
    while rest is None:
        chunk = b"%d," % len(written) * 1_000
        rest = writer.send_now([chunk[:100], chunk[100:]])
        written += chunk
    (left,) = rest
    writing = calling(lambda: writer.sendall(left, ample()))
    received = bytearray()
    while len(received) < len(written):
        received += reader.recv(ample())
    writing.result()
    assert received == written


def test_a_full_window_ends_sendall_by_its_deadline(pair: Pair) -> None:
    one, other = pair
    with pytest.raises(SendTimeoutError, match="did not accept the bytes in time") as caught:
        one.sendall(BIG, Deadline(0.02))
    assert caught.value.outcome == "unknown"
    fill(one)  # until the outcome is "not-sent"
    assert other.recv(ample())


def test_a_peer_that_reads_a_little_does_not_stretch_the_deadline(pair: Pair, calling: Calling) -> None:
    one, other = pair
    reader = calling(partial(read_to_the_end, other))
    with pytest.raises(SendTimeoutError) as caught:
        one.sendall(BIG, PassedMeanwhile(20))
    assert caught.value.outcome == "unknown"
    one.shutdown_write()  # over WebSocket the rest of a message that was begun goes before the end
    assert 0 < len(reader.result()) <= len(BIG)


def test_a_reader_and_a_writer_have_deadlines_of_their_own(pair: Pair, calling: Calling) -> None:
    one, other = pair
    reader = calling(one.recv)
    reader.until_blocked()
    with pytest.raises(SendTimeoutError):
        one.sendall(BIG, Deadline(0.02))
    other.sendall(b"still here", ample())
    assert reader.result() == b"still here"


def test_a_peer_that_is_gone_ends_sendall(pair: Pair) -> None:
    one, other = pair
    other.close()

    def send_on() -> None:
        while True:  # a kernel takes the first bytes before it learns of the end
            one.sendall(b"x" * 65_536, ample())

    with pytest.raises(ConnectionLostError) as caught:
        send_on()
    assert not isinstance(caught.value, SendTimeoutError)


def test_shutdown_and_close_may_be_repeated_in_any_order(pair: Pair) -> None:
    one, other = pair
    for end_it in (
        one.shutdown,
        one.shutdown_write,
        one.shutdown,
        one.close,
        one.shutdown,
        one.close,
        one.shutdown_write,
    ):
        end_it()
    assert one.recv() == b""
    assert other.recv(ample()) == b""
    assert "shut down" in repr(one) or "closed" in repr(one)


@pytest.mark.usefixtures("switching")
def test_shutdown_in_the_middle_of_traffic_ends_everybody(pair: Pair, calling: Calling) -> None:
    one, other = pair

    def write(end: Transport) -> None:
        while True:
            end.sendall(b"x" * 10_000, ample())

    def read(end: Transport) -> None:
        while end.recv():
            pass

    writers = [calling(partial(write, end)) for end in pair]
    reading_one, reading_other = calling(lambda: read(one)), calling(lambda: read(other))
    one.shutdown()
    reading_one.result()
    one.close()
    with contextlib.suppress(ConnectionLostError):  # bytes that came after the close were answered with a reset
        reading_other.result()
    for writer in writers:
        with pytest.raises(ConnectionLostError):
            writer.result()


@pytest.fixture(params=["tcp", "memory", "unix", "tls 1.2", "tls 1.3", "ws", "wss"])
def meeting(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path
) -> Iterator[tuple[TransportListener, Dialer]]:
    """A listener of each carrier in turn, and who dials it."""
    listener, dialer = place(request.param, certificates, tmp_path)
    yield listener, dialer
    listener.close()


Meeting = tuple[TransportListener, Dialer]


class TestMeeting:
    def test_a_dialer_meets_its_listener(self, meeting: Meeting) -> None:
        listener, dialer = meeting
        dialed, accepted = meet(listener, dialer)
        dialed.sendall(b"hello", ample())
        assert accepted.recv(ample()) == b"hello"
        assert dialer.host
        assert dialer.address in repr(dialer)
        for each in (dialed, accepted, listener):
            each.close()

    def test_a_dialer_is_served_while_accept_waits(self, meeting: Meeting, calling: Calling) -> None:
        listener, dialer = meeting
        waiting = calling(listener.accept)
        waiting.until_blocked()
        dialing = calling(lambda: dialer.dial(ample()))
        accepted = waiting.result()
        reader = calling(accepted.recv)  # which shakes hands first, where there is something to shake
        dialed = dialing.result()
        dialed.sendall(b"hello", ample())
        assert reader.result() == b"hello"
        accepted.sendall(b"welcome", ample())
        assert dialed.recv(ample()) == b"welcome"
        for each in (dialed, accepted, listener):
            each.close()

    @pytest.mark.usefixtures("switching")
    def test_close_wakes_every_accept(self, meeting: Meeting, calling: Calling) -> None:
        listener, _ = meeting
        waiting = [calling(listener.accept) for _ in range(3)]
        for call in waiting:
            call.until_blocked()
        listener.close()
        assert [call.result() for call in waiting] == [None, None, None]
        assert listener.accept() is None
        assert "closed" in repr(listener)

    def test_accepted_transports_outlive_their_listener(self, meeting: Meeting) -> None:
        listener, dialer = meeting
        dialed, accepted = meet(listener, dialer)
        listener.close()
        listener.close()
        dialed.sendall(b"on", ample())
        assert accepted.recv(ample()) == b"on"
        for each in (dialed, accepted):
            each.close()

    @pytest.mark.parametrize("meeting", ["tcp", "memory", "unix"], indirect=True)
    def test_a_dialer_that_was_not_accepted_is_closed(self, meeting: Meeting) -> None:
        listener, dialer = meeting
        dialed = dialer.dial(ample())
        listener.close()
        with contextlib.suppress(ConnectionLostError):  # TCP says it with a reset
            assert dialed.recv(ample()) == b""
        dialed.close()
