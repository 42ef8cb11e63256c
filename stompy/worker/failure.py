"""What becomes of a message whose task failed: a copy for the next attempt, or a dead letter.

The copy and the acknowledgement of the original are one transaction. A broker whose transactions do not include
acknowledgements (Artemis), or do not outlive its crash (RabbitMQ), confirms the copy first; Artemis drops a second one
by its id.
"""

from __future__ import annotations

import hashlib
import random
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal

from stompy.connection.connection import Connection
from stompy.connection.message import Message
from stompy.dialects.brokers import dialect_named
from stompy.dialects.dialect import Dialect
from stompy.errors import ConnectionLost, LocalProtocolError, SendTimeout, StompError, StompTimeout
from stompy.printable import printable
from stompy.worker.task import ORIGINAL_ID, WILDCARDS, Defer, Reject, Retry, Task

ATTEMPT = "stompy-attempt"
"""Header of a retry: the number of the attempt that it is for."""
FIRST_FAILURE = "stompy-first-failure"
ORIGINAL_DESTINATION = "stompy-original-destination"
DUE = "stompy-due"
"""Header of a parked message: when it is to go back, in milliseconds since the epoch."""
PARKED_FOR = "stompy-parked-for"
"""Header of a parked message: the queue that it goes back to."""

_MAX_TEXT = 300
"""Characters of an error message in a header."""

_BROKERS_OWN = frozenset((
    "ack", "content-length", "content-type", "destination", "message-id", "receipt", "redelivered", "subscription",
    "timestamp", "transaction", "persistent", "breadcrumbId", "JMSXUserID", "JMSXDeliveryCount", "_AMQ_DUPL_ID",
    "_AMQ_GROUP_SEQUENCE", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "AMQ_SCHEDULED_REPEAT",
    "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_CRON", "scheduledJobId", "redelivery-count", "x-delivery-count", "browser",
    "destination-type", "subscription-type",
))  # fmt: skip
"""Headers of a message that its copy does not have: the broker sets them, or they must not take effect twice."""

_EXPIRY = frozenset(("expires", "expiration"))


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
        """Return what the headers of a message say."""
        number = message.headers.get(ATTEMPT, "1")
        return cls(int(number) if number.isdecimal() and len(number) < 7 else 1, message.headers.get(FIRST_FAILURE))


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done about a failure.

    Attributes:
        action: try again; try again without counting the attempt; dead-letter.
        delay: seconds before the next attempt.
        reason: of the dead letter.
    """

    action: Literal["retry", "defer", "dead-letter"]
    delay: float = 0.0
    reason: str = ""


def decide(task: Task, attempt: int, error: BaseException, jitter: Callable[[], float] = random.random) -> Decision:
    """Return what is done about a failed attempt.

    Args:
        task: of the message.
        attempt: the number of the attempt that failed.
        error: what the task raised.
        jitter: returns a number from 0 to 1.
    """
    if isinstance(error, Defer):
        return Decision("defer", error.seconds)
    if isinstance(error, Reject):
        return Decision("dead-letter", reason="rejected")
    if attempt > task.retries:
        return Decision("dead-letter", reason=f"failed {attempt} times")
    if isinstance(error, Retry) and error.delay is not None:
        return Decision("retry", error.delay)
    if callable(task.retry_delay):
        return Decision("retry", max(0.0, task.retry_delay(attempt)))
    first, largest = task.retry_delay
    bound = min(largest, first * 2 ** min(attempt - 1, 60))
    return Decision("retry", bound * (0.5 + 0.5 * jitter()))


def retry_queue(task: Task, message: Message) -> str:
    """Return the queue for the retry of a message: its own, or one of the task if it came from a topic."""
    own = message.destination
    if own.startswith("/queue/"):
        return own
    return task_retry_queue(task)


def task_retry_queue(task: Task) -> str:
    """Return the queue for retries of what has no queue of its own, such as a topic's message."""
    return f"{queue_named(task.destinations[0])}.{task.name}.retry"


def retry_queues(task: Task) -> list[str]:
    """Return all queues to which retries of a task go, as far as they are known before messages arrive."""
    return [each if each.startswith("/queue/") else task_retry_queue(task) for each in task.destinations]


def parking_queue(task: Task) -> str:
    """Return where messages wait for their retry, at a broker that does not deliver with a delay."""
    return f"{queue_named(task.destinations[0])}.parked"


def dead_letter_queue(task: Task, message: Message) -> str:
    """Return where the dead letters of a task go."""
    if task.dead_letter is not None:
        return task.dead_letter
    return (
        f"{queue_named(message.headers.get(ORIGINAL_DESTINATION) or message.destination or task.destinations[0])}.dead"
    )


def queue_named(destination: str) -> str:
    """Return the queue with the name of a destination of any kind."""
    for prefix in ("/queue/", "/topic/", "/exchange/", "/amq/queue/", "/"):
        if destination.startswith(prefix):
            destination = destination[len(prefix) :]
            break
    return "/queue/" + destination.translate(
        {ord(","): "+", ord("*"): "_", ord(">"): "_", ord("#"): "_", ord("/"): "."}
    )


_NOT_IN_NAMES = {ord(","): "+", ord("/"): ".", **dict.fromkeys(map(ord, WILDCARDS), "_")}


