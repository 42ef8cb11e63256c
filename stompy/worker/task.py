"""Tasks: which function handles the messages of which destinations, and how; the classes that users derive from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypedDict, cast

from stompy.arguments import check_arguments, check_counts, check_value, is_async
from stompy.backoff import Backoff, check_attempts
from stompy.closable import Closable
from stompy.connection.connection import Connection
from stompy.connection.encoding import Body
from stompy.connection.message import Message, persistent_option
from stompy.connection.transaction import Transaction
from stompy.deadline import check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.dialects.brokers import dialect_named
from stompy.dialects.dialect import DEDUPE_HEADER
from stompy.errors import BodyDecodeError, ConfigurationError
from stompy.forks import Owner, never_free, when_forked
from stompy.locks import Rank, make_lock
from stompy.printable import did_you_mean
from stompy.world import os, time

if TYPE_CHECKING:
    import tenacity
    from typing_extensions import Unpack

    from stompy.dialects.options import SendOptions


Decode = Callable[[Message], Any] | Literal["json", "arguments"]
"""How a message becomes the arguments of a task; see `Worker.task`."""

Delays = Backoff | Callable[[int], float]
"""Seconds before the next attempt: a `Backoff`, or a function of the number of the failed attempt."""

TASK_BACKOFF = Backoff(first=1.0, longest=60.0)


class Retry(Exception):
    """Raised by a task to try the message again later; counts as a failed attempt.

    Args:
        reason: for the log and the dead letter.
        delay: seconds; by default by the task's `backoff`.
    """

    def __init__(self, reason: str = "", *, delay: float | Default = DEFAULT) -> None:
        check_seconds(given(delay, 0.0), "delay", finite=True, optional=False)
        super().__init__(reason)
        self.delay = delay


class Reject(Exception):
    """Raised by a task to dead-letter the message at once, without further attempts.

    Args:
        reason: for the log and the dead letter.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


class Defer(Exception):
    """Raised by a task to get the message again later; does not count as an attempt.

    Args:
        seconds: until then.
    """

    def __init__(self, seconds: float) -> None:
        check_seconds(seconds, "seconds", finite=True, optional=False)
        super().__init__(f"deferred for {seconds:g} s")
        self.seconds = seconds


class TimeLimitExceededError(TimeoutError):
    """A task ran longer than its `time_limit`; found as the error class in dead letters."""


class ProcessCrashedError(Exception):
    """A child process died while it ran a task; found as the error class in dead letters."""


class SeenStore(Protocol):
    """Remembers the ids of messages that were processed; see `SqliteSeen`. Called by all slots."""

    def __contains__(self, identity: str, /) -> bool:
        """Return whether a message with this id was processed."""

    def add(self, identity: str, /) -> None:
        """Remember that a message with this id was processed."""


