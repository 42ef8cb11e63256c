"""Several threads send on one connection, whose peer reads little, while signals interrupt one of them."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

import stompy
from stompy import locks
from tests.support.peer import WITHIN
from tests.support.seed import chance as drawn

_FRAMES = 60
_ROUNDS = 15


class _Interrupt(BaseException):
    """What the signal handler raises."""


class _Peer(threading.Thread):
    """Reads all that arrives, a little at a time."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.port = self._listener.getsockname()[1]
        self.data = b""

    def run(self) -> None:
        sock, _ = self._listener.accept()
        with self._listener, sock, contextlib.suppress(OSError):
            sock.recv(1000)
            sock.sendall(b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0")
            while data := sock.recv(self._chance.choice((1000, 5000, 100_000))):
                self.data += data


class _Sending:
    """What the calls of one thread came to."""

    def __init__(self, connection: stompy.Connection, thread: int, chance: random.Random) -> None:
        self._connection, self._thread = connection, thread
        self._sizes = [chance.choice((0, 10, 3000, 30_000)) for _ in range(_FRAMES)]
        self.position = 0
        self.sent: set[int] = set()
        self.failed: tuple[int, str] | None = None

    def run(self) -> None:
        """Send until all is sent or a call fails; goes on after an interrupt with the next frame."""
        while self.position < _FRAMES and self.failed is None:
            number, self.position = self.position, self.position + 1
            try:
                self._connection.send("/queue/a", b"%d %d " % (self._thread, number) + b"x" * self._sizes[number])
                self.sent.add(number)
            except stompy.SessionError as error:
                self.failed = number, error.outcome
            except stompy.NotConnectedError:
                self.failed = number, "not-sent"


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(locks, "checked", False)  # a checked lock is Python code, in which a signal may raise

    def interrupt(*_: object) -> None:
        raise _Interrupt

    before, interval = signal.signal(signal.SIGALRM, interrupt), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)
    signal.signal(signal.SIGALRM, before)


def _interrupted(sending: _Sending, chance: random.Random) -> None:
    """Let a thread, the main one, send while signals arrive."""
    while sending.failed is None and sending.position < _FRAMES:
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-5, 3e-3))
            sending.run()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except _Interrupt:
            pass


def _bodies(data: bytes) -> list[tuple[int, int]]:
    """Return thread and number of each frame; only the last one may be incomplete."""
    whole = data.split(b"\0")[:-1]
    found = []
    for frame in whole:
        if frame.lstrip().startswith(b"DISCONNECT"):
            continue
        match = re.fullmatch(rb"SEND\ndestination:/queue/a\ncontent-length:(\d+)\n\n((\d) (\d+) x*)", frame)
        assert match is not None, frame[:100]
        assert len(match[2]) == int(match[1])
        found.append((int(match[3]), int(match[4])))
    return found


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no timers that signal")
# An interrupt in the callback of a weak reference is printed by Python, and reaches nobody.
@pytest.mark.filterwarnings("ignore:Exception ignored .*WeakSet:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("number", range(_ROUNDS))
def test_frames_stay_whole_and_what_calls_say_is_true(number: int) -> None:
    chance = drawn("shared writes", number)
    peer = _Peer(chance)
    peer.start()
    limits = stompy.Timeouts(send=WITHIN)
    connection = stompy.connect(f"stomp://127.0.0.1:{peer.port}", heartbeat=(0, 0), reconnect=False, timeouts=limits)
    sendings = [_Sending(connection, thread, chance) for thread in range(4)]
    threads = [threading.Thread(target=sending.run) for sending in sendings[1:]]
    for thread in threads:
        thread.start()
    _interrupted(sendings[0], chance)
    for thread in threads:
        thread.join(WITHIN)
        assert not thread.is_alive()
    with contextlib.suppress(stompy.StompError):
        connection.close(timeout=0.5)
    peer.join(WITHIN)
    ended = any(sending.failed for sending in sendings)
    arrived = _bodies(peer.data)
    assert len(set(arrived)) == len(arrived)
    for index, sending in enumerate(sendings):
        got = [number for thread, number in arrived if thread == index]
        assert got == sorted(got)
        assert ended or sending.sent <= set(got)
        if sending.failed is not None and sending.failed[1] == "not-sent":
            assert sending.failed[0] not in got
