from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from stompy.deadline import Deadline
from stompy.errors import NotConnectedError
from stompy.testing.proxy_loop import READ, WRITE, ProxyEventLoop
from tests.testing.conftest import WITHIN

Calling = Callable[[], None]


class Echo:
    """Returns what it reads, doubled; counts its turns."""

    def __init__(self, loop: ProxyEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self._sock = sock
        self._pending = b""
        self.at: float | None = None
        self.looked: list[float] = []
        self.seen = threading.Event()
        self.closed = False

    def wanted(self, now: float) -> Mapping[socket.socket, int]:
        return {self._sock: WRITE if self._pending else READ}

    def due(self, now: float) -> float | None:
        return self.at if self.at is not None and self.at > now else None

    def look(self, now: float) -> None:
        if self.at is not None and self.at <= now:
            self.looked.append(now)
            self.at = None
            self.seen.set()

    def ready(self, sock: socket.socket, events: int, now: float) -> None:
        if events & READ:
            self._pending = sock.recv(100) * 2
            if not self._pending:
                self.close()
        elif events & WRITE:
            self._pending = self._pending[sock.send(self._pending) :]

    def close(self) -> None:
        self.closed = True
        self._loop.close_socket(self._sock)


class Served:
    def __init__(self) -> None:
        self.turns = 0
        self.loop = ProxyEventLoop("stompy-proxy-test", after_turn=self._turned)
        self.sock, ours = socket.socketpair()
        self.sock.settimeout(WITHIN)
        ours.setblocking(False)
        self.echo = Echo(self.loop, ours)
        self.loop.add(self.echo)

    def _turned(self) -> None:
        self.turns += 1

    def stop(self) -> None:
        self.loop.stop()
        assert self.loop.join_until(Deadline(WITHIN))


@pytest.fixture
def served(no_descriptor_left: None) -> Iterator[Served]:
    made = Served()
    made.loop.start()
    yield made
    made.stop()
    made.sock.close()


def test_a_member_is_told_what_is_ready(served: Served) -> None:
    for _ in range(3):
        served.sock.sendall(b"ab")
        assert served.sock.recv(100) == b"abab"
    assert served.turns >= 3


def test_a_member_that_closes_is_let_go(served: Served) -> None:
    served.sock.shutdown(socket.SHUT_WR)
    assert served.sock.recv(1) == b""
    assert served.loop.call(lambda: served.echo.closed)


def test_a_member_is_woken_at_its_time(served: Served) -> None:
    at = 0.0

    def soon() -> None:
        nonlocal at
        at = served.echo.at = time.monotonic() + 0.02

    served.loop.call(soon)
    assert served.echo.seen.wait(WITHIN)
    assert served.echo.looked[0] >= at


def test_a_call_runs_on_the_thread_and_returns_its_result(served: Served) -> None:
    assert served.loop.call(lambda: threading.current_thread().name) == "stompy-proxy-test"
    assert served.loop.call(lambda: served.loop.call(lambda: 7)) == 7


def test_a_call_that_fails_raises_at_the_caller_and_the_loop_goes_on(served: Served) -> None:
    with pytest.raises(ZeroDivisionError):
        served.loop.call(lambda: 1 // 0)
    assert served.loop.call(lambda: 7) == 7


def test_a_stopped_loop_closes_its_members_and_takes_no_calls(served: Served) -> None:
    served.stop()
    assert served.sock.recv(1) == b""
    with pytest.raises(NotConnectedError):
        served.loop.call(lambda: 7)
    served.loop.stop()


@pytest.mark.usefixtures("quick_switches", "no_descriptor_left")
def test_calls_that_meet_the_end_are_answered_one_way_or_the_other() -> None:
    for _ in range(50):
        served = Served()
        served.loop.start()
        answers: list[object] = []

        def ask(loop: ProxyEventLoop = served.loop, answers: list[object] = answers) -> None:
            for _ in range(20):
                try:
                    answers.append(loop.call(lambda: 7))
                except NotConnectedError:
                    answers.append(None)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        served.stop()
        for thread in threads:
            thread.join(WITHIN)
        assert len(answers) == 60
        served.sock.close()


@pytest.mark.usefixtures("no_descriptor_left")
def test_a_loop_that_was_never_started_can_be_released() -> None:
    served = Served()
    served.loop.release()
    assert served.sock.recv(1) == b""
    served.sock.close()
