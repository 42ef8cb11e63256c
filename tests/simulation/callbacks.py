"""Listeners and callbacks of simulated programs, and the judge of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import stompy


class Heard(stompy.Listener):
    """A listener of one connection, which sees whether its calls come in the order of a session's life.

    Args:
        name: of the program.
        breaches: where to say what it was called with at the wrong time.
    """

    def __init__(self, name: str, breaches: list[str]) -> None:
        self.name = name
        self.alone = True
        """Whether the handler is on the same thread."""
        self.errors = 0
        """Handlers that raised, by its calls."""
        self.raised = 0
        """Handlers that raised."""
        self.last = "nothing"
        """The last event of a session, or the end."""
        self._breaches = breaches

    def _follows(self, event: str, *before: str) -> None:
        if self.last not in before:
            self._breaches.append(f"the listener of {self.name} was called for {event} after {self.last} (promise 12)")
        if event in ("reconnecting", "connected", "an error", "silence", "disconnected", "closed"):
            self.last = event

    def on_reconnecting(self, event: stompy.ReconnectingEvent) -> None:
        self._follows("reconnecting", "nothing", "reconnecting", "disconnected")

    def on_connected(self, event: stompy.ConnectedEvent) -> None:
        self._follows("connected", "nothing", "reconnecting")

    def on_receipt(self, frame: stompy.Frame) -> None:
        self._follows("a receipt", "connected")

    def on_handler_error(self, event: stompy.HandlerErrorEvent) -> None:
        self.errors += 1
        if self.alone:
            self._follows("the error of a handler", "connected")

    def on_error(self, frame: stompy.Frame) -> None:
        self._follows("an error", "connected")

    def on_heartbeat_timeout(self, event: stompy.HeartbeatTimeoutEvent) -> None:
        self._follows("silence", "connected")

    def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
        self._follows("disconnected", "connected", "an error", "silence")

    def on_closed(self, event: stompy.ClosedEvent) -> None:
        self._follows("closed", "disconnected", "reconnecting")

    def begins(self, message: stompy.Message) -> None:
        """Note that a handler begins: its listener knows of each one that raised before."""
        if self.errors != self.raised and self.alone:
            self._breaches.append(f"a handler of {self.name} began before the call of its listener for an error")


class HeardMessages(Heard):
    """One that gets the messages too.

    Args:
        name: of the program.
        breaches: as above.
        on_message: called with each message.
    """

    def __init__(
        self, name: str, breaches: list[str], on_message: Callable[[stompy.Message], None] = lambda message: None
    ) -> None:
        super().__init__(name, breaches)
        self.messages: list[stompy.Message] = []
        self._then = on_message

    def on_message(self, message: stompy.Message) -> None:
        self._follows("a message", "connected")
        self.messages.append(message)
        self._then(message)

    def begins(self, message: stompy.Message) -> None:
        super().begins(message)
        if self.messages[-1:] != [message] and self.alone:
            self._breaches.append(f"{self.name} was given {message.text} before its listener (promise 12)")


def heard_wrongly(heard: Iterable[Heard], read: dict[str, list[str]], killed: Iterable[str]) -> list[str]:
    """Return what is wrong with the calls of listeners: an end that is missing, messages in another order.

    Args:
        heard: the listeners of connections that were opened.
        read: by program, the bodies of the messages that its sessions have read, in order.
        killed: the programs that were killed.
    """
    breaches = []
    for each in heard:
        if each.last != "closed" and each.name not in killed:
            breaches.append(f"the listener of {each.name} was not called for the end, but for {each.last} (promise 12)")
        if isinstance(each, HeardMessages):
            rest = iter(read[each.name])
            bodies = [message.text for message in each.messages]
            if not all(body in rest for body in bodies):
                breaches.append(
                    f"the listener of {each.name} heard {bodies}, its sessions {read[each.name]} (promise 12)"
                )
    return breaches


class Called:
    """Counts the calls of receipt callbacks.

    Args:
        breaches: where to say that one was not called once.
    """

    def __init__(self, breaches: list[str]) -> None:
        self._breaches = breaches
        self._calls: Counter[str] = Counter()

    def watch(self, body: str, receipt: stompy.Receipt) -> None:
        """Have a receipt call back."""

        def call(resolved: stompy.Receipt) -> None:
            self._calls[body] += 1
            if resolved is not receipt or not resolved.done():
                self._breaches.append(f"the callback of {body} was called before its outcome was there")

        self._calls[body] += 0
        receipt.add_done_callback(call)

    def check(self) -> None:
        """See that each was called once, when the connection has closed."""
        wrong = {body: count for body, count in self._calls.items() if count != 1}
        if wrong:
            self._breaches.append(f"callbacks of receipts were called so often: {wrong}")
