from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from stompy.testing.proxied import HELD, DirectionFaults, ProxyDirection


class Ends:
    """A flow between two pairs of sockets."""

    def __init__(self, **faults: Any) -> None:
        self.into, source = socket.socketpair()
        sink, self.out = socket.socketpair()
        self._socks = (self.into, source, sink, self.out)
        for sock in self._socks:
            sock.setblocking(False)
        self.flow = ProxyDirection(source, sink, faults=DirectionFaults(**faults), record=8)

    def put(self, data: bytes, *, now: float = 0.0) -> None:
        self.into.sendall(data)
        self.flow.read(now)

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


def test_bytes_go_through_and_are_counted_and_recorded(lanes: Any) -> None:
    ends = lanes()
    assert (ends.flow.wants_to_read, ends.flow.wants_to_write(0)) == (True, False)
    ends.put(b"hello")
    ends.put(b" world")
    for _ in range(2):
        assert ends.flow.wants_to_write(0)
        ends.flow.write(0)
    assert (ends.got(), ends.flow.forwarded, bytes(ends.flow.recorded)) == (b"hello world", 11, b"hello wo")
    assert not ends.flow.wants_to_write(0)


def test_the_end_of_the_stream_goes_through_after_everything(lanes: Any) -> None:
    ends = lanes()
    ends.put(b"last")
    ends.into.shutdown(socket.SHUT_WR)
    ends.flow.read(0)
    assert (ends.flow.source_ended, ends.flow.wants_to_read) == (True, False)
    ends.flow.write(0)
    assert not ends.flow.finished
    ends.flow.write(0)
    assert (ends.flow.finished, ends.flow.due()) == (True, None)
    assert (ends.out.recv(10), ends.out.recv(10)) == (b"last", b"")


def test_a_stalled_lane_neither_reads_nor_writes(lanes: Any) -> None:
    ends = lanes()
    ends.put(b"x")
    ends.flow.change({"stalled": True})
    assert (ends.flow.wants_to_read, ends.flow.wants_to_write(math.inf), ends.flow.due()) == (False, False, None)
    ends.flow.change({"stalled": False})
    assert ends.flow.wants_to_write(0)


def test_a_full_lane_does_not_read(lanes: Any) -> None:
    ends = lanes()
    while ends.flow.wants_to_read:
        ends.put(b"x" * 10_000)
    held = 0
    while ends.flow.wants_to_write(0):
        ends.flow.write(0)
        held += len(ends.got())
    assert held == HELD
    assert ends.flow.wants_to_read


def test_a_chopped_lane_writes_byte_by_byte(lanes: Any) -> None:
    ends = lanes(chop=1)
    ends.put(b"abc")
    for byte in (b"a", b"b", b"c"):
        ends.flow.write(0)
        assert ends.got() == byte


def test_latency_holds_each_byte_for_its_time(lanes: Any) -> None:
    ends = lanes(latency=2.0)
    ends.put(b"a", now=10.0)
    ends.put(b"b", now=11.0)
    assert (ends.flow.due(), ends.flow.wants_to_write(11.9), ends.flow.wants_to_write(12.0)) == (12.0, False, True)
    ends.flow.write(12.0)
    assert (ends.flow.due(), ends.got()) == (13.0, b"a")


def test_a_throttled_lane_writes_by_its_rate(lanes: Any) -> None:
    ends = lanes(rate=1_000.0)
    ends.put(b"x" * 100)
    now, times = 5.0, []
    while ends.flow.due() is not None:
        now = max(now, ends.flow.due())
        times.append(now)
        ends.flow.write(now)
    assert len(ends.got()) == 100
    assert times[0] == 5.0
    assert times[-1] == pytest.approx(5.09)


def test_a_slow_rate_writes_single_bytes(lanes: Any) -> None:
    ends = lanes(rate=2.0)
    ends.put(b"ab")
    ends.flow.write(1.0)
    assert (ends.got(), ends.flow.due()) == (b"a", 1.5)
    ends.flow.change({"rate": math.inf})
    assert ends.flow.wants_to_write(1.0)


@pytest.mark.parametrize("size", [0, 1, 5, 6])
def test_a_cut_lane_lets_exactly_so_many_through(lanes: Any, size: int) -> None:
    ends = lanes()
    ends.put(b"before")
    ends.flow.write(0)
    ends.got()
    ends.flow.change({"cut_after": size})
    ends.put(b"after ")
    while not ends.flow.is_cut:
        ends.flow.write(0)
    assert ends.got() == b"after "[:size]


def test_another_change_does_not_count_a_cut_anew(lanes: Any) -> None:
    ends = lanes(cut_after=3)
    ends.put(b"ab")
    ends.flow.write(0)
    ends.flow.change({"chop": 1})
    ends.put(b"cd")
    ends.flow.write(0)
    assert (ends.flow.is_cut, ends.got()) == (True, b"abc")
