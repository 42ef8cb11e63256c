"""`Worker`, the public class, and its `run_once`: a task run without a broker, for tests."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from stompy.arguments import check_arguments, check_counts, check_options
from stompy.closable import Closable
from stompy.connection.connecting import DEFAULT_URL, ConnectOptions, config_of
from stompy.connection.encoding import Body, check_destination, encode_body, user_headers
from stompy.connection.message import Message, detached
from stompy.connection.reconnect import Reconnect
from stompy.deadline import check_seconds
from stompy.default import DEFAULT, Default, check_names, given
from stompy.dialects.brokers import check_given_once
from stompy.dialects.options import SendOptions, check_send_options
from stompy.errors import ConcurrencyError, ConfigurationError, NotConnectedError, StompError
from stompy.link.settings import Timeouts
from stompy.secret import Secret
from stompy.worker.engine import Engine
from stompy.worker.failure import ATTEMPT, decide
from stompy.worker.processes import ChildRole, Supervisor
from stompy.worker.run import WorkerSettings
from stompy.worker.service import (
    HttpEndpoint,
    Interrupted,
    Signals,
    Systemd,
    WorkerExit,
    WorkerHealth,
    exit_of,
    http_address,
    stacks_on_request,
)
from stompy.worker.slot import no_key
from stompy.worker.task import (
    Middleware,
    Task,
    TaskArguments,
    TaskContext,
    TaskListener,
    task_of_listener,
)
from stompy.world import os

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stompy.connection.connecting import show_connect_options

_LOG = logging.getLogger("stompy.worker")

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message that a task sent by its context.

    Attributes:
        destination: as given.
        body: as given.
        options: as given, such as `headers` and `persistent`.
    """

    destination: str
    body: Body
    options: SendOptions = field(default_factory=SendOptions)


@dataclass(slots=True, kw_only=True)
class RanOnce:
    """The outcome of a message; returned by `Worker.run_once`.

    Attributes:
        outcome: the worker would acknowledge the message, try it again, get it later, or dead-letter it.
        value: returned by the task.
        error: raised by the task, or `None`.
        delay: seconds until the next attempt.
        sent: by `context.send`; of a transactional task that raised, nothing.
    """

    outcome: Literal["processed", "retry", "defer", "dead-letter"]
    value: Any = None
    error: BaseException | None = None
    delay: float = 0.0
    sent: list[SentMessage] = field(default_factory=list)


class SendRecorder:
    """In the place of a connection and a transaction: records the messages sent, in `sent` if it is given."""

    dialect = "stompy"

    def __init__(self, sent: list[SentMessage] | None = None) -> None:
        self.sent = [] if sent is None else sent

    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        confirm: bool = False,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> None:
        """Check the arguments as `Connection.send` does, and record them."""
        check_destination(destination)
        check_send_options(options)
        encode_body(body, options.get("content_type"))
        check_given_once(options, user_headers(options.get("headers")))
        given = cast("SendOptions", {name: value for name, value in options.items() if value is not None})
        self.sent.append(SentMessage(destination=destination, body=body, options=given))

    def __getattr__(self, name: str) -> Any:
        raise NotConnectedError(f"there is no connection here, so there is no {name!r}")


