"""The record of a simulated world: outcomes of calls, messages that were handled, messages that are left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import stompy
from stompy.compat.exception import NotConnectedException, StompException
from stompy.errors import StompError
from stompy.testing.world import current_world
from tests.simulation import outboxes, spools, workers

if TYPE_CHECKING:
    from tests.simulation.plans import Plan

SLACK = 1.0


class HandlerError(Exception):
    """What a handler raises."""


@dataclass
class Sent:
    """A message, and its outcome for its program.

    It is `sending`, until a call returned or raised, and `timed-out` if the call did not wait for the answer.
    """

    body: str
    queue: str
    sender: str
    outcome: str = "sending"
    block: str | None = None
    resends: bool = False


@dataclass
class Handled:
    """A message that a handler has finished, and when it got it."""

    at: float
    queue: str
    body: str
    consumer: str
    redelivered: bool
    dedupe_id: str | None


@dataclass
class Seen:
    """The record."""

    plan: Plan
    sent: dict[str, Sent] = field(default_factory=dict)
    handled: list[Handled] = field(default_factory=list)
    written: Counter[str] = field(default_factory=Counter)
    """How many times a producer has written a message without `stompy-dedupe-id`."""
    answered: dict[str, str] = field(default_factory=dict)
    """By body, the answer of the broker that its program has read: "confirmed" or "rejected"."""
    read: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By process, the bodies of the messages that its sessions have read, in order."""
    owed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By process, those that its sessions have read before it ended a subscription."""
    acknowledged: dict[str, float] = field(default_factory=dict)
    """By body, when the broker had confirmed an ACK."""
    left: Counter[str] = field(default_factory=Counter)
    watches: list[workers.Watch] = field(default_factory=list)
    """What workers noted."""
    stored: list[outboxes.Stored] = field(default_factory=list)
    arrivals: list[outboxes.Arrival] = field(default_factory=list)
    """What the broker received, if there are outboxes."""
    spooled: list[spools.Spooled] = field(default_factory=list)
    """What the readers of spools have read."""
    breaches: list[str] = field(default_factory=list)
    unsent: set[str] = field(default_factory=set)
    """Programs for stomp.py that live and have not sent all."""
    opened: int = 0
    """Connections that programs have opened."""
    over: bool = False
    """Whether programs close their connections, whatever their other threads do with them."""
    early_commits: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        """Note what happened."""
        world = current_world()
        self.trace.append(f"{world.now - 1000:9.3f} {world.current.process:10} {what}")

    @contextmanager
    def call(self, what: str, limit: float) -> Iterator[None]:
        """Note how a call ends; it must end in time, and raise what the package documents."""
        began = current_world().now
        self.note(what)
        try:
            yield
        except (StompError, StompException) as error:
            self.note(f"{what}: {type(error).__name__}: {error} {getattr(error, 'outcome', '')}")
            closed = (stompy.NotConnectedError, NotConnectedException) if self.over else ()
            usual = (stompy.ReceiveTimeoutError, *closed)
            if any(each.leaves for each in self.plan.consumers):
                usual += (stompy.AckError,)
            # A program for stomp.py gets a receipt behind the messages before it, as from stomp.py itself.
            late = "did not arrive" in str(error) and any(each.slow for each in self.plan.drop_ins)
            if self.plan.calm and not late and not isinstance(error, usual):
                self.breaches.append(f"{what} failed, although nothing broke: {error}")
            raise
        finally:
            took = current_world().now - began
            if took > limit + SLACK:
                self.breaches.append(f"{what} took {took:.1f} s, its limit is {limit:g} s")

    @contextmanager
    def outcome(self, block: list[Sent], success: str) -> Iterator[None]:
        """Note how a call ends, for its messages."""
        try:
            yield
        except (StompError, StompException) as error:
            for sent in block:
                sent.outcome = outcome_of(error)
            raise
        except HandlerError:
            for sent in block:
                sent.outcome = "not-sent"
            raise
        for sent in block:
            sent.outcome = success


def outcome_of(error: StompError | StompException) -> str:
    """Return what the error of a call says of its frame."""
    if isinstance(error, stompy.OutboxFullError):
        return "not-sent"
    if isinstance(error, NotConnectedException) and not isinstance(error, OSError):
        return "not-sent"
    if isinstance(error, StompException):
        return "rejected" if "refused receipt" in str(error) else "unknown"
    outcome = str(getattr(error, "outcome", None) or "unknown")
    return "timed-out" if isinstance(error, stompy.ReceiptTimeoutError) and outcome == "unknown" else outcome
