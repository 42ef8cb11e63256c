"""The faulty transport over a memory pair; the broker with a plan is in test_faults."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import pytest

from stompy.broker.fault_transport import FaultListener, FaultTransport
from stompy.broker.faults import Cut, CutAfter, Delay, Drop, Fault, FaultPlan, Refuse
from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, SendTimeoutError, StompTimeoutError
from stompy.transport.memory import MemoryDialer, MemoryListener, MemoryTransport, memory_pair

T = TypeVar("T")

WITHIN = 20.0
FIRST = b"RECEIPT\nreceipt-id:1\n\n\0"
SECOND = b"RECEIPT\nreceipt-id:2\n\n\0"
SENT = b"SEND\ndestination:a\n\nx\0"


def soon() -> Deadline:
    return Deadline(WITHIN)


def in_thread(function: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="test-call", daemon=True).start()
    return future


def pair(*faults: Fault) -> tuple[FaultTransport, MemoryTransport, FaultPlan]:
    ours, theirs = memory_pair()
    plan = FaultPlan(*faults)
    return FaultTransport(ours, plan, link=1), theirs, plan


def rest(transport: MemoryTransport) -> bytes:
    received = b""
    while data := transport.recv(soon()):
        received += data
    return received


def test_both_ways_pass_without_faults() -> None:
    transport, peer, plan = pair()
    transport.sendall(FIRST, soon())
    peer.sendall(SENT, soon())
    assert (peer.recv(soon()), transport.recv(soon())) == (FIRST, SENT)
    assert plan.strikes == ()
    assert transport.peer in repr(transport)


def test_the_end_of_the_stream_passes_both_ways() -> None:
    transport, peer, _ = pair()
    transport.shutdown_write()
    peer.shutdown_write()
    assert (peer.recv(soon()), transport.recv(soon())) == (b"", b"")


def test_a_read_of_which_nothing_is_left_waits_for_the_next() -> None:
    transport, peer, _ = pair(Drop("SEND", nth=1))
    peer.sendall(SENT, soon())
    with pytest.raises(StompTimeoutError):
        transport.recv(Deadline(0))
    peer.sendall(SENT, soon())
    assert transport.recv(soon()) == SENT


def test_a_cut_of_what_is_sent_ends_both_ways() -> None:
    transport, peer, plan = pair(CutAfter(sent=30))
    with pytest.raises(ConnectionLostError):
        transport.sendall(FIRST + SECOND, soon())
    assert rest(peer) == (FIRST + SECOND)[:30]
    assert transport.recv(soon()) == b""
    assert len(plan.strikes) == 1
    with pytest.raises(ConnectionLostError):
        transport.sendall(FIRST, soon())


def test_a_cut_wakes_the_reader() -> None:
    transport, _, _ = pair(CutAfter(sent=1))
    read = in_thread(lambda: transport.recv(None))
    with pytest.raises(ConnectionLostError):
        transport.sendall(FIRST, soon())
    assert read.result(WITHIN) == b""


def test_what_was_received_before_a_cut_is_read_and_gets_no_answer() -> None:
    transport, peer, _ = pair(Cut("SEND", nth=2))
    peer.sendall(SENT * 3, soon())
    received = transport.recv(soon())
    with pytest.raises(ConnectionLostError):
        transport.sendall(FIRST, soon())
    while data := transport.recv(soon()):
        received += data
    assert received == SENT * 2
    assert rest(peer) == b""


def test_a_delay_of_what_is_sent_holds_back_what_is_behind_until_released() -> None:
    transport, peer, plan = pair(Delay("RECEIPT", nth=1))
    sending = in_thread(lambda: transport.sendall(FIRST + SECOND, Deadline(None)))
    plan.await_strikes(timeout=WITHIN)
    with pytest.raises(StompTimeoutError):
        peer.recv(Deadline(0))
    assert not sending.done()
    plan.release()
    sending.result(WITHIN)
    transport.shutdown_write()
    assert rest(peer) == FIRST + SECOND


def test_a_delay_has_its_own_time() -> None:
    transport, peer, plan = pair(Delay("RECEIPT", seconds=0.01), Delay("SEND", seconds=0.01))
    transport.sendall(FIRST, soon())
    peer.sendall(SENT, soon())
    assert (peer.recv(soon()), transport.recv(soon())) == (FIRST, SENT)
    assert len(plan.strikes) == 2


def test_a_delay_of_what_is_received_keeps_to_the_readers_deadline() -> None:
    transport, peer, plan = pair(Delay("SEND", nth=2))
    peer.sendall(SENT * 2 + b"\n", soon())
    assert transport.recv(soon()) == SENT
    for _ in range(2):
        with pytest.raises(StompTimeoutError):
            transport.recv(Deadline(0))
    assert len(plan.strikes) == 1
    plan.release()
    assert transport.recv(soon()) == SENT + b"\n"


def test_a_delay_of_what_is_sent_keeps_to_the_writers_deadline() -> None:
    transport, _, _ = pair(Delay("RECEIPT"))
    with pytest.raises(SendTimeoutError):
        transport.sendall(FIRST, Deadline(0))


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("end", ["shutdown", "close"])
def test_the_end_of_the_link_wakes_who_is_delayed(end: str) -> None:
    for _ in range(100):
        transport, peer, plan = pair(Delay("RECEIPT"), Delay("SEND"))
        peer.sendall(SENT, soon())
        reading = in_thread(lambda transport=transport: transport.recv(None))  # type: ignore[misc]
        writing = in_thread(lambda transport=transport: transport.sendall(FIRST, Deadline(None)))  # type: ignore[misc]
        plan.await_strikes(1, timeout=WITHIN)
        getattr(transport, end)()
        assert reading.result(WITHIN) == b""
        with pytest.raises(ConnectionLostError):
            writing.result(WITHIN)
        assert rest(peer) == b""


@pytest.mark.usefixtures("quick_switches")
def test_a_release_wakes_everybody_each_time() -> None:
    for _ in range(100):
        transport, peer, plan = pair(Delay("RECEIPT"), Delay("SEND"))
        peer.sendall(SENT, soon())
        reading = in_thread(lambda transport=transport: transport.recv(None))  # type: ignore[misc]
        writing = in_thread(lambda transport=transport: transport.sendall(FIRST, Deadline(None)))  # type: ignore[misc]
        plan.await_strikes(2, timeout=WITHIN)
        plan.release()
        writing.result(WITHIN)
        assert (reading.result(WITHIN), peer.recv(soon())) == (SENT, FIRST)


def test_a_refused_connection_is_closed_and_the_next_one_is_let_in() -> None:
    listener = MemoryListener()
    plan = FaultPlan(Refuse(link=1), Drop("SEND", link=2))
    faulty = FaultListener(listener, plan)
    dialer = MemoryDialer(listener)
    assert faulty.address == listener.address
    first, second = dialer.dial(soon()), dialer.dial(soon())
    accepted = faulty.accept()
    assert accepted is not None
    assert first.recv(soon()) == b""
    second.sendall(SENT + b"\n", soon())
    assert accepted.recv(soon()) == b"\n"
    assert [(strike.fault, strike.link) for strike in plan.strikes] == [(Refuse(link=1), 1), (Drop("SEND", link=2), 2)]
    assert plan.links == 2
    faulty.close()
    assert faulty.accept() is None
