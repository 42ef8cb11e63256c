"""`Worker.run_once`: a task run without a broker, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from stompy.connection.encoding import Body, check_destination, encode_body, user_headers
from stompy.connection.message import detached
from stompy.default import DEFAULT, Default
from stompy.dialects.brokers import check_given_once
from stompy.dialects.options import SendOptions, check_send_options
from stompy.errors import NotConnectedError
from stompy.worker.failure import ATTEMPT, decide
from stompy.worker.slot import key_of
from stompy.worker.task import Task, TaskContext

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """What a task sent by its context.

    Attributes:
        destination: as given.
        body: as given.
        options: those that were given, such as `headers` and `persistent`.
    """

    destination: str
    body: Body
    options: SendOptions = field(default_factory=SendOptions)


@dataclass(slots=True, kw_only=True)
class RanOnce:
    """What became of a message; returned by `Worker.run_once`.

    Attributes:
        outcome: what the worker would do: acknowledge, try again, get it later, or dead-letter.
        value: what the task returned.
        error: what it raised, or `None`.
        delay: seconds until the next attempt.
        sent: by `context.send`; of a transactional task that raised, nothing.
    """

    outcome: Literal["processed", "retry", "defer", "dead-letter"]
    value: Any = None
    error: BaseException | None = None
    delay: float = 0.0
    sent: list[SentMessage] = field(default_factory=list)


class SendRecorder:
    """In the place of a connection and a transaction: records what is sent, in `sent` if it is given."""

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


def run_once(
    task: Task,
    destination: str,
    body: Body,
    headers: Mapping[str, object] | None,
    content_type: str | None,
    attempt: int,
) -> RanOnce:
    """Run a task for a message made of the arguments."""
    recorder = SendRecorder()
    fields = {"message-id": "run-once", ATTEMPT: str(attempt), **(headers or {})}
    message = detached(
        body,
        destination=destination,
        headers=fields,
        content_type=content_type,
        ack="client-individual",
        sender=recorder,
    )
    transaction = cast("Any", recorder) if task.transactional else None
    context = TaskContext(
        message=message,
        attempt=attempt,
        task=task.name,
        connection=cast("Any", recorder),
        transaction=transaction,
    )
    try:
        if task.key is not None:
            key_of(task, message)
        value = task.call(message, context)
    except BaseException as error:
        decision = decide(task, attempt, error)
        return RanOnce(
            outcome=decision.action,
            value=None,
            error=error,
            delay=decision.delay,
            sent=[] if task.transactional else recorder.sent,
        )
    return RanOnce(outcome="processed", value=value, error=None, delay=0.0, sent=recorder.sent)
