from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from stompy.testing.faults import SENT, Cut, CutAfter, Delay, Drop, FaultInjector, FaultPlan
from stompy.testing.proxied import HELD, DirectionFaults, ProxyDirection


class Ends:
    """A flow between two pairs of sockets."""

    def __init__(self, plan: FaultPlan | None = None, **faults: Any) -> None:
        self.into, source = socket.socketpair()
        sink, self.out = socket.socketpair()
        self._socks = (self.into, source, sink, self.out)
        for sock in self._socks:
            sock.setblocking(False)
        injector = None if plan is None else FaultInjector(plan, link=1, direction=SENT)
        self.flow = ProxyDirection(source, sink, faults=DirectionFaults(**faults), record=8, injector=injector)

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

    def make(*plan: FaultPlan, **faults: Any) -> Ends:
        made.append(Ends(*plan, **faults))
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
    assert not ends.flow.wants_to_read
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
    while ends.flow.cut() is None:
        ends.flow.write(0)
    assert ends.got() == b"after "[:size]
    assert ends.flow.cut() == ("fin", None)


def test_another_change_does_not_count_a_cut_anew(lanes: Any) -> None:
    ends = lanes(cut_after=3)
    ends.put(b"ab")
    ends.flow.write(0)
    ends.flow.change({"chop": 1})
    ends.put(b"cd")
    ends.flow.write(0)
    assert (ends.flow.cut(), ends.got()) == (("fin", None), b"abc")


# Faults of a plan

FIRST = b"RECEIPT\nreceipt-id:1\n\n\0"
SECOND = b"RECEIPT\nreceipt-id:2\n\n\0"


def run(ends: Ends, now: float = 0.0) -> bytes:
    """Write what may be written, and return it."""
    while ends.flow.cut() is None and ends.flow.wants_to_write(now):
        ends.flow.write(now)
    return ends.got()


@pytest.mark.parametrize("size", range(len(FIRST) + 2))
def test_a_link_ends_at_exactly_the_byte_asked_for(lanes: Any, size: int) -> None:
    far, near = CutAfter(sent=100), CutAfter(sent=size)
    for reads in ([FIRST + SECOND], [bytes((byte,)) for byte in FIRST + SECOND]):
        ends = lanes(FaultPlan(far, near))
        for data in reads:
            ends.put(data)
        assert run(ends) == (FIRST + SECOND)[:size]
        assert ends.flow.cut() == ("fin", near)


def test_bytes_are_counted_as_the_client_gets_them(lanes: Any) -> None:
    ends = lanes(FaultPlan(Drop("RECEIPT", nth=1), CutAfter(sent=10)))
    ends.put(FIRST + SECOND)
    assert run(ends) == SECOND[:10]


@pytest.mark.parametrize("keep", [0, 4, None])
def test_a_link_ends_at_a_frame_and_nothing_passes_after_it(lanes: Any, keep: int | None) -> None:
    fault = Cut("RECEIPT", nth=1, keep=keep)
    ends = lanes(FaultPlan(fault))
    ends.put(FIRST + SECOND)
    assert run(ends) == FIRST[:keep]
    assert ends.flow.cut() == ("fin", fault)
    assert ends.flow.due() is None


def test_a_delay_ends_in_time_or_by_a_release(lanes: Any) -> None:
    plan = FaultPlan(Delay("RECEIPT", nth=1, seconds=3), Delay("RECEIPT", nth=2))
    ends = lanes(plan)
    ends.put(FIRST + SECOND, now=10.0)
    assert (ends.flow.due(), run(ends, 13.0)) == (13.0, FIRST)
    assert (ends.flow.due(), run(ends, 1_000.0)) == (None, b"")
    plan.release()
    assert run(ends, 13.0) == SECOND
