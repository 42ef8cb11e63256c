"""Threads of the house."""

from __future__ import annotations

import logging
import threading

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConnectError
from stompy.threads import DaemonThread
from tests.support.peer import WITHIN


class Gated(DaemonThread):
    def __init__(self) -> None:
        super().__init__("stompy-test-gated")
        self.go = threading.Event()
        self.seen: list[tuple[str, bool, bool, bool]] = []

    def run(self) -> None:
        assert self.go.wait(WITHIN)
        current = threading.current_thread()
        self.seen.append((current.name, current.daemon, self.is_current(), self.join_until(Deadline(0))))


def test_it_is_named_daemonic_and_knows_itself() -> None:
    thread = Gated()
    thread.start()
    assert not thread.is_current()
    thread.go.set()
    assert thread.join_until(Deadline(WITHIN))
    assert thread.seen == [("stompy-test-gated", True, True, True)]
    assert thread.ended


def test_a_join_ends_with_its_deadline() -> None:
    thread = Gated()
    thread.start()
    assert not thread.join_until(Deadline(0))
    assert not thread.ended
    thread.go.set()
    assert thread.join_until(Deadline(WITHIN))


def test_a_thread_that_was_never_started_needs_no_join() -> None:
    thread = Gated()
    assert thread.join_until(Deadline(0))
    assert not thread.ended


def test_a_join_in_the_middle_of_the_start_waits_for_the_end() -> None:
    class Begun(threading.Event):
        """Keeps a thread where it has an identity, and `threading` does not call it started yet."""

        def __init__(self) -> None:
            super().__init__()
            self.reached, self.go = threading.Event(), threading.Event()

        def set(self) -> None:
            self.reached.set()
            assert self.go.wait(WITHIN)
            super().set()

    thread = Gated()
    begun = thread._thread._started = Begun()  # type: ignore[attr-defined]
    starter = threading.Thread(target=thread.start, daemon=True)
    starter.start()
    assert begun.reached.wait(WITHIN)
    assert (thread.join_until(Deadline(0)), thread.ended) == (False, False)
    begun.go.set()
    thread.go.set()
    assert (thread.join_until(Deadline(WITHIN)), thread.ended) == (True, True)
    starter.join(WITHIN)


def test_a_thread_that_could_not_be_started_needs_no_join(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    thread = Gated()
    with pytest.raises(ConnectError, match="can't start new thread"):
        thread.start()
    assert thread.join_until(Deadline(0))
    assert not thread.ended


def test_a_bug_in_a_thread_is_logged_under_its_name(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(DaemonThread):
        def run(self) -> None:
            raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "stompy.link"):
        thread = Broken("stompy-test-broken")
        thread.start()
        assert thread.join_until(Deadline(WITHIN))
    (record,) = caplog.records
    assert "stompy-test-broken" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


class Exiting(DaemonThread):
    def run(self) -> None:
        raise SystemExit


def test_a_thread_that_ends_by_what_is_no_exception_says_so(caplog: pytest.LogCaptureFixture) -> None:
    thread = Exiting("stompy-test-exiting")
    with caplog.at_level(logging.ERROR, "stompy.link"):
        thread.start()
        assert thread.join_until(Deadline(WITHIN))
    assert "stompy-test-exiting ended by a bug" in caplog.text
