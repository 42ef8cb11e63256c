"""`stompy worker`: run a worker of a module."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompy.cli.console import report_error, say
from stompy.cli.exits import Exit, Failure
from stompy.cli.options import CommandParser, count
from stompy.printable import did_you_mean
from stompy.world import os, signal, subprocess, threading, time

if TYPE_CHECKING:
    from stompy.worker.worker import Worker

_RELOADED = "STOMPY_WORKER_RELOADED"
_POLL = 0.3


def add_worker(parser: CommandParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Run the worker that a module has, until SIGTERM or SIGINT. Exit codes: 0 in order, 2 a setting is "
        "wrong, 3 no broker, 4 the broker refused, 6 tasks did not finish in time, 7 tasks are stuck."
    )
    parser.add_argument("target", metavar="MODULE:NAME", help="where the worker is, such as package.module:worker")
    parser.add_argument("--url", metavar="URL", help="of the broker, instead of the worker's own")
    parser.add_argument("--concurrency", type=count, metavar="N", help="threads for each task")
    parser.add_argument("--processes", type=count, metavar="N", help="run in N supervised child processes")
    parser.add_argument("--http", metavar="[HOST:]PORT", help="serve /live, /ready and /metrics")
    parser.add_argument("--check", action="store_true", help="import the worker, show its tasks, and end")
    parser.add_argument("--reload", action="store_true", help="start again when a Python file here changes")
    parser.set_defaults(run=run_worker, quiet=logging.INFO)


def run_worker(arguments: argparse.Namespace) -> int:
    """Import the worker and run it."""
    if arguments.reload and os.environ.pop(_RELOADED, None) is None:
        return _run_reloading(Path.cwd())
    if threading.current_thread() is threading.main_thread():
        # What a handler raises is lost in a finalizer, or in an `except` of the module that is imported.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker = load(arguments.target)
    worker.override(
        url=arguments.url,
        concurrency=arguments.concurrency,
        processes=arguments.processes,
        http=arguments.http,
    )
    if arguments.check:
        for task in worker.tasks:
            say(f"{task.name}: {', '.join(task.destinations)}")
        return Exit.OK
    return worker.run()


def load(target: str) -> Worker:
    """Import a worker.

    Raises:
        Failure: there is none.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        raise Failure(f"{target!r} does not name a worker: MODULE:NAME", Exit.USAGE)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            traceback.print_exc()
        raise Failure(f"{target} cannot be imported: {error}", Exit.USAGE) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise Failure(f"{module} has no {name!r}{did_you_mean(part, dir(found))}", Exit.USAGE)
        found = getattr(found, part)
    from stompy.worker.worker import Worker  # the other commands do not need it

    if not isinstance(found, Worker):
        raise Failure(f"{target} is a {type(found).__name__}, not a stompy.Worker", Exit.USAGE)
    return found


def _run_reloading(folder: Path) -> int:
    """Run this command in a child process, again after each change of a file; return the last exit code."""
    process: subprocess.Popen[bytes] | None = None
    before = dict(_files(folder))
    try:
        while True:
            if process is None:
                process = subprocess.Popen(  # noqa: S603 - our own command line
                    [sys.executable, *sys.orig_argv[1:]], env={**os.environ, _RELOADED: "1"}, start_new_session=True
                )
            time.sleep(_POLL)
            now = dict(_files(folder))
            if now != before:
                before = now
                report_error("a file has changed; starting again")
                _terminate(process)
                process = None
    except KeyboardInterrupt:  # SIGTERM too
        return _terminate(process) if process is not None else Exit.OK


def _terminate(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.wait()


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.rglob("*.py"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            try:
                yield path, path.stat().st_mtime_ns
            except FileNotFoundError:
                continue
