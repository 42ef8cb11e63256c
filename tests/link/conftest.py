"""Links over memory streams whose other end is a scripted broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from stompy.transport.memory import memory_pair
from tests.support.peer import Linked, link_over
from tests.transport.conftest import Calling
from tests.transport.conftest import calling as calling  # the fixture serves here too


class Linking(Protocol):
    def __call__(self, *, capacity: int = 65_536, **options: Any) -> Linked: ...


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
