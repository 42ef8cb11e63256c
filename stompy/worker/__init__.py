"""Long-running workers: tasks, retries, dead letters, signals, child processes."""

from __future__ import annotations

from stompy.worker.service import TaskHealth, WorkerExit, WorkerHealth
from stompy.worker.task import (
    Decode,
    Defer,
    Delays,
    Middleware,
    ProcessCrashedError,
    Reject,
    Retry,
    SeenStore,
    SqliteSeen,
    Task,
    TaskArguments,
    TaskContext,
    TaskListener,
    TimeLimitExceededError,
)
from stompy.worker.worker import RanOnce, SentMessage, Worker

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
