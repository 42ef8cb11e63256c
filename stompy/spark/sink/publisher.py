"""Messages of one partition to the broker: in chunks, each confirmed before the next one begins.

A chunk is a transaction, but not at a broker that drops duplicates (Artemis): there each message goes by itself, with
its id. Artemis looks an id up when the SEND comes and notes it at the COMMIT, so two open transactions with one id both
commit (that of a task that was killed, and its successor's); and to the COMMIT of a duplicate it says only "Error
committing", as to any failure. Of a single message it notes the id at once, and it confirms the duplicate that it drops
like the first one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from stompy.connection.connection import Connection
from stompy.dialects.brokers import dialect_named
from stompy.dialects.dialect import DEDUPE_HEADER, Dialect
from stompy.errors import (
    BrokerError,
    ConnectError,
    ConnectionLost,
    PublishError,
    ReceiptTimeout,
    SendTimeout,
    StompError,
)
from stompy.spark.sink.columns import Outgoing
from stompy.spark.sink.identity import Identify

if TYPE_CHECKING:
    from types import TracebackType

_FIRST_DELAY = 0.1
_MAX_DELAY = 5.0
"""Bounds of the wait between attempts to reach the broker, in seconds."""

_DISCONNECT_TIMEOUT = 1.0
"""Seconds for the end of a connection that has failed: a broker that has stopped reading answers no DISCONNECT."""

Persistence = Literal["auto", "true", "false"]
Transactions = Literal["auto", "true", "false"]

Item = tuple[Outgoing, "str | None"]
"""A message and its id."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """How much goes into one transaction, whichever is reached first; it holds at least one message."""

    max_messages: int = 1000
    max_bytes: int = 4 * 1024 * 1024


class RateLimiter:
    """Limits the rate of one thread that sends.

    Unused rate is not saved up: there is no burst after a pause.

    Args:
        rate: messages per second; `None` for no limit.
        clock: seconds, monotonic.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = -math.inf

    @property
    def burst(self) -> float:
        """How many messages may go at once: what goes in one second, at least one."""
        return math.inf if self._rate is None else max(1.0, self._rate)

    def wait(self, messages: int) -> None:
        """Wait until `messages` may be sent."""
        if self._rate is None:
            return
        now = self._clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
            now = self._free_at
        self._free_at = now + messages / self._rate


