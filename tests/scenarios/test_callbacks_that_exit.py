"""Callbacks that raise what is no `Exception`: reported like any other, and the connection lives on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from tests.support.peer import WITHIN, until

ENDINGS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), pytest.fail.Exception("failed")]


class Raising(stompy.Listener):
    """Raises on every event, and counts them."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.events: list[str] = []

    def _raise(self, event: str, *arguments: Any) -> None:
        self.events.append(event)
        raise self.error


for _event in [name for name in vars(stompy.Listener) if name.startswith("on_")]:
    setattr(Raising, _event, lambda self, *arguments, _event=_event, **more: self._raise(_event, *arguments))


@pytest.mark.parametrize("error", ENDINGS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("own_thread", [False, True])
def test_a_handler_a_listener_and_a_receipt_callback_may_raise_anything(
    error: BaseException, own_thread: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    called = threading.Event()

    def handle(message: stompy.Message) -> None:
        seen.append(message.text)
        raise error

    def confirmed(receipt: stompy.Receipt) -> None:
        called.set()
        raise error

    listener = Raising(error)
    with caplog.at_level(logging.CRITICAL + 1), Broker() as broker:
        with stompy.connect(broker.url, listeners=[listener]) as connection:
            connection.subscribe("/queue/a", handle, ack="auto", own_thread=own_thread)
            for number in range(3):
                called.clear()
                receipt = connection.send_async("/queue/a", str(number))
                assert receipt is not None
                receipt.add_done_callback(confirmed)
                assert called.wait(WITHIN)
            until(lambda: seen == ["0", "1", "2"])
            assert connection.connected
        assert listener.events[0] == "on_connected"
        assert "on_disconnected" in listener.events


@pytest.mark.parametrize("error", ENDINGS, ids=lambda error: type(error).__name__)
def test_a_passcode_function_may_raise_anything_while_reconnecting(error: BaseException) -> None:
    answers: list[Callable[[], str]] = []

    def fail() -> str:
        raise error

    def ask() -> str:
        return answers.pop()() if answers else "secret"

    with Broker(users={"ann": "secret"}, limits=BrokerLimits(login_delay=0)) as broker:
        policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))
        with stompy.connect(broker.url, login="ann", passcode=ask, reconnect=policy) as connection:
            answers += [fail, fail]
            broker.restart()
            until(lambda: connection.stats().reconnects == 1 and not answers)
            connection.send("/queue/a", "on", confirm=True, timeout=WITHIN)
