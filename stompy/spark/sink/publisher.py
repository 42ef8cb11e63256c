"""Send the messages of one partition in chunks, each of which is confirmed before the next one begins.

A chunk is a transaction, except with a broker that drops duplicates (Artemis), where each message is sent individually.
Artemis checks an id when the SEND arrives, but stores it at the COMMIT, so two open transactions with the same id (of a
task that was killed, and of its successor) both commit; and it answers the COMMIT of a duplicate with the same "Error
committing" as any other failure. For an individual message it stores the id at once, and it confirms a dropped
duplicate like the original.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stompy.connection.connection import Connection
from stompy.default import DEFAULT, Default
from stompy.dialects.brokers import dialect_named
from stompy.dialects.dialect import DEDUPE_HEADER, Dialect
from stompy.dialects.options import SendOptions
from stompy.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    PublishError,
    ReceiptTimeoutError,
    SendTimeoutError,
    StompError,
    is_passing,
)
from stompy.spark.sink.columns import Outgoing
from stompy.spark.sink.identity import Identify
from stompy.world import time

if TYPE_CHECKING:
    from types import TracebackType

_FIRST_DELAY = 0.1
_MAX_DELAY = 5.0
"""Bounds of the random delay between attempts to connect, in seconds."""

_DISCONNECT_TIMEOUT = 1.0
"""Seconds for disconnecting after an error; a broker that has stopped reading does not answer DISCONNECT."""

Persistence = Literal["auto", "true", "false"]
Transactions = Literal["auto", "true", "false"]

Item = tuple[Outgoing, "str | None"]
"""A message and its id."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Limits of one transaction, which has at least one message.

    Attributes:
        max_messages: number of messages.
        max_bytes: approximate bytes of bodies, headers and destinations, at which a transaction ends.
    """

    max_messages: int = 1000
    max_bytes: int = 4 * 1024 * 1024


class RateLimiter:
    """Limits the rate at which one thread sends, without bursts after a pause.

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
        """The maximum number of messages to send at once: those of one second, at least one."""
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

    It connects at the first message. If the connection is lost before a chunk is confirmed, the chunk is resent with
    the same ids as soon as the broker is reachable again, for at most `retry_timeout` seconds.

    Args:
        connect: opens a connection.
        identify: returns the id of each message.
        chunk: limits of one transaction.
        transactions: whether each chunk is a transaction; otherwise each message is confirmed individually. `"auto"`
            uses none if the broker drops duplicates by their ids.
        persistent: for messages that do not set it; `"auto"` means `"true"` if the broker supports the option.
        retry_timeout: seconds to retry connecting.
        rate_limiter: `None` for no limit.
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
        """Number of messages that the broker has confirmed."""
        self.size = 0
        """Bytes of their bodies and headers."""
        self.chunks = 0
        """Number of chunks that the broker has confirmed."""

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drop()

    def publish(self, messages: Iterable[Outgoing], on_confirmed: Callable[[], None] = lambda: None) -> None:
        """Send messages in order; return when the broker has confirmed all of them.

        Args:
            messages: to send.
            on_confirmed: called after each chunk; the messages taken from `messages` so far are then all confirmed.

        Raises:
            PublishError: the broker rejected a chunk, has stopped reading, or was unreachable for `retry_timeout`.
            LocalProtocolError: the session's version cannot express a message.
            ConfigurationError: the broker does not support an option of a message.
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
        except (SendTimeoutError, ReceiptTimeoutError) as stalled:
            raise PublishError(
                f"the broker has stopped reading or confirming ({stalled}): most likely its store or memory is "
                "full and it blocks producers; free some space there, or raise sendTimeout and receiptTimeout",
                confirmed=self.confirmed,
            ) from stalled
        except BrokerError as refused:
            raise PublishError(f"the broker rejected a message: {refused}", confirmed=self.confirmed) from refused
        except (ConnectError, ConnectionLostError) as error:
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

    def _drop(self, timeout: float | Default = DEFAULT) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(timeout=timeout)


class _Frames:
    """Makes the arguments of a send, for one broker."""

    def __init__(self, dialect: Dialect, *, persistent: Persistence) -> None:
        self._dialect = dialect
        self._drops = dialect.supports("dedupe_id")
        # Explicit if possible, as some brokers lose messages without the option at a restart.
        self._persistent = {"auto": True if dialect.supports("persistent") else None, "true": True, "false": False}[
            persistent
        ]

    def options(self, message: Outgoing, identity: str | None, *, alone: bool) -> SendOptions:
        options: SendOptions = {
            "content_type": message.content_type,
            "persistent": self._persistent if message.persistent is None else message.persistent,
            "priority": message.priority,
            "expires": _remaining(message.expires),
            "dedupe_id": identity if alone and self._drops else None,
        }
        # A row of the source has the headers of its message, which columns and options of the sink replace.
        replaced = frozenset(self._dialect.headers_of(options).values())
        headers: dict[str, object] = {name: value for name, value in message.headers.items() if name not in replaced}
        if identity is not None:
            headers[DEDUPE_HEADER] = identity
        options["headers"] = headers
        return options


def _send_as_one(connection: Connection, frames: _Frames, chunk: list[Item]) -> None:
    with connection.transaction() as transaction:
        for message, identity in chunk:
            transaction.send(message.destination, message.body, **frames.options(message, identity, alone=False))


def _send_each(connection: Connection, frames: _Frames, chunk: list[Item]) -> None:
    with connection.batch():
        receipts = [
            connection.send_async(message.destination, message.body, **frames.options(message, identity, alone=True))
            for message, identity in chunk
        ]
    for receipt in receipts:
        receipt.result()


def _remaining(moment: int | None) -> float | None:
    """Return the seconds until `moment`, in milliseconds since the epoch; at least 0.001, even if it has passed."""
    return None if moment is None else max(0.001, moment / 1000 - time.time())


def _may_come_back(error: BaseException) -> bool:
    if isinstance(error, (SendTimeoutError, ReceiptTimeoutError)):
        return False
    return isinstance(error, (ConnectError, ConnectionLostError)) and is_passing(error)
