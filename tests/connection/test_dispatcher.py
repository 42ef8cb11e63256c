"""The thread that runs user code."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from stompy.connection.dispatcher import Dispatcher, run_reported
from stompy.deadline import Deadline
from tests.support.peer import WITHIN, until
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


def test_in_the_main_thread_what_ends_the_program_is_not_held_back() -> None:
    with pytest.raises(SystemExit):
        run_reported(sys.exit)


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
        run_reported(leave)
