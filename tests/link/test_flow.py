"""Flow control: when reading pauses and resumes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stompy.errors import ConfigurationError
from stompy.link.flow import FlowControl
from stompy.link.settings import Limits
from stompy.protocol.heartbeat import Heartbeats, HeartbeatTimer
from tests.support.peer import until
from tests.transport.conftest import Call, Calling
from tests.transport.conftest import calling as calling


class Waiting:
    """A message."""

    _counted = False
    size = 0


def flow_of(
    messages: int = 4, size: int = 100, hard_bytes: int = 1000, receive: float = 1.0, overhead: int = 0
) -> FlowControl:
    timer = HeartbeatTimer(Heartbeats(receive=receive), time.monotonic())
    return FlowControl(
        Limits(
            max_inbox_messages=messages,
            max_inbox_bytes=size,
            hard_max_inbox_bytes=hard_bytes,
            inbox_overhead=overhead,
        ),
        timer,
    )


@contextlib.contextmanager
def held(flow: FlowControl) -> Iterator[None]:
    """Keep reading enabled for a block."""
    holder = object()
    flow.hold(holder)
    yield
    flow.holders.discard(holder)


def paused_reader(flow: FlowControl, calling: Calling) -> Call:
    """Return a reader that waits because reading is paused."""
    reader = calling(flow.wait_while_paused)
    until(lambda: flow.paused)
    return reader


@pytest.mark.parametrize(("messages", "size"), [(3, 0), (0, 99), (3, 99)])
def test_below_its_marks_the_gate_is_open(messages: int, size: int) -> None:
    flow = flow_of()
    flow.added(messages, size)
    flow.wait_while_paused()
    assert (flow.paused, flow.times_paused) == (False, 0)
    assert flow.waiting() == (messages, size)


@pytest.mark.parametrize(("messages", "size"), [(4, 0), (1, 100), (100, 10_000)])
def test_a_mark_reached_shuts_the_gate(messages: int, size: int, calling: Calling) -> None:
    flow = flow_of()
    flow.added(messages, size)
    reader = paused_reader(flow, calling)
    assert flow.times_paused == 1
    flow.removed(messages, size)
    reader.result()
    assert not flow.paused


def test_the_gate_opens_at_half_of_both_marks(calling: Calling) -> None:
    flow = flow_of(messages=4, size=100)
    flow.added(4, 100)
    reader = paused_reader(flow, calling)
    flow.removed(1, 50)
    assert flow.paused
    flow.removed(1, 0)
    reader.result()
    flow.wait_while_paused()


def test_a_gate_of_one_message_opens_when_it_is_taken(calling: Calling) -> None:
    flow = flow_of(messages=1)
    flow.added(1, 0)
    reader = paused_reader(flow, calling)
    flow.removed(1, 0)
    reader.result()


def test_messages_taken_in_a_row_are_counted_before_anyone_looks_and_before_reading_pauses() -> None:
    flow = flow_of(messages=4)
    messages = [Waiting() for _ in range(3)]
    flow.queued(messages)
    flow.taken(messages[0], last=False)
    flow.taken(messages[1], last=False)
    flow.added(2, 0)
    assert flow.wait_while_paused(0)
    flow.taken(messages[2], last=False)
    flow.taken(messages[2], last=False)
    assert flow.waiting() == (2, 0)


def test_while_reading_is_paused_each_message_taken_is_counted_at_once(calling: Calling) -> None:
    flow = flow_of(messages=4)
    messages = [Waiting() for _ in range(4)]
    flow.queued(messages)
    reader = paused_reader(flow, calling)
    flow.taken(messages[0], last=False)
    assert flow.paused
    flow.taken(messages[1], last=False)
    reader.result()


def test_messages_dequeued_together_count_once_and_resume_reading(calling: Calling) -> None:
    flow = flow_of(messages=4)
    messages = [Waiting() for _ in range(4)]
    flow.queued(messages)
    reader = paused_reader(flow, calling)
    flow.taken(messages[0])
    assert flow.paused
    flow.dequeued(messages)
    reader.result()
    assert flow.waiting() == (0, 0)


def test_a_message_put_back_counts_again() -> None:
    flow = flow_of()
    message = Waiting()
    flow.queued([message])
    flow.taken(message, last=False)
    flow.put_back(message)
    assert flow.waiting() == (1, 0)


def test_somebody_who_waits_for_a_receipt_holds_the_gate_open(calling: Calling) -> None:
    flow = flow_of()
    flow.added(10, 100)
    reader = paused_reader(flow, calling)
    with held(flow):
        reader.result()
        flow.wait_while_paused()
        flow.added(10, 100)
        flow.wait_while_paused()
    paused_reader(flow, calling)
    flow.disable()


def test_the_gate_stays_held_until_the_last_holder_is_gone(calling: Calling) -> None:
    flow = flow_of()
    flow.added(10, 100)
    with held(flow):
        with held(flow):
            flow.wait_while_paused()
        flow.wait_while_paused()
    paused_reader(flow, calling)
    flow.disable()


def test_the_hard_limit_shuts_a_held_gate(calling: Calling) -> None:
    flow = flow_of(hard_bytes=1000)
    with held(flow):
        flow.added(1, 999)
        flow.wait_while_paused()
        flow.added(1, 1)
        reader = paused_reader(flow, calling)
        flow.removed(1, 1)  # nowhere near the low mark, but below the hard one
        reader.result()


def test_an_abandoned_gate_never_stops_anybody(calling: Calling) -> None:
    flow = flow_of()
    flow.added(10, 100)
    reader = paused_reader(flow, calling)
    flow.disable()
    reader.result()
    flow.added(100, 10_000)
    flow.wait_while_paused()


@pytest.mark.requirement("HBT-11")
def test_silence_is_death_while_the_gate_is_open() -> None:
    flow = flow_of(receive=1.0)
    now = time.monotonic()
    assert not any(flow.peer_dead(now + half / 2) for half in range(6))  # somebody looks often, so that no look is late
    assert flow.peer_dead(now + 3.2)


def test_silence_does_not_count_against_the_peer_while_reading_is_paused(calling: Calling) -> None:
    flow = flow_of(receive=1.0)
    flow.added(10, 100)
    reader = paused_reader(flow, calling)
    now = time.monotonic()
    assert not any(flow.peer_dead(now + seconds) for seconds in (1, 4, 4.5, 5, 100))
    flow.removed(10, 100)
    reader.result()


def test_the_silence_counts_from_the_moment_the_gate_opens(calling: Calling) -> None:
    timer = HeartbeatTimer(Heartbeats(receive=1.0), time.monotonic() - 1000)
    flow = FlowControl(Limits(max_inbox_messages=1), timer)
    flow.added(1, 0)
    reader = paused_reader(flow, calling)
    before = time.monotonic()
    flow.removed(1, 0)
    reader.result()
    assert timer.last_heard >= before
    assert not flow.peer_dead(before)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_inbox_messages": 0},
        {"max_inbox_bytes": 0},
        {"max_inbox_bytes": 100, "hard_max_inbox_bytes": 99},
        {"max_inbox_messages": -1},
    ],
)
def test_marks_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="inbox"):
        Limits(**wrong)


def test_empty_messages_weigh_something_too(calling: Calling) -> None:
    flow = flow_of(messages=1_000_000, size=100, hard_bytes=1000, overhead=10)
    flow.added(9, 0)
    flow.wait_while_paused()
    flow.added(1, 0)
    reader = paused_reader(flow, calling)
    with held(flow):
        reader.result()
        flow.added(89, 0)
        flow.wait_while_paused()
        flow.added(1, 0)
        paused_reader(flow, calling)
        flow.disable()


def test_an_overhead_below_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Limits(inbox_overhead=-1)
