"""The system refuses a thread just while a link is replaced: that is one more failed attempt, and not the end."""

from __future__ import annotations

import threading

import pytest

import stompy
from stompy.broker import Broker
from tests.support.peer import until

QUICK = stompy.Reconnect(backoff=stompy.Backoff(first=0.01, longest=0.05))


@pytest.mark.parametrize("part", ["reconnect", "reader", "heartbeat", "every"])
def test_a_thread_that_cannot_be_started_is_asked_for_again(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    start = threading.Thread.start

    def refuse_twice(thread: threading.Thread) -> None:
        mine = thread.name.startswith("stompy-roomy") and (part == "every" or part in thread.name)
        if mine and refused.count(thread.name) < 2 and len(refused) < 20:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with Broker() as broker, stompy.connect(broker.url, name="roomy", reconnect=QUICK, heartbeat=(5, 5)) as conn:
        subscription = conn.subscribe("/queue/a")
        monkeypatch.setattr(threading.Thread, "start", refuse_twice)
        broker.restart()
        until(lambda: conn.stats().reconnects == 1, "a new link")
        conn.send("/queue/a", "after", confirm=True)
        assert subscription.receive(timeout=20).text == "after"
    assert len(refused) >= 2


def test_closing_does_not_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if "reconnect" in thread.name:
            asked.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    reasons: list[object] = []

    class Closing(stompy.Listener):
        def on_closed(self, event: stompy.ClosedEvent) -> None:
            reasons.append(event.reason)

    with Broker() as broker:
        conn = stompy.connect(broker.url, reconnect=QUICK, listeners=[Closing()])
        monkeypatch.setattr(threading.Thread, "start", refuse)
        broker.close()
        assert asked.wait(20)
        conn.close()
        assert reasons == [None]


def test_a_first_connect_without_room_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if "reader" in thread.name and "roomy" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    with Broker() as broker:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(stompy.ConnectError, match="can't start new thread") as caught:
            stompy.connect(broker.url, name="roomy")
        assert caught.value.safe_to_retry
        until(lambda: broker.stats().sessions == 0)
