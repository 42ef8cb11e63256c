"""The way of a message whose task failed: a copy for the next attempt, or a dead letter.

The copy and the acknowledgement of the original are one transaction. A broker whose transactions do not include
acknowledgements (Artemis), or do not outlive its crash (RabbitMQ), confirms the copy first; Artemis drops a second one
by its id.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal

from stompy.connection.connection import Connection
from stompy.connection.message import DELIVERY_HEADERS, Message, delivery_of, headers_to_copy
from stompy.deadline import check_seconds
from stompy.default import DEFAULT
from stompy.dialects.brokers import dialect_named
from stompy.dialects.dialect import Dialect
from stompy.dialects.options import SendOptions
from stompy.errors import ConnectionLostError, LocalProtocolError
from stompy.printable import printable
from stompy.worker.task import ORIGINAL_ID, Defer, ProcessCrashedError, Reject, Retry, Task

ATTEMPT = "stompy-attempt"
"""Header of a retry: the number of the attempt that it is for."""
CRASHED = "stompy-crashed"
"""Header of the retry of a message that crashed a process: it is run alone."""
FIRST_FAILURE = "stompy-first-failure"
ORIGINAL_DESTINATION = "stompy-original-destination"

_LONGEST_DELAY = 1e8
"""Seconds, about three years; brokers cannot express every number."""

_MAX_TEXT = 300
"""Characters of an error message in a header."""

_IN_NAMES = str.maketrans(",*>#/", "+___.")
"""Characters that brokers treat specially in destinations, and what stands for them in the name of a queue."""


@dataclass(slots=True)
class Attempt:
    """How often a message was tried.

    Attributes:
        number: of the attempt, from 1 on.
        first_failure: when the first one failed, as text, or `None`.
    """

    number: int = 1
    first_failure: str | None = None

    @classmethod
    def of(cls, message: Message) -> Attempt:
        """Return the attempt that the headers of a message name."""
        number = message.headers.get(ATTEMPT, "1")
        return cls(int(number) if number.isdecimal() and len(number) < 7 else 1, message.headers.get(FIRST_FAILURE))


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a failed attempt.

    Attributes:
        action: try again; try again without counting the attempt; dead-letter.
        delay: seconds before the next attempt.
        reason: of the dead letter.
    """

    action: Literal["retry", "defer", "dead-letter"]
    delay: float = 0.0
    reason: str = ""

    @property
    def counts(self) -> bool:
        """Whether the attempt that failed counts as one."""
        return self.action == "retry"


def decide(task: Task, attempt: int, error: BaseException) -> Decision:
    """Return the decision about a failed attempt.

    Args:
        task: of the message.
        attempt: the number of the attempt that failed.
        error: raised by the task.
    """
    if isinstance(error, Defer):
        return Decision("defer", min(error.seconds, _LONGEST_DELAY))
    if isinstance(error, Reject):
        return Decision("dead-letter", reason="rejected")
    if task.attempts is not None and attempt >= task.attempts:
        return Decision("dead-letter", reason=f"failed {attempt} times")
    if isinstance(error, Retry) and error.delay is not DEFAULT:
        return Decision("retry", min(error.delay, _LONGEST_DELAY))
    delay = max(0.0, task.backoff(attempt))
    check_seconds(delay, "backoff", finite=True, optional=False)
    return Decision("retry", min(delay, _LONGEST_DELAY))


def retry_queue(task: Task, destination: str) -> str:
    """Return the queue for retries of messages from a destination: itself, or a queue of the task for a topic."""
    if destination.startswith("/queue/"):
        return destination
    return f"{queue_named(task.destinations[0])}.{task.name}.retry"


def retry_queues(task: Task) -> list[str]:
    """Return all queues to which retries of a task go, as far as they are known before messages arrive."""
    return [retry_queue(task, each) for each in task.destinations]


def queue_named(destination: str) -> str:
    """Return the queue with the name of a destination of any kind."""
    for prefix in ("/queue/", "/topic/", "/exchange/", "/amq/queue/", "/"):
        if destination.startswith(prefix):
            destination = destination[len(prefix) :]
            break
    return "/queue/" + destination.translate(_IN_NAMES)


def _now_text() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def copied_headers(message: Message) -> dict[str, str]:
    """Return the headers of a message that a copy has too."""
    made = headers_to_copy(message)
    made.setdefault(ORIGINAL_ID, message.message_id)
    return made


def fingerprint(message: Message) -> bytes:
    """Return a hash of a message that is the same when it is redelivered; RabbitMQ then changes its message-id."""
    hashed = hashlib.sha256(message.body)
    dropped = DELIVERY_HEADERS | {"persistent", "destination"}
    for name, value in sorted(message.headers.items()):
        if name not in dropped:
            hashed.update(f"\0{name}\0{value}".encode("utf-8", "replace"))
    return hashed.digest()


def text_of(error: BaseException) -> str:
    """Return the text of an error, or a text of ours if its own cannot be made."""
    try:
        return str(error)
    except BaseException as another:
        return f"(its text cannot be made: {type(another).__name__})"


