"""The commands of the console's sessions: those of any client, and requests to the console."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from stompy.broker.commands import Commands
from stompy.broker.console.calls import CONSOLE
from stompy.errors import RemoteProtocolError
from stompy.frames.encoder import encode

if TYPE_CHECKING:
    from stompy.broker.console.calls import Calls
    from stompy.broker.router import BrokerRouter
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import Settings
    from stompy.frames.frame import Frame


class ConsoleCommands(Commands):
    """Answers what is sent to `CONSOLE`, on the session's reader; everything else is as for any client.

    Replies are written past the queues, so that they are not among the broker's messages.

    Args:
        router: the broker's state.
        settings: limits.
        calls: answers requests.
    """

    def __init__(self, router: BrokerRouter, settings: Settings, calls: Calls) -> None:
        super().__init__(router, settings)
        self._calls = calls
        self._numbers = itertools.count(1)

    def _send(self, session: SessionState, frame: Frame) -> None:
        header = frame.headers._peek
        if header("destination") != CONSOLE:
            super()._send(session, frame)
            return
        inbox = next((one for one in session.consumers.values() if one.destination == header("reply-to")), None)
        if inbox is None:
            raise RemoteProtocolError("a request to the console needs a reply-to that the session is subscribed to")
        pairs = [
            ("subscription", inbox.identity or ""),
            ("message-id", f"console-{next(self._numbers)}"),
            ("destination", inbox.destination),
            ("correlation-id", header("correlation-id") or ""),
            ("content-type", "application/json"),
        ]
        session.calls.append(functools.partial(self._answer, session, pairs, frame.body))

    def _answer(self, session: SessionState, pairs: list[tuple[str, str]], request: bytes) -> None:
        reply = self._calls.answer(session.name, request)
        with self._router.turn():
            session.write_queue.answer(encode("MESSAGE", pairs, reply, grammar=session.protocol.grammar))
