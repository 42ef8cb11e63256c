"""Watches end when nobody reads them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from stompy.broker.console import KEPT, Watch, Watches
from stompy.broker.destinations import targets_of
from stompy.broker.router import BrokerRouter
from stompy.broker.settings import FrameHook, Settings
from stompy.frames.frame import Frame
from tests.broker.conftest import a_message, a_session_state

(QUEUE,) = targets_of("/queue/a", "")
(TOPIC,) = targets_of("/topic/a", "")


@pytest.fixture
def router() -> BrokerRouter:
    return BrokerRouter(Settings(), instance="test")


@pytest.fixture
def watches(router: BrokerRouter) -> Watches:
    """Return watches that are over at once."""
    return Watches(router, unread=0.0)


def passed(watch: Watch) -> list[dict[str, Any]]:
    found = watch.read()["passed"]
    assert isinstance(found, list)
    return found


def publish(router: BrokerRouter, destination: str, body: bytes) -> None:
    with router.turn():
        router.publisher.publish(a_message(destination, body))


@pytest.mark.parametrize("target", [QUEUE, TOPIC], ids=["queue", "topic"])
def test_a_tap_that_nobody_reads_ends(router: BrokerRouter, watches: Watches, target: object) -> None:
    with router.turn():
        tap = watches.messages("me", target, selector="", text="")  # type: ignore[arg-type]
    publish(router, "/queue/b", b"x")
    assert router.publisher.taps == ()
    publish(router, "/queue/a", b"x")
    publish(router, "/topic/a", b"x")
    assert tap.seen == 0


def test_a_watch_that_nobody_reads_ends_with_the_next_one(router: BrokerRouter, watches: Watches) -> None:
    with router.turn():
        for target in (QUEUE, TOPIC):
            watches.messages("me", target, selector="", text="")
    assert len(router.publisher.taps) == 1


def test_a_queue_is_watched_though_it_is_empty_and_forgotten_meanwhile(router: BrokerRouter) -> None:
    watches = Watches(router, unread=1000.0)
    with router.turn():
        tap = watches.messages("me", QUEUE, selector="", text="")
        assert watches.messages("me", QUEUE, selector="", text="") is tap
        assert watches.messages("me", QUEUE, selector="", text="y") is not tap
    router.tick()
    publish(router, "/queue/a", b"x")
    with router.turn():
        router.publisher.take_out("/queue/a", lambda item: True)
    publish(router, "/queue/a", b"y")
    assert [seen["body"] for seen in passed(tap)] == ["x", "y"]
    assert router.topology.queues["/queue/a"].ready == 1


def test_the_frames_of_a_session_are_noted(router: BrokerRouter) -> None:
    watches, session = Watches(router, unread=1000.0), a_session_state()
    hooks: list[tuple[FrameHook, ...]] = []
    sent = Frame("SEND", {"passcode": "sesame", "Authorization": "Bearer x"}, b"x" * 5000)
    session.watch = lambda *given: hooks.append(given)
    with router.turn():
        watch = watches.frames("me", session)
        watches.frames("other", session)
    assert [len(given) for given in hooks] == [1, 2]
    hooks[0][0]("received", "s-1", sent)
    (seen,) = passed(watch)
    assert seen["headers"] == (("passcode", "***"), ("Authorization", "***"))
    assert (len(seen["body"]), seen["size"]) == (2048, 5000)


def test_frames_that_nobody_reads_are_no_longer_noted(watches: Watches, router: BrokerRouter) -> None:
    session, hooks = a_session_state(), list[tuple[FrameHook, ...]]()
    session.watch = lambda *given: hooks.append(given)
    with router.turn():
        watches.frames("me", session)
    hooks[0][0]("received", "s-1", Frame("SEND"))
    assert hooks[-1] == ()


def test_watches_keep_the_start_of_large_bodies_only(router: BrokerRouter) -> None:
    watches, session = Watches(router, unread=1000.0), a_session_state()
    hooks: list[FrameHook] = []
    session.watch = lambda *given: hooks.extend(given)
    with router.turn():
        messages, frames = watches.messages("me", QUEUE, selector="", text=""), watches.frames("me", session)
    tracemalloc.start()
    for _ in range(KEPT):
        publish(router, "/queue/a", bytes(1_000_000))
        with router.turn():
            router.publisher.take_out("/queue/a", lambda item: True)
        hooks[0]("received", "s-1", Frame("SEND", {"destination": "/queue/a"}, bytes(1_000_000)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3_000_000
    assert len(passed(messages)) == len(passed(frames)) == KEPT