class Worker(Closable):
    """Runs tasks for messages, in threads, until it is stopped.

    A message is acknowledged after its task has returned. If the task raises, the message is tried again later, and is
    a dead letter after its last attempt; see `task`.

    Args:
        url: as for `connect`; `None` uses the environment variable `STOMPY_URL`, else `stomp://localhost:61613`.
        concurrency: default number of threads for each task.
        reconnect: as for `connect`, but by default `True`.
        max_stuck: number of tasks beyond their time limit with which the worker goes on; by default `concurrency`;
            `None` for no limit.
        max_messages: stop in order after this number of messages; with `processes`, each child does and is replaced.
        max_seconds: stop in order after this time; with `processes`, each child does and is replaced.
        middleware: called at each event of a message.
        processes: run the tasks in this number of supervised child processes, each with its own threads; `run` then
            starts the program's command line again in each. `None` runs them in this process.
        http: `host:port`, or a port of this machine, on which `run` serves `/live`, `/ready` and `/metrics`.
        name: part of thread names and log lines.
        options: further arguments of `connect`. By default of its `timeouts`, the worker waits for its first session
            without a limit, and running tasks get 20 seconds to finish when it is closed.

    Raises:
        ConfigurationError: an option is unknown or invalid.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        concurrency: int = 8,
        reconnect: bool | Reconnect | Default = True,
        max_stuck: int | Default | None = DEFAULT,
        max_messages: int | None = None,
        max_seconds: float | None = None,
        middleware: Sequence[Middleware] = (),
        processes: int | None = None,
        http: str | int | None = None,
        name: str = "worker",
        **options: Unpack[ConnectOptions],
    ) -> None:
        if TYPE_CHECKING:
            show_connect_options(**options)
        own = inspect.signature(Worker).parameters
        check_names("a worker", options, ConnectOptions.__annotations__, own)
        check_arguments(Worker.__init__, locals(), skip=("url", "options"))
        # Without a url, the address may yet come from the command line, and is checked when it is used.
        config = config_of(Secret({"url": url or "stomp+ssl://localhost", "reconnect": reconnect, **options}))
        options["versions"] = config.versions  # which may have been an iterator
        if http is not None:
            http_address(http)
        check_seconds(max_seconds, "max_seconds", positive=True)
        check_counts(concurrency=concurrency, max_messages=max_messages, processes=processes)
        check_counts(least=0, max_stuck=given(max_stuck, None))
        if url is None:
            url = os.environ.get("STOMPY_URL")
        if not url:
            url = DEFAULT_URL
            _LOG.info("%s: neither url nor STOMPY_URL is set: the broker is %s", name, url)
        recorder = options.get("telemetry")
        if recorder is not None:
            options["telemetry"] = recorder = recorder.for_worker()
            middleware = (recorder, *middleware)  # type: ignore[arg-type]  # it has the methods
        self._settings = WorkerSettings(
            url=url,
            concurrency=concurrency,
            timeouts=given(options.pop("timeouts", DEFAULT), Timeouts()),
            reconnect=reconnect,
            max_stuck=max_stuck,
            max_messages=max_messages,
            max_seconds=max_seconds,
            middleware=tuple(middleware),
            processes=processes,
            http=http,
            name=name,
            options=options,
        )
        self._tasks: list[Task] = []
        self._engine: Engine | None = None
        self._supervisor: Supervisor | None = None

    @property
    def name(self) -> str:
        """The name of the worker."""
        return self._settings.name

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in the order in which they were added."""
        return tuple(self._tasks)

    def override(
        self,
        *,
        url: str | None = None,
        concurrency: int | None = None,
        processes: int | None = None,
        http: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Replace settings before the start, from a command line or a test.

        Args:
            url: the address of the broker.
            concurrency: the threads of each task that does not set its own.
            processes: the child processes.
            http: the address of the HTTP endpoint.
            clock: returns the time in seconds since the epoch, for retries.
        """
        changed = {name: value for name, value in locals().items() if name != "self" and value is not None}
        check_arguments(Worker.override, changed)
        if http is not None:
            http_address(http)
        check_counts(concurrency=concurrency, processes=processes)
        self._settings = replace(self._settings, **changed)

    def task(self, *destinations: str, **arguments: Unpack[TaskArguments]) -> Callable[[Function], Function]:
        """Return a decorator that adds a function as a task.

        The function is called with the `Message`, or its value by `decode`, on one of the task's threads. A
        parameter named `context` gets a `TaskContext`. Returned: the message is acknowledged; a value other than `None`
        is first sent to the destination in the message's `reply-to`. Raised: the message is tried again.
        `Retry`, `Reject` and `Defer` decide on the message.

        Args:
            destinations: to subscribe to.
            name: for logs and threads; by default the name of the function.
            attempts: how often a message is tried, the first time included (4). After the last attempt it is a dead
                letter. `None` for no limit.
            backoff: the delays between attempts (`Backoff(first=1, longest=60)`), or a function of the number of the
                failed attempt that returns seconds.
            retry_in_place: a `tenacity.Retrying`, with which each attempt calls the function again at once, in the same
                thread.
            dead_letter: where dead letters go; by default the queue `<destination>.dead`.
            concurrency: number of threads; by default the worker's.
            key: the name of a header, or a function of the message. Messages with equal keys are handled one at a time,
                in order; a retry then waits in its thread instead of going back to the queue. A message whose key is
                missing or raises is a dead letter.
            prefetch: unacknowledged messages that the broker may send; by default enough for the threads.
            decode: `None` passes the message; `"json"` the value in a JSON body; `"arguments"` the members of a JSON
                object as keyword arguments; a function of the message, what it returns.
            time_limit: seconds for one attempt. After that it counts as failed, and another thread takes over.
            rate: messages per second that are started at most, by this process.
            transactional: `context.send`, the reply and the acknowledgement take effect together.
            seen: a `SeenStore`; messages whose id it has are acknowledged without calling the function.
            identity: a function of the message that returns the id for `seen`; by default the broker's id.
            selector: as for `Connection.subscribe`.
            durable: as for `Connection.subscribe`.
            exclusive: as for `Connection.subscribe`.
            headers: as for `Connection.subscribe`.

        Raises:
            ConfigurationError: an option is unknown or invalid.
        """
        if any(map(callable, destinations)):
            raise ConfigurationError("@worker.task needs a destination: write @worker.task('/queue/NAME')")
        check_names("a task", arguments, TaskArguments.__annotations__)
        check_options(TaskArguments, arguments)

        def decorate(function: Function) -> Function:
            self.add(function, *destinations, **arguments)
            return function

        return decorate

    def add(
        self, task: Callable[..., Any] | TaskListener, *destinations: str, **arguments: Unpack[TaskArguments]
    ) -> Task:
        """Add a function or a `TaskListener` as a task; for the arguments see `task`.

        Raises:
            ConfigurationError: an option is unknown or invalid, or there is a task of this name.
            ConcurrencyError: the worker is running.
        """
        if self._engine is not None:
            raise ConcurrencyError("tasks cannot be added to a running worker")
        check_names("a task", arguments, TaskArguments.__annotations__)
        if isinstance(task, TaskListener):
            own, arguments = task_of_listener(task, arguments)
            task, destinations = task.on_message, destinations or tuple(own)
        check_options(TaskArguments, arguments)
        made = Task(task, destinations, **arguments)
        if any(each.name == made.name for each in self._tasks):
            raise ConfigurationError(f"there are two tasks named {made.name!r}; set name=")
        self._tasks.append(made)
        return made

    def health(self) -> WorkerHealth:
        """Return how the worker is doing; in the parent of child processes, the sum of theirs."""
        if self._supervisor is not None:
            return self._supervisor.health()
        engine = self._engine
        if engine is None:
            return WorkerHealth(state="stopped")
        engine.owner.check()
        return engine.health()

    def run_once(
        self,
        destination: str,
        body: Body = b"",
        *,
        headers: Mapping[str, object] | None = None,
        content_type: str | None = None,
        attempt: int = 1,
        task: str | None = None,
    ) -> RanOnce:
        """Run the task of a destination for one message, in this thread and without a broker; for tests.

        Args:
            destination: of the message.
            body: as for `Connection.send`.
            headers: of the message.
            content_type: as for `Connection.send`.
            attempt: the number of the attempt.
            task: the name of the task, if several have the destination.

        Raises:
            ConfigurationError: there is no such task.
        """
        check_arguments(Worker.run_once, locals())
        tasks = [each for each in self._tasks if task in (None, each.name) and destination in each.destinations]
        if len(tasks) != 1:
            raise ConfigurationError(f"{len(tasks)} tasks are for {destination!r}")
        (found,) = tasks
        recorder = SendRecorder()
        message = detached(
            body,
            destination=destination,
            headers={"message-id": "run-once", ATTEMPT: str(attempt), **(headers or {})},
            content_type=content_type,
            ack="client-individual",
            sender=recorder,
        )
        context = TaskContext(
            message=message,
            attempt=attempt,
            task=found.name,
            connection=cast("Any", recorder),
            transaction=cast("Any", recorder) if found.transactional else None,
        )
        try:
            _check_key(found, message)
            value = found.call(message, context)
        except BaseException as error:
            decision = decide(found, attempt, error)
            sent = [] if found.transactional else recorder.sent
            return RanOnce(outcome=decision.action, error=error, delay=decision.delay, sent=sent)
        return RanOnce(outcome="processed", value=value, sent=recorder.sent)

    # Running in the background.

    def start(self) -> None:
        """Connect, subscribe and start the threads; return when the worker takes messages.

        Raises:
            StompError: the broker refused, or was not reached within `Timeouts.start`.
        """
        engine = self._new_engine()
        try:
            engine.start()
        except BaseException:
            self._engine = None
            raise

    def close(self, *, timeout: float | Default | None = DEFAULT) -> WorkerExit:
        """Take no more messages, wait for the running tasks, disconnect, and return how the worker ended.

        A task that calls it gets its own message again, as the session ends before that is acknowledged.

        Args:
            timeout: seconds for running tasks; by default `Timeouts.close`.
        """
        check_seconds(given(timeout, None))
        engine = self._engine
        if engine is None or engine.owner.forked:
            return WorkerExit.OK
        engine.stop(WorkerExit.OK, "close() was called")
        try:
            return engine.finish(given(timeout, self._settings.close_timeout))
        finally:
            self._engine = None

    @property
    def closed(self) -> bool:
        """Whether it does not run: it was not started yet, or has ended."""
        return self._engine is None and self._supervisor is None

    def __enter__(self) -> Worker:
        self.start()
        return self

    def _new_engine(self, role: ChildRole | None = None, ticks: Sequence[Callable[[], None]] = ()) -> Engine:
        if self._engine is not None:
            self._engine.owner.check()
            raise ConcurrencyError("the worker is running already")
        if not self._tasks:
            raise ConfigurationError("the worker has no tasks")
        tasks, settings = self._tasks, self._settings
        on_tick: list[Callable[[], None]] = list(ticks)
        if role is not None:
            name = f"{settings.name}-{role.number}"
            # A stuck task ends its process; an order by key can only be kept in one of them.
            settings = replace(settings, name=name, max_stuck=0)
            tasks = [task for task in tasks if task.key is None or role.number == 1]
        self._engine = engine = Engine(settings, tasks, on_tick, None if role is None else role.crashes())
        if role is not None:
            on_tick.append(partial(_serve_parent, engine, role))
        return engine

    # Running as a process.

    def run(self) -> int:
        """Run until SIGTERM, SIGINT, SIGHUP or a limit; return the exit code, one of `WorkerExit`.

        After the first signal no message is started, and running tasks get the close timeout. A second signal
        ends at once with 128 + its number; unacknowledged messages are redelivered. The same signal within half a
        second is the first one, sent twice. SIGUSR1 writes the stack of every thread to standard error, unless the
        program handles it. In a thread other than the main thread, signals are left alone.
        """
        settings = self._settings
        role = ChildRole.of_environment() if settings.processes is not None else None
        systemd = Systemd() if role is None else Systemd({})
        endpoint = None
        try:
            if settings.http is not None and role is None:
                endpoint = HttpEndpoint(settings.http, self.health, settings.name)
                endpoint.start()
            if settings.processes is not None and role is None:
                systemd.notify("READY=1")
                self._supervisor = Supervisor(settings.name, settings.processes, settings.close_timeout, systemd.tick)
                return self._supervisor.run()
            with stacks_on_request(None if role is None else role.wrote_stacks):
                return self._run_tasks(role, systemd)
        except ConfigurationError as error:
            _LOG.error("%s: not started: %s", settings.name, error)
            return WorkerExit.USAGE
        finally:
            systemd.notify("STOPPING=1")
            if endpoint is not None:
                endpoint.stop()
            self._engine = self._supervisor = None

    def _run_tasks(self, role: ChildRole | None, systemd: Systemd) -> int:
        engine = self._new_engine(role, [systemd.tick])
        signals = Signals(
            partial(engine.stop, WorkerExit.OK),
            started=lambda: bool(engine.pools),
            told_to_stop=None if role is None else lambda: role.told_to_stop,
        )
        try:
            signals.install()
            code = self._run_engine(engine, systemd)
            signals.raises = False
        except Interrupted as interrupted:
            engine.finish(0.0)
            code = WorkerExit.OK if len(signals.received) == 1 else 128 + interrupted.number
        finally:
            if role is None:
                signals.restore()
        if role is not None:
            role.report(engine.health())
        return code

    def _run_engine(self, engine: Engine, systemd: Systemd) -> int:
        try:
            engine.start()
        except NotConnectedError:
            return WorkerExit.OK  # stopped before it was connected
        except StompError as error:
            _LOG.error("%s: not started: %s", engine.name, error)
            return exit_of(error)
        systemd.notify("READY=1")
        engine.stopping.wait()
        systemd.notify("STOPPING=1")
        return engine.finish(engine.settings.close_timeout)


def _check_key(task: Task, message: Message) -> None:
    try:
        if task.key is not None:
            hash(task.key(message))
    except BaseException as error:
        raise no_key(error) from error


def _serve_parent(engine: Engine, role: ChildRole) -> None:
    if role.told_to_stop:
        engine.stop(WorkerExit.OK, "the parent process says so, or has died")
    role.report(engine.health())