def class_of(error: BaseException) -> str:
    """Return the name of the class of an error, with its module."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def traceback_digest(error: BaseException) -> str:
    """Return a hash of the frames of a traceback, the same for equal failures, and its last frame."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "none"
    text = "\n".join(f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in frames) + type(error).__qualname__
    last = frames[-1]
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{digest} {last.filename.rpartition('/')[2]}:{last.lineno} in {last.name}"


@dataclass(frozen=True, slots=True)
class Copy:
    """A message to send when another one is acknowledged.

    Attributes:
        destination: where to.
        body: as for `send`.
        headers: as for `send`.
        content_type: as for `send`.
        delay: seconds until the broker delivers it.
        identity: the same whenever this copy is sent again.
        persistent: as for `send`, if the broker has such an option.
    """

    destination: str
    body: Any
    headers: Mapping[str, object] = field(default_factory=dict)
    content_type: str | None = None
    delay: float = 0.0
    identity: str = ""
    persistent: bool | None = True


def copy_of(message: Message, destination: str, headers: Mapping[str, object], *, delay: float = 0.0) -> Copy:
    """Return a copy of a message; it is persistent, as a message that failed is not to be lost."""
    # Artemis begins the id with that of the consumer, which changes with the session.
    identity = f"{message.message_id.rpartition(',')[2]} {headers.get(ATTEMPT, '')} {destination}"
    content_type = message.headers.get("content-type")
    return Copy(destination, message.body, headers, content_type, delay, identity)


def retry_copy(task: Task, message: Message, attempt: Attempt, error: BaseException, decision: Decision) -> Copy:
    """Return the copy for the next attempt."""
    headers = copied_headers(message)
    headers[ATTEMPT] = str(attempt.number + decision.counts)
    if decision.counts:
        headers[FIRST_FAILURE] = attempt.first_failure or _now_text()
    if not message.destination.startswith("/queue/"):
        headers.setdefault(ORIGINAL_DESTINATION, message.destination)
    if isinstance(error, ProcessCrashedError):
        headers[CRASHED] = "true"
    return copy_of(message, retry_queue(task, message.destination), headers, delay=decision.delay)


def dead_letter(task: Task, message: Message, attempt: Attempt, error: BaseException, reason: str) -> Copy:
    """Return the dead letter of a message: its headers and body, and the error."""
    failed = _now_text()
    headers = copied_headers(message)
    for name in (ATTEMPT, "expires", "expiration"):
        headers.pop(name, None)
    origin = message.headers.get(ORIGINAL_DESTINATION) or message.destination
    headers |= {
        ORIGINAL_DESTINATION: origin,
        "stompy-task": task.name,
        "stompy-reason": reason,
        "stompy-error": class_of(error),
        "stompy-error-message": text_of(error)[:_MAX_TEXT],
        "stompy-traceback": traceback_digest(error),
        "stompy-attempts": str(attempt.number),
        FIRST_FAILURE: attempt.first_failure or failed,
        "stompy-last-failure": failed,
    }
    headers = {name: printable(value) if name.startswith("stompy-") else value for name, value in headers.items()}
    return copy_of(message, task.dead_letter or f"{queue_named(origin or task.destinations[0])}.dead", headers)


def settle(connection: Connection, *pairs: tuple[Message, Copy]) -> None:
    """Send a copy of each message and acknowledge it, in one transaction if the broker applies that as a whole.

    Raises:
        AckError: the session that delivered the message has ended; nothing was sent.
        StompError: the connection was lost, or the broker refused a copy; the messages are redelivered.
    """
    try:
        _settle(connection, pairs)
    except LocalProtocolError:
        # STOMP 1.0 cannot express every header that another version brought.
        plain = [(message, _plain(copy)) for message, copy in pairs]
        if plain == list(pairs) or any(message.session_ended for message, _ in pairs):
            raise
        _settle(connection, plain)


def _plain(copy: Copy) -> Copy:
    own = {name: str(value).replace(":", " ") for name, value in copy.headers.items() if name.startswith("stompy-")}
    return replace(copy, headers=own)


def end_session(message: Message, reason: str) -> None:
    """End the session of a message, so that the broker redelivers it."""
    delivery_of(message).link.fail(ConnectionLostError(reason))


def _settle(connection: Connection, pairs: Sequence[tuple[Message, Copy]]) -> None:
    dialect = dialect_named(connection.dialect)
    if "ACK" in dialect.transacted and dialect.atomic_commit:
        with connection.transaction() as transaction:
            for message, copy in pairs:
                transaction.ack(message)
                transaction.send(copy.destination, copy.body, **options_of(copy, dialect))
        return
    for message, _ in pairs:
        if message.session_ended:
            message.ack()  # raises, before anything is sent
    receipts = []
    for _, copy in pairs:
        options = options_of(copy, dialect)
        if dialect.supports("dedupe_id") and copy.identity:
            options["dedupe_id"] = copy.identity
        receipts.append(connection.send_async(copy.destination, copy.body, **options))
    for receipt in receipts:
        receipt.result()
    for message, _ in pairs:
        message.ack()


def options_of(copy: Copy, dialect: Dialect) -> SendOptions:
    """Return the options with which a copy is sent."""
    options: SendOptions = {"headers": copy.headers, "content_type": copy.content_type}
    if dialect.supports("persistent"):
        options["persistent"] = copy.persistent
    if copy.delay > 0:
        options["delay"] = copy.delay
    return options
