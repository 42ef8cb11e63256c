"""Long-running workers: tasks, retries, dead letters, signals, child processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompy.worker.once import RanOnce as RanOnce
    from stompy.worker.once import SentMessage as SentMessage
    from stompy.worker.service import TaskHealth as TaskHealth
    from stompy.worker.service import WorkerExit as WorkerExit
    from stompy.worker.service import WorkerHealth as WorkerHealth
    from stompy.worker.task import Decode as Decode
    from stompy.worker.task import Defer as Defer
    from stompy.worker.task import Delays as Delays
    from stompy.worker.task import Middleware as Middleware
    from stompy.worker.task import ProcessCrashedError as ProcessCrashedError
    from stompy.worker.task import Reject as Reject
    from stompy.worker.task import Retry as Retry
    from stompy.worker.task import SeenStore as SeenStore
    from stompy.worker.task import SqliteSeen as SqliteSeen
    from stompy.worker.task import Task as Task
    from stompy.worker.task import TaskArguments as TaskArguments
    from stompy.worker.task import TaskContext as TaskContext
    from stompy.worker.task import TaskListener as TaskListener
    from stompy.worker.task import TimeLimitExceededError as TimeLimitExceededError
    from stompy.worker.worker import Worker as Worker

__all__ = [
    "Decode",
    "Defer",
    "Delays",
    "Middleware",
    "ProcessCrashedError",
    "RanOnce",
    "Reject",
    "Retry",
    "SeenStore",
    "SentMessage",
    "SqliteSeen",
    "Task",
    "TaskArguments",
    "TaskContext",
    "TaskHealth",
    "TaskListener",
    "TimeLimitExceededError",
    "Worker",
    "WorkerExit",
    "WorkerHealth",
]

_LAZY = {
    "stompy.worker.once": ("RanOnce", "SentMessage"),
    "stompy.worker.service": ("TaskHealth", "WorkerExit", "WorkerHealth"),
    "stompy.worker.task": (
        "Decode",
        "Defer",
        "Delays",
        "Middleware",
        "ProcessCrashedError",
        "Reject",
        "Retry",
        "SeenStore",
        "SqliteSeen",
        "Task",
        "TaskArguments",
        "TaskContext",
        "TaskListener",
        "TimeLimitExceededError",
    ),
    "stompy.worker.worker": ("Worker",),
}
"""Imported on first use; type checkers read the imports above."""

if not TYPE_CHECKING:
    from stompy.exports import late

    __getattr__, __dir__ = late(__name__, _LAZY)
