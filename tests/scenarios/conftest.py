"""One set of scenarios, several brokers: the embedded one, and a real ActiveMQ where there is one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.support.activemq import ActiveMQ

SOON = 20.0
"""Seconds that something may take before the test fails."""

LOGIN, PASSCODE = "scenario", "sesame"


@dataclass(frozen=True)
class Candidate:
    """A broker under test, and where its behaviour is its own choice.

    Attributes:
        name: `embedded` or `activemq`.
        url: takes the login above and no other.
        dead_letters: where refused messages end.
        redeliveries: how often a NACKed message comes back before it goes there.
        headers: SEND headers without which a refused message is dropped instead.
        refusal: the words for a wrong passcode.
    """

    name: str
    url: str
    dead_letters: str
    redeliveries: int
    headers: dict[str, str]
    refusal: str


@pytest.fixture(scope="session", params=["embedded", "activemq"])
def candidate(request: pytest.FixtureRequest) -> Iterator[Candidate]:
    with ExitStack() as stack:
        if request.param == "embedded":
            broker = stack.enter_context(Broker(users={LOGIN: PASSCODE}, max_redeliveries=2))
            yield Candidate("embedded", broker.url, "/queue/DLQ", 2, {}, "access refused")
            return
        missing = ActiveMQ.available()
        if missing is not None:
            if "activemq" in os.environ.get("STOMPY_REQUIRE_BROKERS", ""):
                pytest.fail(f"ActiveMQ is required: {missing}")
            pytest.skip(f"no ActiveMQ: {missing}")
        real = stack.enter_context(ActiveMQ(users={LOGIN: PASSCODE}))
        # It takes a NACK for poison at once, and drops the message silently unless it is persistent.
        yield Candidate("activemq", real.url, "/queue/ActiveMQ.DLQ", 0, {"persistent": "true"}, "password is invalid")


Connecting = Callable[..., stompy.Connection]


@pytest.fixture
def connecting(candidate: Candidate) -> Iterator[Connecting]:
    """Return a function that connects to the broker under test; what it made is closed at the end."""
    with ExitStack() as stack:

        def make(**options: Any) -> stompy.Connection:
            settings = {"login": LOGIN, "passcode": PASSCODE, "heartbeat": (0, 0), **options}
            return stack.enter_context(stompy.connect(candidate.url, **settings))

        yield make


@pytest.fixture
def queue() -> str:
    """Return a queue that no other test uses."""
    return f"/queue/{uuid.uuid4().hex}"


@pytest.fixture
def topic() -> str:
    """Return a topic that no other test uses."""
    return f"/topic/{uuid.uuid4().hex}"
