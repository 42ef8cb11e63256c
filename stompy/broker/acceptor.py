"""The threads that accept clients, one for each listener, and the sessions that serve them.

| thread | owns | may block on |
|---|---|---|
| `stompy-broker-acceptor` | new connections | `accept`, which closing the listener ends |

Locks: `Acceptor._lock` guards the thread and the list of sessions; it is held over nothing that waits.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from stompy.broker.admission import Admission
from stompy.broker.session import ClientSession
from stompy.default import given
from stompy.world import threading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompy.broker.commands import Commands
    from stompy.broker.router import BrokerRouter
    from stompy.broker.settings import Settings
    from stompy.deadline import Deadline
    from stompy.transport.base import Listener, Transport

_LOG = logging.getLogger("stompy.broker")


class Acceptor:
    """Serves the clients of a broker, each in a session of its own.

    Args:
        router: where messages go.
        commands: what frames do.
        settings: limits, users, times.
        instance: the first part of every session id.
    """

    def __init__(self, router: BrokerRouter, commands: Commands, settings: Settings, *, instance: str) -> None:
        self._router = router
        self._commands = commands
        self._settings = settings
        self._instance = instance
        self._admission = Admission(
            max_sessions=settings.max_sessions,
            max_handshakes=settings.max_handshakes,
            max_handshakes_per_address=given(settings.max_handshakes_per_address, None),
        )
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sessions: list[ClientSession] = []

    @property
    def runs(self) -> bool:
        """Whether it accepts clients."""
        return bool(self._threads)

    def start(self, listeners: Sequence[Listener]) -> None:
        """Accept from now on what comes to `listeners`, each in a thread of its own."""
        threads = [
            threading.Thread(target=self._run, args=(listener,), name="stompy-broker-acceptor", daemon=True)
            for listener in listeners
        ]
        with self._lock:
            self._threads = threads
        for thread in threads:
            thread.start()

    def stop(self, listeners: Sequence[Listener], deadline: Deadline, *, grace: float) -> bool:
        """Close the listeners and end all sessions; return whether it ran."""
        with self._lock:
            threads, self._threads = self._threads, []
        if not threads:
            return False
        for listener in listeners:
            listener.close()
        for thread in threads:
            thread.join(deadline.remaining())
        self.end_sessions(deadline, grace=grace)
        return True

    def end_sessions(self, deadline: Deadline, *, grace: float) -> None:
        """End the sessions of this moment; clients get `grace` seconds to take the end of the stream."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
        with self._router.turn():  # all at once, so that what comes back from one is not given to the next
            for session in sessions:
                self._router.hang_up(session.state)
        graceful = deadline.sooner(grace)
        for session in sessions:
            session.join(graceful.remaining())
        for session in sessions:
            session.abort()
        for session in sessions:
            session.join(deadline.remaining())
        left = sum(not session.ended for session in sessions)
        if left:
            _LOG.error("%d sessions did not end in time", left)

    def _run(self, listener: Listener) -> None:
        while (transport := listener.accept()) is not None:
            self._serve(transport)

    def _serve(self, transport: Transport) -> None:
        slot = self._admission.enter(transport.peer)
        if slot is None:  # a storm: not even the words that there is no room have room
            transport.close()
            return
        number = next(self._numbers)
        session = ClientSession(
            transport,
            admission=self._admission,
            slot=slot,
            router=self._router,
            commands=self._commands,
            settings=self._settings,
            name=f"{self._instance}-{number}",
            number=number,
        )
        with self._lock:
            # A `stop` that did not wait for this thread has taken the list already.
            stopped = threading.current_thread() not in self._threads
            if not stopped:
                self._add(session)
        if stopped:
            transport.close()
            self._admission.leave(slot)
            return
        try:
            session.start()
        except RuntimeError as error:  # no more threads
            _LOG.error("cannot serve %s: %s", transport.peer, error)

    def _add(self, session: ClientSession) -> None:
        # Ended sessions are left out now and then, so that the list does not grow with the clients served.
        if len(self._sessions) >= 2 * self._router.sessions + 16:
            self._sessions = [other for other in self._sessions if not other.ended]
        self._sessions.append(session)