class Publisher:
    """Sends messages; used as a context manager, by one thread.

    Nothing is connected before the first message. A chunk whose fate is unknown because the link died is sent again
    with the same ids as soon as the broker is back, for at most `retry_timeout` seconds.

    Args:
        connect: makes a connection.
        identify: gives each message its id.
        chunk: how much goes into one transaction.
        transactions: make each chunk one; without, each message of a chunk is confirmed by itself. `"auto"` does
            without where the broker drops duplicates by their ids.
        persistent: of messages that do not say; `"auto"` is `"true"` where the broker can be asked.
        retry_timeout: seconds to go on trying to reach the broker.
        rate_limiter: by default, without a limit.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        identify: Identify,
        chunk: Chunk | None = None,
        transactions: Transactions = "auto",
        persistent: Persistence = "auto",
        retry_timeout: float = 60.0,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._connect = connect
        self._identify = identify
        self._chunk = chunk or Chunk()
        self._transactions = transactions
        self._persistent = persistent
        self._retry_timeout = retry_timeout
        self._rate_limiter = rate_limiter or RateLimiter(None)
        self._connection: Connection | None = None
        self.confirmed = 0
        """Messages that the broker has confirmed."""
        self.size = 0
        """Bytes of their bodies and headers."""
        self.chunks = 0
        """Chunks that the broker has confirmed."""

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drop()

    def publish(self, messages: Iterable[Outgoing], on_confirmed: Callable[[], None] = lambda: None) -> None:
        """Send messages in their order, and return when the broker has confirmed them all.

        Args:
            messages: to send.
            on_confirmed: called after each chunk, when exactly the confirmed ones were taken from `messages`.

        Raises:
            PublishError: the broker refuses, has stopped reading, or cannot be reached within `retry_timeout`.
            LocalProtocolError: a message cannot be written in the version spoken.
            ConfigurationError: the broker does not support what a message asks for.
        """
        for chunk in self._chunks(messages):
            self._rate_limiter.wait(len(chunk))
            self._deliver(chunk)
            self.confirmed += len(chunk)
            self.size += sum(message.size for message, _ in chunk)
            self.chunks += 1
            on_confirmed()

    def _chunks(self, messages: Iterable[Outgoing]) -> Iterator[list[Item]]:
        chunk: list[Item] = []
        size = 0
        most = min(self._chunk.max_messages, self._rate_limiter.burst)
        for message in messages:
            chunk.append((message, self._identify(message)))
            size += message.size
            if len(chunk) >= most or size >= self._chunk.max_bytes:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _deliver(self, chunk: list[Item]) -> None:
        import tenacity

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_come_back),
            stop=tenacity.stop_after_delay(self._retry_timeout),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_DELAY, max=_MAX_DELAY),
            reraise=True,
        )
        try:
            attempts(self._attempt, chunk)
        except (SendTimeout, ReceiptTimeout) as stalled:
            raise PublishError(
                f"the broker has stopped reading or confirming ({stalled}): most likely its store or memory is "
                "full and it blocks producers; free some space there, or raise sendTimeout and receiptTimeout",
                confirmed=self.confirmed,
            ) from stalled
        except BrokerError as refused:
            raise PublishError(f"the broker rejected a message: {refused}", confirmed=self.confirmed) from refused
        except (ConnectError, ConnectionLost) as error:
            raise PublishError(
                f"no broker was reachable for {self._retry_timeout:g} s: {error}", confirmed=self.confirmed
            ) from error

    def _attempt(self, chunk: list[Item]) -> None:
        try:
            connection = self._live()
            dialect = dialect_named(connection.dialect)
            frames = _Frames(dialect, persistent=self._persistent)
            if self._in_transactions(dialect, chunk):
                _send_as_one(connection, frames, chunk)
            else:
                _send_each(connection, frames, chunk)
        except StompError:
            self._drop(_DISCONNECT_TIMEOUT)
            raise

    def _in_transactions(self, dialect: Dialect, chunk: list[Item]) -> bool:
        if self._transactions != "auto":
            return self._transactions == "true"
        return not (dialect.supports("dedupe_id") and any(identity is not None for _, identity in chunk))

    def _live(self) -> Connection:
        if self._connection is None or not self._connection.connected:
            self._drop()
            self._connection = self._connect()
        return self._connection

    def _drop(self, timeout: float | None = None) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect(timeout=timeout)


class _Frames:
    """What the arguments of a send are, for one broker."""

    def __init__(self, dialect: Dialect, *, persistent: Persistence) -> None:
        self._drops = dialect.supports("dedupe_id")
        # Where it can be asked for, since a broker may take the STOMP default to be a message that a restart loses.
        self._persistent = {"auto": True if dialect.supports("persistent") else None, "true": True, "false": False}[
            persistent
        ]

    def options(self, message: Outgoing, identity: str | None, *, alone: bool) -> _Options:
        headers: dict[str, object] = dict(message.headers)
        if identity is not None:
            headers[DEDUPE_HEADER] = identity
        return {
            "content_type": message.content_type,
            "headers": headers,
            "persistent": self._persistent if message.persistent is None else message.persistent,
            "priority": message.priority,
            "expires": _remaining(message.expires),
            "dedupe_id": identity if alone and self._drops else None,
        }


class _Options(TypedDict):
    content_type: str | None
    headers: dict[str, object]
    persistent: bool | None
    priority: int | None
    expires: float | None
    dedupe_id: str | None


def _send_as_one(connection: Connection, frames: _Frames, chunk: list[Item]) -> None:
    with connection.transaction() as transaction:
        for message, identity in chunk:
            transaction.send(message.destination, message.body, **frames.options(message, identity, alone=False))


def _send_each(connection: Connection, frames: _Frames, chunk: list[Item]) -> None:
    with connection.batch():
        receipts = [
            connection.send(
                message.destination,
                message.body,
                **frames.options(message, identity, alone=True),
                receipt=True,
            )
            for message, identity in chunk
        ]
    for receipt in receipts:
        receipt.wait()


def _remaining(moment: int | None) -> float | None:
    """Return seconds until a moment in milliseconds since the epoch, or next to none where it is past."""
    return None if moment is None else max(0.001, moment / 1000 - time.time())


def _may_come_back(error: BaseException) -> bool:
    if isinstance(error, (SendTimeout, ReceiptTimeout)):
        return False
    return isinstance(error, (ConnectError, ConnectionLost)) and error.retryable