def now_text() -> str:
    """Return the current time for a header."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def copied_headers(message: Message, *, keep_expiry: bool) -> dict[str, str]:
    """Return the headers of a message that a copy has too."""
    dropped = _BROKERS_OWN if keep_expiry else _BROKERS_OWN | _EXPIRY
    made = {name: value for name, value in message.headers.items() if name not in dropped}
    if made.get("expires") == "0":
        del made["expires"]
    made.setdefault(ORIGINAL_ID, message.message_id)
    return made


def fingerprint(message: Message) -> bytes:
    """Return a hash of a message that is the same when it is redelivered; RabbitMQ then changes its message-id."""
    hashed = hashlib.sha256(message.body)
    dropped = _BROKERS_OWN | {"persistent", "destination"}
    for name, value in sorted(message.headers.items()):
        if name not in dropped:
            hashed.update(f"\0{name}\0{value}".encode("utf-8", "replace"))
    return hashed.digest()


def retry_headers(task: Task, message: Message, attempt: Attempt, *, counts: bool) -> dict[str, str]:
    """Return the headers of the copy for the next attempt."""
    made = copied_headers(message, keep_expiry=True)
    made[ATTEMPT] = str(attempt.number + counts)
    if counts:
        made[FIRST_FAILURE] = attempt.first_failure or now_text()
    if not message.destination.startswith("/queue/"):
        made.setdefault(ORIGINAL_DESTINATION, message.destination)
    return made


def dead_letter_headers(
    task: Task, message: Message, attempt: Attempt, error: BaseException, reason: str
) -> dict[str, str]:
    """Return the headers of a dead letter: those of the message, and what went wrong."""
    failed = now_text()
    made = copied_headers(message, keep_expiry=False)
    made.pop(ATTEMPT, None)
    made |= {
        ORIGINAL_DESTINATION: message.headers.get(ORIGINAL_DESTINATION) or message.destination,
        "stompy-task": task.name,
        "stompy-reason": reason,
        "stompy-error": class_of(error),
        "stompy-error-message": str(error)[:_MAX_TEXT],
        "stompy-traceback": traceback_digest(error),
        "stompy-attempts": str(attempt.number),
        FIRST_FAILURE: attempt.first_failure or failed,
        "stompy-last-failure": failed,
    }
    return {name: printable(value) if name.startswith("stompy-") else value for name, value in made.items()}


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
        delay: seconds until it is delivered.
        parking: the queue where it waits if the broker does not deliver with a delay.
        identity: the same whenever this copy is sent again.
    """

    destination: str
    body: Any
    headers: Mapping[str, object] = field(default_factory=dict)
    content_type: str | None = None
    delay: float = 0.0
    parking: str = ""
    identity: str = ""


def copy_of(
    message: Message, destination: str, headers: Mapping[str, object], *, delay: float = 0.0, parking: str = ""
) -> Copy:
    """Return a copy of a message."""
    # Artemis begins the id with that of the consumer, which changes with the session.
    identity = f"{message.message_id.rpartition(',')[2]} {headers.get(ATTEMPT, '')} {destination}"
    content_type = message.headers.get("content-type")
    return Copy(destination, message.body, headers, content_type, delay, parking, identity)


def delays(dialect: Dialect) -> bool:
    """Return whether the broker is left to deliver a retry with a delay."""
    return dialect.supports("delay") and dialect.durable_delay


def parked(copy: Copy) -> Copy:
    """Return a copy that waits in the parking queue."""
    due = str(round((time.time() + copy.delay) * 1000))
    headers = {**copy.headers, DUE: due, PARKED_FOR: copy.destination}
    return replace(copy, destination=copy.parking, headers=headers, delay=0.0)


def settle(connection: Connection, message: Message, copy: Copy) -> None:
    """Send a copy and acknowledge a message, in one transaction if the broker applies that as a whole.

    Raises:
        AckError: the session that delivered the message has ended; nothing was sent.
        StompError: the connection was lost, or the broker refused the copy; the message is redelivered.
    """
    dialect = dialect_named(connection.dialect)
    if copy.delay > 0 and not delays(dialect):
        copy = parked(copy)
    options: dict[str, Any] = {"persistent": True} if dialect.supports("persistent") else {}
    if copy.delay > 0:
        options["delay"] = copy.delay
    try:
        _settle(connection, message, copy, options)
    except LocalProtocolError:
        # STOMP 1.0 cannot express every header that another version brought.
        own = {name: value for name, value in copy.headers.items() if name.startswith("stompy-")}
        if message.session_ended or own == copy.headers:
            raise
        headers = {name: str(value).replace(":", " ") for name, value in own.items()}
        _settle(connection, message, replace(copy, headers=headers), options)


def make_redelivered(message: Message, error: StompError) -> None:
    """End the session of a message that was not settled in time, as the broker redelivers only what a session left."""
    if isinstance(error, (StompTimeout, SendTimeout)):
        message._link.fail(ConnectionLost(f"a message was not settled in time: {error}"))


def _settle(connection: Connection, message: Message, copy: Copy, options: dict[str, Any]) -> None:
    dialect = dialect_named(connection.dialect)
    if "ACK" in dialect.transacted and dialect.atomic_commit:
        with connection.transaction() as transaction:
            transaction.ack(message)
            transaction.send(
                copy.destination, copy.body, headers=copy.headers, content_type=copy.content_type, **options
            )
        return
    if message.session_ended:
        message.ack()  # raises, before anything is sent
    if dialect.supports("dedupe_id") and copy.identity:
        options = {**options, "dedupe_id": copy.identity}
    connection.send(
        copy.destination, copy.body, headers=copy.headers, content_type=copy.content_type, confirm=True, **options
    )
    message.ack()
