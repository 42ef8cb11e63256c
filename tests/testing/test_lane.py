from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from stompy.testing.lane import HELD, Lane
from stompy.testing.switches import LaneFaults


class Ends:
    """A lane between two pairs of sockets."""

    def __init__(self, **faults: Any) -> None:
        self.into, source = socket.socketpair()
        sink, self.out = socket.socketpair()
        self._socks = (self.into, source, sink, self.out)
        for sock in self._socks:
            sock.setblocking(False)
        self.lane = Lane(source, sink, faults=LaneFaults(**faults), record=8)

    def put(self, octets: bytes, *, now: float = 0.0) -> None:
        self.into.sendall(octets)
        self.lane.read(now)

    def got(self) -> bytes:
        try:
            return self.out.recv(HELD * 2)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for sock in self._socks:
            sock.close()


@pytest.fixture
def lanes() -> Iterator[Any]:
    made: list[Ends] = []

    def make(**faults: Any) -> Ends:
        made.append(Ends(**faults))
        return made[-1]

    yield make
    for ends in made:
        ends.close()


def test_octets_go_through_and_are_counted_and_recorded(lanes: Any) -> None:
    ends = lanes()
    assert (ends.lane.wants_to_read, ends.lane.wants_to_write(0)) == (True, False)
    ends.put(b"hello")
    ends.put(b" world")
    for _ in range(2):
        assert ends.lane.wants_to_write(0)
        ends.lane.write(0)
    assert (ends.got(), ends.lane.forwarded, bytes(ends.lane.recorded)) == (b"hello world", 11, b"hello wo")
    assert not ends.lane.wants_to_write(0)


def test_the_end_of_the_stream_goes_through_after_everything(lanes: Any) -> None:
    ends = lanes()
    ends.put(b"last")
    ends.into.shutdown(socket.SHUT_WR)
    ends.lane.read(0)
    assert (ends.lane.source_ended, ends.lane.wants_to_read) == (True, False)
    ends.lane.write(0)
    assert not ends.lane.finished
    ends.lane.write(0)
    assert (ends.lane.finished, ends.lane.due()) == (True, None)
    assert (ends.out.recv(10), ends.out.recv(10)) == (b"last", b"")


def test_a_stalled_lane_neither_reads_nor_writes(lanes: Any) -> None:
    ends = lanes()
    ends.put(b"x")
    ends.lane.change({"stalled": True})
    assert (ends.lane.wants_to_read, ends.lane.wants_to_write(math.inf), ends.lane.due()) == (False, False, None)
    ends.lane.change({"stalled": False})
    assert ends.lane.wants_to_write(0)


def test_a_full_lane_does_not_read(lanes: Any) -> None:
    ends = lanes()
    while ends.lane.wants_to_read:
        ends.put(b"x" * 10_000)
    held = 0
    while ends.lane.wants_to_write(0):
        ends.lane.write(0)
        held += len(ends.got())
    assert held == HELD
    assert ends.lane.wants_to_read


def test_a_chopped_lane_writes_octet_by_octet(lanes: Any) -> None:
    ends = lanes(chop=1)
    ends.put(b"abc")
    for octet in (b"a", b"b", b"c"):
        ends.lane.write(0)
        assert ends.got() == octet


def test_latency_holds_each_octet_for_its_time(lanes: Any) -> None:
    ends = lanes(latency=2.0)
    ends.put(b"a", now=10.0)
    ends.put(b"b", now=11.0)
    assert (ends.lane.due(), ends.lane.wants_to_write(11.9), ends.lane.wants_to_write(12.0)) == (12.0, False, True)
    ends.lane.write(12.0)
    assert (ends.lane.due(), ends.got()) == (13.0, b"a")


def test_a_throttled_lane_writes_by_its_rate(lanes: Any) -> None:
    ends = lanes(rate=1_000.0)
    ends.put(b"x" * 100)
    now, times = 5.0, []
    while ends.lane.due() is not None:
        now = max(now, ends.lane.due())
        times.append(now)
        ends.lane.write(now)
    assert len(ends.got()) == 100
    assert times[0] == 5.0
    assert times[-1] == pytest.approx(5.09)


def test_a_slow_rate_writes_single_octets(lanes: Any) -> None:
    ends = lanes(rate=2.0)
    ends.put(b"ab")
    ends.lane.write(1.0)
    assert (ends.got(), ends.lane.due()) == (b"a", 1.5)
    ends.lane.change({"rate": math.inf})
    assert ends.lane.wants_to_write(1.0)


@pytest.mark.parametrize("octets", [0, 1, 5, 6])
def test_a_cut_lane_lets_exactly_so_many_through(lanes: Any, octets: int) -> None:
    ends = lanes()
    ends.put(b"before")
    ends.lane.write(0)
    ends.got()
    ends.lane.change({"cut_after": octets})
    ends.put(b"after ")
    while not ends.lane.is_cut:
        ends.lane.write(0)
    assert ends.got() == b"after "[:octets]


def test_another_change_does_not_count_a_cut_anew(lanes: Any) -> None:
    ends = lanes(cut_after=3)
    ends.put(b"ab")
    ends.lane.write(0)
    ends.lane.change({"chop": 1})
    ends.put(b"cd")
    ends.lane.write(0)
    assert (ends.lane.is_cut, ends.got()) == (True, b"abc")