@dataclass(slots=True, kw_only=True)
class TaskContext:
    """The context of a message; passed to a task that has a parameter named `context`.

    Attributes:
        message: the message.
        attempt: number of this attempt, from 1 on.
        task: name of the task.
        connection: of the worker; any thread may use it.
        transaction: of a transactional task, else `None`.
    """

    message: Message
    attempt: int
    task: str
    connection: Connection
    transaction: Transaction | None = None

    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        confirm: bool = False,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message, in the transaction if the task is transactional.

        Args:
            destination: as for `Connection.send`.
            body: as for `Connection.send`.
            confirm: as for `Connection.send`; a transaction is confirmed by its commit.
            timeout: as for `Connection.send`; not in a transaction.
            options: those of `Connection.send`. By default the message is persistent if the task's message is.

        Raises:
            StompError: as `Connection.send` and `Transaction.send`.
        """
        if options.get("persistent") is None and "persistent" not in (options.get("headers") or ()):
            options["persistent"] = persistent_option(self.message, dialect_named(self.connection.dialect))
        if self.transaction is None:
            self.connection.send(destination, body, confirm=confirm, timeout=timeout, **options)
        else:
            self.transaction.send(destination, body, **options)


class TaskArguments(TypedDict, total=False):
    """The keyword arguments of `Worker.task` and `Worker.add`; for their meaning see there."""

    name: str | None
    """For logs and threads; by default the name of the function."""
    attempts: int | None
    """How often a message is tried, the first time included (4). After the last attempt it is a dead letter. `None` for
    no limit."""
    backoff: Delays
    """The delays between attempts (`Backoff(first=1, longest=60)`), or a function of the number of the failed attempt
    that returns seconds."""
    retry_in_place: tenacity.BaseRetrying | None
    """A `tenacity.Retrying`, with which each attempt calls the function again at once, in the same thread."""
    dead_letter: str | None
    """Where dead letters go; by default the queue `<destination>.dead`."""
    concurrency: int | Default
    """Number of threads; by default the worker's."""
    key: str | Callable[[Message], Hashable] | None
    """The name of a header, or a function of the message. Messages with equal keys are handled one at a time, in order;
    a retry then waits in its thread instead of going back to the queue. A message whose key is missing or raises is a
    dead letter."""
    prefetch: int | Default
    """Unacknowledged messages that the broker may send; by default enough for the threads."""
    decode: Decode | None
    """`None` passes the message; `"json"` the value in a JSON body; `"arguments"` the members of a JSON object as
    keyword arguments; a function of the message, what it returns."""
    time_limit: float | None
    """Seconds for one attempt. After that it counts as failed, and another thread takes over."""
    rate: float | None
    """Messages per second that are started at most, by this process."""
    transactional: bool
    """`context.send`, the reply and the acknowledgement take effect together."""
    seen: SeenStore | None
    """A `SeenStore`; messages whose id it has are acknowledged without calling the function."""
    identity: Callable[[Message], str] | None
    """A function of the message that returns the id for `seen`; by default the broker's id."""
    selector: str | None
    """As for `Connection.subscribe`."""
    durable: str | None
    """As for `Connection.subscribe`."""
    exclusive: bool
    """As for `Connection.subscribe`."""
    headers: Mapping[str, object] | None
    """As for `Connection.subscribe`."""


if TYPE_CHECKING:
    show_task_arguments = dataclass(TaskArguments)  # as `stompy.dialects.options.show_send_options`


class TaskListener:
    """Base class of tasks with state; class attributes are the options of `Worker.task`.

    ::

        class Orders(stompy.TaskListener):
            destination = "/queue/orders"
            attempts = 5

            def on_message(self, message):
                ...

        worker.add(Orders())

    Attributes:
        destination: one, or several as a tuple or list.

    Raises:
        ConfigurationError: an attribute of a derived class is a misspelt option.
    """

    destination: ClassVar[str | Sequence[str]] = ()

    def __init_subclass__(cls) -> None:
        known = {"destination", *TaskArguments.__annotations__}
        for name in [name for name, value in vars(cls).items() if name not in known and not callable(value)]:
            if hint := did_you_mean(name, known, likeness=0.85):
                raise ConfigurationError(
                    f"a task has no option {name!r}{hint} (an attribute of {cls.__name__} that is none begins with _)"
                )

    def on_message(self, *arguments: Any, **keywords: Any) -> Any:
        """Handle a message, the only argument but for `context`; a returned value is the reply.

        With `decode=`, the argument is the decoded value.
        """
        raise NotImplementedError


