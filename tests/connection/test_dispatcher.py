"""The thread that runs user code, and calls from it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import stompy
from stompy.connection.routing import Dispatcher, run_logged
from stompy.deadline import Deadline
from tests.connection.conftest import Acting, Recorder, Serving, Talking
from tests.support.peer import WITHIN, until
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    one = Dispatcher("stompy-test-dispatcher")
    one.start()
    yield one
    one.stop()
    assert one.join_until(Deadline(WITHIN))


def test_jobs_run_one_at_a_time_in_order_on_its_thread(dispatcher: Dispatcher) -> None:
    seen: list[tuple[int, str]] = []
    for number in range(100):
        assert dispatcher.put(lambda number=number: seen.append((number, threading.current_thread().name)))  # type: ignore[misc]
    assert dispatcher.wait_idle(Deadline(WITHIN))
    assert seen == [(number, "stompy-test-dispatcher") for number in range(100)]


def test_a_job_that_raises_is_logged_and_the_next_one_runs(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()
    with caplog.at_level(logging.ERROR, "stompy.connection"):
        dispatcher.put(lambda: 1 / 0)  # type: ignore[arg-type]
        dispatcher.put(done.set)
        assert done.wait(WITHIN)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_what_is_no_exception_ends_no_dispatcher_either(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    done = threading.Event()

    def fail() -> None:
        raise error

    with caplog.at_level(logging.ERROR, "stompy.connection"):
        dispatcher.put(fail)
        dispatcher.put(done.set)
        assert done.wait(WITHIN)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_in_the_main_thread_what_ends_the_program_is_raised() -> None:
    with pytest.raises(SystemExit):
        run_logged(sys.exit)


def test_what_was_queued_before_the_stop_still_runs_and_nothing_later(dispatcher: Dispatcher) -> None:
    gate = threading.Event()
    seen: list[str] = []

    def wait() -> None:
        assert gate.wait(WITHIN)

    dispatcher.put(wait)
    dispatcher.put(lambda: seen.append("queued"))
    dispatcher.stop()
    assert not dispatcher.put(lambda: seen.append("late"))
    gate.set()
    assert dispatcher.join_until(Deadline(WITHIN))
    assert seen == ["queued"]


def test_it_is_idle_only_when_nothing_is_queued_or_running(dispatcher: Dispatcher) -> None:
    gate, running = threading.Event(), threading.Event()

    def job() -> None:
        running.set()
        assert gate.wait(WITHIN)

    dispatcher.put(job)
    assert running.wait(WITHIN)
    assert not dispatcher.wait_idle(Deadline(0))
    gate.set()
    assert dispatcher.wait_idle(Deadline(WITHIN))


def test_it_does_not_wait_for_its_own_job(dispatcher: Dispatcher) -> None:
    answers: list[bool] = []
    dispatcher.put(lambda: answers.append(dispatcher.wait_idle(Deadline(WITHIN))))
    until(lambda: answers)
    assert answers == [True]


def test_many_threads_may_put(dispatcher: Dispatcher, calling: Calling) -> None:
    seen: list[int] = []
    calls = [calling(lambda: [dispatcher.put(lambda: seen.append(1)) for _ in range(500)]) for _ in range(4)]
    for call in calls:
        call.result()
    assert dispatcher.wait_idle(Deadline(WITHIN))
    assert len(seen) == 2000


def test_only_errors_of_user_code_are_swallowed() -> None:
    def leave() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        run_logged(leave)


# Calls from inside


def test_send_subscribe_ack_and_receipts_work_inside_a_handler(serving: Serving) -> None:
    conn, served = serving()
    done: list[str] = []

    def handler(message: stompy.Message) -> None:
        conn.send("/queue/b", "x", confirm=True)
        receipt = conn.send_async("/queue/b", "y")
        assert receipt is not None
        receipt.result(WITHIN)
        other = conn.subscribe("/queue/c")
        with conn.transaction() as tx:
            tx.send("/queue/b", "z")
            tx.ack(message)
        other.close()
        done.append("done")

    conn.subscribe("/queue/a", handler, ack="client-individual", id="1")
    served.peer.deliver("x", ack="1")
    until(lambda: done)
    block = ["BEGIN", "SEND", "ACK", "BEGIN", "ABORT", "COMMIT"]
    assert served.commands()[1:] == ["SEND", "SEND", "SUBSCRIBE", *block, "UNSUBSCRIBE"]


def test_a_handler_may_unsubscribe_itself(serving: Serving) -> None:
    conn, served = serving()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        seen.append(message.text)
        subscription.close()

    subscription = conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("x")
    until(lambda: subscription.closed)
    assert seen == ["x"]
    assert conn.connected


def test_a_receipt_behind_the_messages_that_fill_the_inbox_comes_inside_a_handler(serving: Serving) -> None:
    """The handler waits, so nobody empties the inbox; the wait itself keeps the reader reading."""
    held: list[stompy.Frame] = []

    def hold_back(frame: stompy.Frame) -> bool:
        held.extend([frame] if frame.command == "SEND" else [])
        return frame.command == "SEND"

    conn, served = serving(on=hold_back, limits=stompy.Limits(max_inbox_messages=2))
    outcome: list[str] = []

    def handler(message: stompy.Message) -> None:
        if not outcome:
            receipt = conn.send_async("/queue/b", "x")
            assert receipt is not None
            receipt.result(WITHIN)
            outcome.append(outcome_of(receipt))

    conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("first")
    until(lambda: held)
    for _ in range(50):
        served.peer.deliver("more")
    served.peer.receipt(held[0])
    until(lambda: outcome)
    assert outcome == ["confirmed"]


@pytest.mark.parametrize("event", ["on_connected", "on_message", "on_receipt"])
def test_disconnect_works_inside_a_listener(serving: Serving, event: str) -> None:
    held: list[stompy.Connection] = []
    ready = threading.Event()

    def leave(*what: Any) -> None:
        assert ready.wait(WITHIN)
        held[0].close()

    acting = Acting(event, leave)
    behind = Recorder()
    conn, served = serving(listeners=[acting, behind])
    held.append(conn)
    if event == "on_message":
        conn.subscribe("/queue/a", id="1")
        served.peer.deliver("x")
    elif event == "on_receipt":
        conn.send_async("/queue/a", "x")
    ready.set()
    acting.finished()
    assert not conn.connected
    assert behind.over.wait(WITHIN)
    assert behind.names.count("disconnected") == 1
    assert served.commands().count("DISCONNECT") == 1


def test_disconnect_works_inside_a_handler_and_the_rest_is_not_delivered(serving: Serving) -> None:
    conn, served = serving()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        seen.append(message.text)
        conn.close()

    conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("first", "second", "third")
    until(lambda: not conn.connected)
    served.join(WITHIN)
    conn.close()
    assert seen == ["first"]


def test_disconnect_works_inside_on_disconnected(talking: Talking) -> None:
    held: list[stompy.Connection] = []
    acting = Acting("on_disconnected", lambda event: held[0].close())
    talk = talking(listeners=[acting])
    held.append(talk.conn)
    talk.peer.hang_up()
    acting.finished()
