"""The messages in flight on one connection: which were confirmed, and which one an ERROR is about.

Used by the forwarder thread only. The connection's reader resolves the receipts; this thread polls them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from stompy.connection.connection import Connection
from stompy.dialects.brokers import dialect_named
from stompy.errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    SessionError,
    StompError,
)
from stompy.link.receipts import Receipt
from stompy.outbox.record import Row
from stompy.outbox.store import now_ms
from stompy.world import time

_SHORTEST = 0.001
"""Seconds, as brokers count in milliseconds: what expired in the outbox expires at the broker, in its way."""

_MAX_MESSAGE = 4_000
"""Characters kept of a broker's error message; some brokers send a whole stack trace."""


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A message that was rejected.

    Attributes:
        row: the message.
        error_message: why.
        permanent: whether retrying is useless, such as if this session's version cannot express the message.
        invalid_destination: whether that is so for every message to this destination.
    """

    row: Row
    error_message: str
    permanent: bool = False
    invalid_destination: bool = False


class Verdict(Enum):
    """The meaning of the end of a connection for the messages that were in flight."""

    NONE = "nothing"
    LOST = "the connection was lost without a reason"
    SUSPECT = "one of them was rejected, and the broker does not say which"
    REFUSED = "one of them was rejected"


class InFlight:
    """The messages in flight on one connection, in the order they were sent.

    Args:
        connection: open, and used for nothing else.
        alone: whether messages are sent one at a time, so that an ERROR without `receipt-id` is about that message.
        on_done: called when the oldest message's receipt is resolved, on any thread.
    """

    def __init__(self, connection: Connection, *, alone: bool, on_done: Callable[[], None]) -> None:
        self._connection = connection
        self.alone = alone
        """See `alone`; to be changed only while nothing is in flight."""
        self._on_done = on_done
        self.dialect = dialect_named(connection.dialect)
        self._sent: deque[tuple[Row, Receipt]] = deque()
        self._interrupted: tuple[Row, SessionError] | None = None
        self._watched: Receipt | None = None
        self._progress = time.monotonic()
        self.last_seq = 0
        """The sequence number of the last message that was sent."""
        self.unsettled: list[int] = []
        """The sequence numbers of those in flight that were not confirmed, after `settle`."""

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, rows: Sequence[Row]) -> list[RefusedRow]:
        """Send messages in one write, and return the messages that cannot be encoded.

        Raises:
            StompError: the connection was lost.
        """
        unwritable = []
        if not self._sent:
            self._progress = time.monotonic()
        with self._connection.batch():
            for row in rows:
                try:
                    receipt = self._send(row)
                except SessionError as error:
                    # A broker may reject a large message while it is still being written: it was in flight too.
                    if error.outcome == "unknown":
                        self._interrupted = row, error
                        self.last_seq = row.seq
                    raise
                except (ConfigurationError, LocalProtocolError) as error:
                    error_message = f"it cannot be sent in STOMP {self._connection.version}: {error}"
                    unwritable.append(RefusedRow(row, error_message, permanent=True))
                else:
                    self._sent.append((row, receipt))
                self.last_seq = row.seq
        return unwritable

    def _send(self, row: Row) -> Receipt:
        own, options = row.header_map(), row.send_options()
        options["content_type"] = own.pop("content-type", None)
        options["headers"] = {**self.dialect.dedupe_headers(options.pop("dedupe_id", None) or row.id), **own}
        if "persistent" not in options and self.dialect.defaults_to("persistent", own):
            options["persistent"] = True  # a confirmed message must survive a restart of the broker
        waited = max(0.0, (now_ms() - row.put_ms) / 1000)
        if "expires" in options:
            options["expires"] = max(_SHORTEST, (options["expires"] or 0) - waited)
        if "delay" in options:
            options["delay"] = max(_SHORTEST, (options["delay"] or 0) - waited)
        return self._connection.send_async(row.destination, row.body, **options)

    def take_confirmed(self) -> list[Row]:
        """Return the oldest messages that the broker has confirmed, up to the first unconfirmed one, and drop them."""
        confirmed = []
        while self._sent and _outcome_of(self._sent[0][1]) == "confirmed":
            confirmed.append(self._sent.popleft()[0])
        if confirmed:
            self._progress = time.monotonic()
        return confirmed

    def check(self, receipt_timeout: float) -> float | None:
        """Return the seconds within which the broker must confirm the next message; `None` if none is in flight.

        Raises:
            StompError: the connection was lost.
            ReceiptTimeoutError: the broker confirmed nothing for `receipt_timeout` seconds.
        """
        if not self._sent:
            return None
        _, first = self._sent[0]
        if first.done():
            first.result(0)
        if self._watched is not first:
            self._watched = first
            first.add_done_callback(lambda _: self._on_done())
        left = self._progress + receipt_timeout - time.monotonic()
        if left <= 0:
            raise ReceiptTimeoutError(f"the broker confirmed nothing for {receipt_timeout:g} s", receipt_id=first.id)
        return left

    def settle(self) -> tuple[list[Row], list[RefusedRow], Verdict]:
        """Return the confirmed and the rejected messages, and the verdict; called when the connection has ended.

        Of messages that were lost without an ERROR, only one that was in flight alone is returned, with `Verdict.LOST`.
        """
        outcomes = self._outcomes()
        self._sent, self._interrupted = deque(), None
        confirmed = [row for row, outcome, _ in outcomes if outcome == "confirmed"]
        self.unsettled = [row.seq for row, outcome, _ in outcomes if outcome != "confirmed"]
        refused = [self._refused(row, error) for row, outcome, error in outcomes if outcome == "rejected"]
        unknown = [(row, error) for row, outcome, error in outcomes if outcome == "unknown"]
        if refused or not unknown:
            return confirmed, refused, Verdict.REFUSED if refused else Verdict.NONE
        row, error = unknown[0]
        alone = [self._refused(row, error)] if self.alone and len(unknown) == 1 else []
        if isinstance(error, BrokerError):
            if error.receipt_id is not None:
                return confirmed, [], Verdict.NONE
            return confirmed, alone, Verdict.REFUSED if alone else Verdict.SUSPECT
        # Not its subclasses: a timeout says nothing about a message.
        return (confirmed, alone, Verdict.LOST) if type(error) is ConnectionLostError else (confirmed, [], Verdict.NONE)

    def _refused(self, row: Row, error: StompError | None) -> RefusedRow:
        text = error_text(error)
        invalid = isinstance(error, BrokerError) and text.startswith(self.dialect.invalid_destination)
        return RefusedRow(row, text, permanent=invalid, invalid_destination=invalid)

    def _outcomes(self) -> list[tuple[Row, str, StompError | None]]:
        """Return outcome and error of each message that was in flight.

        Some may be pending for a moment, where closing did not wait for the end of the link.
        """
        outcomes: list[tuple[Row, str, StompError | None]] = [
            (row, _outcome_of(receipt), receipt.exception(0) if receipt.done() else None) for row, receipt in self._sent
        ]
        if self._interrupted is not None:
            row, error = self._interrupted
            named = isinstance(error, BrokerError) and error.receipt_id is not None
            # Its receipt was not returned, but a `receipt-id` that is none of the others' must be this one's.
            own = named and all(outcome != "rejected" for _, outcome, _ in outcomes)
            outcomes.append((row, "rejected" if own else "unknown", error))
        return outcomes


def _outcome_of(receipt: Receipt) -> Literal["pending", "confirmed", "rejected", "unknown"]:
    if not receipt.done():
        return "pending"
    error = receipt.exception(0)
    if error is None:
        return "confirmed"
    return "rejected" if getattr(error, "outcome", None) == "rejected" else "unknown"


def error_text(error: StompError | None) -> str:
    """Return the text of an error; of an ERROR frame, its `message` header and its body, truncated."""
    if not isinstance(error, BrokerError):
        return str(error)
    message = error.frame.headers.get("message") or ""
    body = error.frame.body.decode("utf-8", "replace").strip()
    return f"{message}\n{body}".strip()[:_MAX_MESSAGE]
