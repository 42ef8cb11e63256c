"""The telemetry of a worker: its first middleware, which records tasks, and its connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partialmethod

from stompy.connection.config import Config
from stompy.connection.connection import Connection
from stompy.connection.listeners import Listener
from stompy.connection.message import Message
from stompy.telemetry.recorder import ATTEMPT, OUTCOME, TASK, Observation, Recorder
from stompy.telemetry.traced import TracedConnection
from stompy.worker.failure import Attempt
from stompy.worker.task import Task


class WorkerTelemetry:
    """Middleware for which each attempt at a message is a `process` span, until the message is settled.

    Args:
        recorder: of the program.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._observed: dict[Message, Observation] = {}

    def connection(self, config: Config, listeners: Sequence[Listener]) -> Connection:
        """See `stompy.connection.connecting.Telemetry`."""
        return TracedConnection(self._recorder, config, listeners, handlers=False)

    def for_worker(self) -> WorkerTelemetry:
        """See `stompy.connection.connecting.Telemetry`."""
        return self

    def inject(self, headers: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """See `stompy.connection.connecting.Telemetry`."""
        return self._recorder.inject(headers)

    def _begin(self, task: Task, message: Message) -> Observation:
        more: dict[str, str | int | bool] = {TASK: task.name}
        if task.key is None:  # else the attempts are counted in the worker only
            more[ATTEMPT] = Attempt.of(message).number
        observed = self._observed[message] = self._recorder.processing(message, more)
        observed.consumed()
        return observed

    def before(self, task: Task, message: Message) -> None:
        """Begin the span."""
        self._begin(task, message).enter()

    def failed(self, task: Task, message: Message, error: BaseException) -> None:
        """Record an error: in the thread of the task, or in that which replaces it after the time limit."""
        observed = self._observed.get(message) or self._begin(task, message)
        observed.enter()
        observed.fail(error)

    def _end(self, outcome: str, task: Task, message: Message) -> None:
        """End the span."""
        observed = self._observed.pop(message, None)
        if observed is not None:
            observed.set(OUTCOME, outcome)
            observed.end()

    after = partialmethod(_end, "processed")
    retried = partialmethod(_end, "retried")
    deferred = partialmethod(_end, "deferred")
    dead_lettered = partialmethod(_end, "dead_lettered")
    duplicate = partialmethod(_end, "duplicate")
    unsettled = partialmethod(_end, "unsettled")
