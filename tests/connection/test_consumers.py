"""What may be the consumer of a subscription, or a listener."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest

import stompy
from tests.connection.conftest import Talking


async def coroutine(message: stompy.Message) -> None: ...


async def generator(message: stompy.Message) -> AsyncIterator[int]:
    yield 1


class Called:
    async def __call__(self, message: stompy.Message) -> None: ...


class Waiting(stompy.Listener):
    async def on_message(self, message: stompy.Message) -> None: ...  # type: ignore[override]


class Late(stompy.Listener):
    async def on_disconnected(self, event: stompy.DisconnectedEvent) -> None: ...  # type: ignore[override]


class Plain(stompy.Listener):
    def on_message(self, message: stompy.Message) -> None: ...


ASYNC = [coroutine, generator, Called(), Waiting(), functools.partial(coroutine), Called().__call__]


@pytest.mark.parametrize("handler", ASYNC, ids=lambda each: type(each).__name__)
def test_an_async_handler_is_refused_as_it_would_return_before_it_has_run(talking: Talking, handler: Any) -> None:
    talk = talking()
    with pytest.raises(stompy.ConfigurationError, match="async def"):
        talk.conn.subscribe("/queue/a", handler)
    assert talk.peer.quiet()


@pytest.mark.parametrize("handler", [5, "print", object(), stompy.Listener(), Plain, Waiting, stompy.Listener])
def test_what_cannot_be_called_is_no_handler(talking: Talking, handler: Any) -> None:
    talk = talking()
    with pytest.raises(stompy.ConfigurationError, match="function or an object with on_message"):
        talk.conn.subscribe("/queue/a", handler)
    assert talk.peer.quiet()


@pytest.mark.parametrize("listener", [Waiting(), Late(), Plain])
def test_a_listener_that_cannot_be_called_is_refused_wherever_it_is_given(talking: Talking, listener: Any) -> None:
    with pytest.raises(stompy.ConfigurationError):
        stompy.connect("stomp://127.0.0.1:1", listeners=[listener])
    talk = talking()
    with pytest.raises(stompy.ConfigurationError):
        talk.conn.add_listener(listener)


@pytest.mark.parametrize("listeners", [[], [Plain()]])
def test_a_thread_of_its_own_needs_a_handler(talking: Talking, listeners: list[stompy.Listener]) -> None:
    talk = talking(listeners=listeners)
    with pytest.raises(stompy.ConfigurationError, match="own_thread"):
        talk.conn.subscribe("/queue/a", own_thread=True)
    assert talk.peer.quiet()


WRONG = [None, 5, b"/queue/a", "", ["/queue/a"], object()]


@pytest.mark.parametrize("destination", WRONG, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("method", ["send", "subscribe", "browse", "request", "transaction"])
def test_a_destination_is_text(talking: Talking, method: str, destination: Any) -> None:
    talk = talking()

    def send_in_transaction(destination: Any) -> None:
        with talk.conn.transaction() as tx:
            tx.send(destination, "x")

    call = send_in_transaction if method == "transaction" else getattr(talk.conn, method)
    with pytest.raises(stompy.StompError, match="a destination must be non-empty text"):
        call(destination)
    talk.conn.send("/queue/a", "the connection lives on")
    assert talk.conn.connected
