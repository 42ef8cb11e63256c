from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from stompy.deadline import Deadline
from stompy.transport import poll

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@pytest.fixture(params=["_by_poll", "_by_selector"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(poll, request.param):
        pytest.skip("not on this platform")
    monkeypatch.setattr(poll, "_wait_once", getattr(poll, request.param))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        yield one, other


def test_bytes_make_readable(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    assert not poll.wait_readable(one.fileno(), deadline=Deadline(0))
    other.send(b"x")
    assert poll.wait_readable(one.fileno(), deadline=None)


def test_the_end_makes_readable(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    other.close()
    assert poll.wait_readable(one.fileno(), deadline=None)


def test_any_of_several_makes_readable(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    one.send(b"x")
    assert poll.wait_readable(one.fileno(), other.fileno(), deadline=Deadline(None))


def test_room_makes_writable(ends: tuple[socket.socket, socket.socket]) -> None:
    one, _ = ends
    assert poll.wait_writable(one.fileno(), deadline=None)
    with contextlib.suppress(BlockingIOError):
        while True:
            one.send(b"x" * 65_536)
    assert not poll.wait_writable(one.fileno(), deadline=Deadline(0.001))


def test_a_deadline_longer_than_one_system_call_may_take_is_waited_for_in_parts(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ends
    parts: list[float] = []

    def wait_once(fds: Sequence[int], *, writing: bool, seconds: float) -> bool:
        parts.append(seconds)
        if len(parts) == 3:
            other.send(b"x")
        return really_wait(fds, writing=writing, seconds=seconds)

    really_wait = poll._wait_once
    monkeypatch.setattr(poll, "_LONGEST_WAIT", 0.001)
    monkeypatch.setattr(poll, "_wait_once", wait_once)
    assert poll.wait_readable(one.fileno(), deadline=Deadline(3600))
    assert parts == [0.001] * 3


def test_a_deadline_of_many_years_does_not_overflow(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    other.send(b"x")
    assert poll.wait_readable(one.fileno(), deadline=Deadline(1e12))
