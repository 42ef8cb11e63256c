"""A connection and its parts that record their operations. The methods do the same as in the base classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from stompy.connection.config import Config
from stompy.connection.connection import Connection
from stompy.connection.encoding import Body
from stompy.connection.listeners import Listener
from stompy.connection.message import Acker, Message
from stompy.connection.sending import Sender
from stompy.connection.subscriptions import ActiveSubscription, Handler, MessageListener
from stompy.connection.transaction import Transaction
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default
from stompy.dialects.options import SendOptions
from stompy.link.receipts import Receipt
from stompy.telemetry.recorder import ACK, NACK, REQUEST, SEND, Observation, Operation, Recorder
from stompy.world import time

if TYPE_CHECKING:
    from typing_extensions import Unpack


class TracedConnection(Connection):
    """A connection whose operations are recorded.

    Args:
        recorder: of the program.
        config: as of `Connection`.
        listeners: as of `Connection`.
        handlers: whether calls of handlers are recorded; a worker records its tasks instead.
    """

    def __init__(self, recorder: Recorder, config: Config, listeners: Sequence[Listener], *, handlers: bool) -> None:
        self._recorder = recorder.of_client(config.client)
        self._traces_handlers = handlers
        super().__init__(config, listeners, _TracedAcker(self._recorder))
        self._new_subscription = partial(_TracedSubscription, self._recorder)

    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        confirm: bool = False,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message."""
        with self._observation(SEND, destination, options) as observed:
            options["headers"] = observed.headers
            super().send(destination, body, confirm=confirm, timeout=timeout, **options)

    def send_async(
        self,
        destination: str,
        body: Body = b"",
        *,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> Receipt:
        """Send a message, and return its receipt."""
        with self._observation(SEND, destination, options) as observed:
            options["headers"] = observed.headers
            return super().send_async(destination, body, timeout=timeout, **options)

    def request(
        self,
        destination: str,
        body: Body = b"",
        *,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> Message:
        """Send a request and return its reply."""
        with self._observation(REQUEST, destination, options) as observed:
            options["headers"] = observed.headers
            reply = super().request(destination, body, timeout=timeout, **options)
            observed.answered(reply)
            return reply

    def _observation(self, operation: Operation, destination: str, options: SendOptions) -> Observation:
        return Observation(self._recorder, operation, self._links.link, destination, headers=options.get("headers"))

    def transaction(self) -> Transaction:
        """Return a transaction."""
        return _TracedTransaction(self._recorder, self._sender, self._acker)

    def _function_of(self, handler: Handler | MessageListener | None) -> Handler | None:
        """Return the function to call with messages."""
        function = super()._function_of(handler)
        if function is None or not self._traces_handlers:
            return function
        return partial(_handle, self._recorder, function)


def _handle(recorder: Recorder, handler: Callable[[Message], object], message: Message) -> None:
    with recorder.processing(message) as observed:
        observed.consumed()
        handler(message)


class _TracedAcker(Acker):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def acknowledge(self, message: Message, command: str, *arguments: Any, **options: Any) -> Receipt | None:
        with self._recorder.of_message(ACK if command == "ACK" else NACK, message):
            return super().acknowledge(message, command, *arguments, **options)


class _TracedSubscription(ActiveSubscription):
    def __init__(self, recorder: Recorder, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._recorder = recorder

    def take(self, deadline: Deadline) -> Message | None:
        began = time.perf_counter()
        message = super().take(deadline)
        if message is not None:
            try:
                self._recorder.received(message, time.perf_counter() - began)
            except BaseException:  # a signal
                self.put_back(message)
                raise
        return message


class _TracedTransaction(Transaction):
    def __init__(self, recorder: Recorder, sender: Sender, acker: Acker) -> None:
        super().__init__(sender, acker)
        self._recorder = recorder

    def send(self, destination: str, body: Body = b"", **options: Unpack[SendOptions]) -> None:
        with Observation(self._recorder, SEND, self._link, destination, headers=options.get("headers")) as observed:
            options["headers"] = observed.headers
            super().send(destination, body, **options)

    def ack(self, message: Message) -> None:
        with self._recorder.of_message(ACK, message):
            super().ack(message)

    def nack(self, message: Message) -> None:
        with self._recorder.of_message(NACK, message):
            super().nack(message)

    def commit(self, *, timeout: float | Default | None = DEFAULT) -> None:
        with self._recorder.committing(self._link, self._acked):
            super().commit(timeout=timeout)
