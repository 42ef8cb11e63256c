"""Sends messages in chunks, each of which is confirmed before the next one begins.

A chunk is a transaction, except with a broker that drops duplicates (Artemis), where each message is sent individually.
Artemis checks an id when the SEND arrives, but stores it at the COMMIT, so two open transactions with the same id (of a
task that was killed, and of its successor) both commit; and it answers the COMMIT of a duplicate with the same "Error
committing" as any other failure. For an individual message it stores the id at once, and it confirms a dropped
duplicate like the original.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from stompy.backoff import RateLimit
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
from stompy.spark.option_tables import SinkOptions
from stompy.spark.sink.rows import Outgoing
from stompy.world import time

_FIRST_DELAY = 0.1
_MAX_DELAY = 5.0
"""Bounds of the random delay between attempts to connect, in seconds."""

_DISCONNECT_TIMEOUT = 1.0
"""Seconds for disconnecting after an error; a broker that has stopped reading does not answer DISCONNECT."""

_CHUNK_BYTES = 4 << 20
"""Approximate bytes of bodies, headers and destinations at which a chunk ends; it has at least one message."""


class Publisher:
    """Sends messages; used by one thread, and closed at the end.

    It connects at the first message. If the connection is lost before a chunk is confirmed, the chunk is resent with
    the same ids as soon as the broker is reachable again, for at most the option `brokerTimeout`.

    Args:
        options: of the sink.
        name: part of thread names.
    """

    def __init__(self, options: SinkOptions, *, name: str) -> None:
        self._options = options
        self._name = name
        self._rate = options.rate_limit or math.inf
        self._rate_limit = RateLimit(self._rate)
        self._connection: Connection | None = None
        self.confirmed = 0
        """Number of messages that the broker has confirmed."""

    def close(self, *, timeout: float | Default = DEFAULT) -> None:
        """Disconnect, within some seconds; the next message connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(timeout=timeout)

    def publish(self, messages: Iterable[Outgoing], on_confirmed: Callable[[], None] = lambda: None) -> None:
        """Send messages in order; return when the broker has confirmed all of them.

        Args:
            messages: to send.
            on_confirmed: called after each chunk; the messages taken from `messages` so far are then all confirmed.

        Raises:
            PublishError: the broker rejected a chunk, has stopped reading, or was unreachable for `brokerTimeout`.
            LocalProtocolError: the session's version cannot express a message.
            ConfigurationError: the broker does not support an option of a message.
        """
        for chunk in self._chunks(messages):
            time.sleep(self._rate_limit.delay(len(chunk)))
            self._deliver(chunk)
            self.confirmed += len(chunk)
            on_confirmed()

    def _chunks(self, messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
        chunk: list[Outgoing] = []
        size = 0
        most = min(self._options.transaction_size, max(1.0, self._rate))  # at once at most those of a second
        for message in messages:
            chunk.append(message)
            size += message.size
            if len(chunk) >= most or size >= _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _deliver(self, chunk: list[Outgoing]) -> None:
        import tenacity

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_come_back),
            stop=tenacity.stop_after_delay(self._options.broker_timeout),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_DELAY, max=_MAX_DELAY),
            reraise=True,
        )
        try:
            attempts(self._attempt, chunk)
        except (SendTimeoutError, ReceiptTimeoutError) as stalled:
            raise PublishError(
                f"the broker has stopped reading or confirming ({stalled}): most likely its store or memory is "
                "full and it blocks producers; free some space there, or raise receiptTimeout",
                confirmed=self.confirmed,
            ) from stalled
        except BrokerError as refused:
            raise PublishError(f"the broker rejected a message: {refused}", confirmed=self.confirmed) from refused
        except (ConnectError, ConnectionLostError) as error:
            raise PublishError(
                f"no broker was reachable for {self._options.broker_timeout:g} s: {error}", confirmed=self.confirmed
            ) from error

    def _attempt(self, chunk: list[Outgoing]) -> None:
        try:
            if self._connection is None or not self._connection.connected:
                self.close()
                self._connection = self._options.connect(name=self._name)
            connection = self._connection
            dialect = dialect_named(connection.dialect)
            if self._in_transactions(dialect, chunk):
                with connection.transaction() as transaction:
                    for message in chunk:
                        transaction.send(message.destination, message.body, **_send_options(dialect, message))
                return
            dedupe = dialect.supports("dedupe_id")
            with connection.batch():
                receipts = [
                    connection.send_async(
                        message.destination, message.body, **_send_options(dialect, message, dedupe=dedupe)
                    )
                    for message in chunk
                ]
            for receipt in receipts:
                receipt.result()
        except StompError:
            self.close(timeout=_DISCONNECT_TIMEOUT)
            raise

    def _in_transactions(self, dialect: Dialect, chunk: list[Outgoing]) -> bool:
        if self._options.transactions != "auto":
            return self._options.transactions == "true"
        return not (dialect.supports("dedupe_id") and any(message.dedup_id is not None for message in chunk))


def _send_options(dialect: Dialect, message: Outgoing, *, dedupe: bool = False) -> SendOptions:
    """Return the arguments with which to send a message.

    Args:
        dialect: of the broker.
        message: to send.
        dedupe: whether the broker drops the message if it knows the id.
    """
    persistent = message.persistent
    if persistent is None and dialect.supports("persistent"):
        persistent = True  # explicit, as some brokers lose messages without the option at a restart
    options: SendOptions = {
        "content_type": message.content_type,
        "persistent": persistent,
        "priority": message.priority,
        "expires": _remaining(message.expires),
        "dedupe_id": message.dedup_id if dedupe else None,
    }
    # A row of the source has the headers of its message, which columns and options of the sink replace.
    replaced = frozenset(dialect.headers_of(options).values())
    headers: dict[str, object] = {name: value for name, value in message.headers.items() if name not in replaced}
    if message.dedup_id is not None:
        headers[DEDUPE_HEADER] = message.dedup_id
    options["headers"] = headers
    return options


def _remaining(moment: int | None) -> float | None:
    """Return the seconds until `moment`, in milliseconds since the epoch; at least 0.001, even if it has passed."""
    return None if moment is None else max(0.001, moment / 1000 - time.time())


def _may_come_back(error: BaseException) -> bool:
    return is_passing(error) and not isinstance(error, (SendTimeoutError, ReceiptTimeoutError))