class Task:
    """One task with its options, made by `Worker.task` and `Worker.add`; see there for the options."""

    def __init__(
        self, function: Callable[..., Any], destinations: Sequence[str], **options: Unpack[TaskArguments]
    ) -> None:
        if TYPE_CHECKING:
            show_task_arguments(**options)
        key = options.get("key")
        self.name = options.get("name") or str(getattr(function, "__name__", type(function).__name__))
        self.destinations = tuple(destinations)
        self.attempts = options.get("attempts", 4)
        self.backoff = options.get("backoff", TASK_BACKOFF)
        self.retry_in_place = options.get("retry_in_place")
        self.dead_letter = options.get("dead_letter")
        self.concurrency = options.get("concurrency", DEFAULT)
        self.key = _of_header(key) if isinstance(key, str) else key
        self.prefetch = options.get("prefetch", DEFAULT)
        self.time_limit = options.get("time_limit")
        self.rate = options.get("rate")
        self.transactional = options.get("transactional", False)
        self.seen = options.get("seen")
        self.identity = options.get("identity")
        self.selector = options.get("selector")
        self.durable = options.get("durable")
        self.exclusive = options.get("exclusive", False)
        self.headers = options.get("headers")
        self._check()
        self.call, self.with_context = _binding(function, options.get("decode"))

    def _check(self) -> None:
        check_value("destinations", self.destinations, tuple[str, ...])
        if not self.destinations or not all(self.destinations):
            raise ConfigurationError(f"task {self.name!r} needs at least one destination, as text")
        if self.dead_letter is None and any(set(WILDCARDS) & set(each) for each in self.destinations):
            # The default, such as /queue/orders.eu.dead, may match /queue/orders.> itself.
            raise ConfigurationError(f"task {self.name!r} has a wildcard destination, so it needs a dead_letter=")
        check_attempts(self.attempts)
        check_counts(concurrency=given(self.concurrency, 1), prefetch=given(self.prefetch, 1))
        check_seconds(self.time_limit, "time_limit", positive=True)
        check_seconds(self.rate, "rate", positive=True)

    def identity_of(self, message: Message) -> str:
        """Return the id by which a duplicate is recognised; the same for every retry of a message."""
        if self.identity is not None:
            return self.identity(message)
        found = (message.headers.get(name) for name in _IDENTITIES)
        return next((value for value in found if value), message.message_id)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of {', '.join(self.destinations)}>"


WILDCARDS = "*>#"
"""Characters that make a destination stand for several."""

ORIGINAL_ID = "stompy-original-message-id"
"""Header of a retry and a dead letter: the broker's id of the first copy."""

_IDENTITIES = (DEDUPE_HEADER, "amqp-message-id", ORIGINAL_ID)
"""Headers that identify a message, wherever it came from."""


def task_of_listener(listener: TaskListener, arguments: TaskArguments) -> tuple[Sequence[str], TaskArguments]:
    """Return the destinations and the options that a listener's attributes and `arguments` give."""
    destination = listener.destination
    found: dict[str, Any] = {"name": type(listener).__name__}
    for name in TaskArguments.__annotations__:
        # Of the class only, as an attribute of the listener may have such a name by chance; a function stays unbound.
        value = inspect.getattr_static(type(listener), name, found)
        if value is not found:
            found[name] = value.__func__ if isinstance(value, staticmethod) else value
    return (destination,) if isinstance(destination, str) else destination, cast(
        "TaskArguments", {**found, **arguments}
    )


def _of_header(name: str) -> Callable[[Message], Hashable]:
    def key(message: Message) -> str:
        value = message.headers.get(name)
        if value is None:
            raise LookupError(f"the message has no header {name!r}")
        return value

    return key


