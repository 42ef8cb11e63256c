"""Links over memory streams whose other end is a scripted broker, and calls in threads of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from stompy.transport.memory import memory_pair
from tests.support.peer import Linked, link_over
from tests.transport.conftest import Call


class Linking(Protocol):
    def __call__(self, *, capacity: int = 65_536, **options: Any) -> Linked: ...


class Calling(Protocol):
    def __call__(self, function: Callable[[], Any], /) -> Call: ...


@pytest.fixture
def calling() -> Iterator[Calling]:
    """Start functions in threads; what a test leaves running fails it."""
    calls = []

    def start(function: Callable[[], Any]) -> Call:
        call = Call(function)
        calls.append(call)
        call.start()
        return call

    yield start
    for call in calls:
        call.join(20)
    assert not [call for call in calls if call.is_alive()]


@pytest.fixture
def linking(calling: Calling) -> Iterator[Linking]:
    """Return a function that makes a link; all are closed before `calling` looks for calls that never ended."""
    with contextlib.ExitStack() as stack:

        def make(*, capacity: int = 65_536, **options: Any) -> Linked:
            ours, theirs = memory_pair(capacity)
            linked = link_over(ours, theirs, **options)
            stack.callback(linked.close)
            return linked

        yield make