def _binding(
    function: Callable[..., Any], decode: Decode | None
) -> tuple[Callable[[Message, TaskContext | None], Any], bool]:
    """Return a function that calls the task for a message, and whether the task takes the context."""
    if not callable(function):
        raise ConfigurationError(f"a task must be a function or a TaskListener, not {function!r}")
    if is_async(function):
        raise ConfigurationError(f"a task must not be async: call asyncio.run() in {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # of some built-in functions
        if decode == "arguments":
            raise ConfigurationError(f"the arguments of {function!r} are not known") from None
        signature = inspect.signature(lambda message: message)
    with_context = "context" in signature.parameters
    if decode != "arguments":
        try:
            signature.bind(None, **({"context": None} if with_context else {}))
        except TypeError:
            name = getattr(function, "__qualname__", repr(function))
            raise ConfigurationError(
                f"a task is called with the message, or what decode= makes of it, which {name} does not take, as its"
                f" parameters are {signature}: write def {name}(message)"
            ) from None
    codec: Any = Message.json if isinstance(decode, str) else decode

    def call(message: Message, context: TaskContext | None) -> Any:
        argument = message if codec is None else codec(message)
        return function(argument, context=context) if with_context else function(argument)

    def call_with_arguments(message: Message, context: TaskContext | None) -> Any:
        extra = {"context": context} if with_context else {}
        try:
            bound = signature.bind(**{**codec(message), **extra})
        except TypeError as error:  # also of a body that is no JSON object
            raise BodyDecodeError(f"the body does not fit the task's arguments: {error}", body=message.body) from error
        return function(*bound.args, **bound.kwargs)

    return call_with_arguments if decode == "arguments" else call, with_context


class Middleware:
    """Base class of middleware, which a worker calls: override the methods that you need.

    Methods with a message run on the thread of its task; their exceptions are logged.
    """

    def started(self) -> None:
        """Called when the worker takes messages."""

    def stopping(self) -> None:
        """Called when the worker takes no more messages."""

    def before(self, task: Task, message: Message, /) -> None:
        """Called before an attempt."""

    def after(self, task: Task, message: Message, /) -> None:
        """Called after the message was processed and acknowledged."""

    def failed(self, task: Task, message: Message, error: BaseException, /) -> None:
        """Called after a failed attempt."""

    def retried(self, task: Task, message: Message, /) -> None:
        """Called after the next attempt was sent to its queue."""

    def deferred(self, task: Task, message: Message, /) -> None:
        """Called after the message was put off without counting an attempt."""

    def dead_lettered(self, task: Task, message: Message, /) -> None:
        """Called after the message was moved to the dead letters."""

    def duplicate(self, task: Task, message: Message, /) -> None:
        """Called after a message that was processed before was acknowledged without calling the task."""

    def unsettled(self, task: Task, message: Message, /) -> None:
        """Called when the message was not settled, so that the broker redelivers it."""


class SqliteSeen(Closable):
    """Remembers ids in an SQLite file, for `Worker.task(seen=...)`. Thread-safe; several processes may share the file.
    Use it as a context manager, or call `close`.

    Args:
        path: of the file, which is created.
        keep: seconds after which an id may be forgotten; by default 7 days.
    """

    _CLEAN_EVERY = 1_000

    def __init__(self, path: str | os.PathLike[str], *, keep: float = 7 * 86_400.0) -> None:
        from stompy.world import sqlite3  # slow to import, and most workers need none

        check_arguments(SqliteSeen.__init__, {"keep": keep})
        self._keep = keep
        self._added = 0
        self._lock = make_lock(Rank.LEAF, "seen")
        self._owner = Owner("store of ids")
        self._database = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID")
        when_forked(self)

    def after_fork(self) -> None:
        """Leave the file to the parent, in a forked child."""
        never_free(self._database)

    def __contains__(self, identity: str) -> bool:
        self._owner.check()
        with self._lock:
            row = self._database.execute("SELECT 1 FROM seen WHERE id = ?", (identity,)).fetchone()
        return row is not None

    def add(self, identity: str) -> None:
        """Remember an id."""
        self._owner.check()
        now = time.time()
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (identity, now))
            self._added += 1
            if self._added % self._CLEAN_EVERY == 0:
                self._database.execute("DELETE FROM seen WHERE at < ?", (now - self._keep,))

    def close(self) -> None:
        """Close the file."""
        if self._owner.forked:
            return
        with self._lock:
            self._database.close()
