"""One connection's worth of sending: what is in flight, what was confirmed, and whom an ERROR was meant for.

Only the forwarder thread comes here; receipts are resolved by the connection's reader and looked at.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from stompy.connection.connection import Connection
from stompy.dialects.brokers import dialect_named
from stompy.dialects.options import SendOptions
from stompy.errors import BrokerError, ConnectionLost, LocalProtocolError, ReceiptTimeout, StompError
from stompy.link.receipts import Receipt
from stompy.outbox.record import Row

_MOST_WORDS = 4_000
"""Characters kept of what a broker says; some send a whole stack trace."""


@dataclass(slots=True)
class _Sent:
    row: Row
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that the broker does not want.

    Attributes:
        row: the message.
        error_message: why.
        hopeless: it is not worth another try: it cannot be written in this session's version, say.
    """

    row: Row
    error_message: str
    hopeless: bool = False


class Verdict(Enum):
    """What the end of a connection says of the messages that were in flight."""

    NONE = "nothing"
    LOST = "the connection was lost without a reason"
    SUSPECT = "one of them was rejected, and the broker does not say which"
    REFUSED = "one of them was rejected"


class Delivery:
    """The messages in flight on one connection, in the order they were sent.

    Args:
        connection: open, and nobody else's.
        alone: whether messages are sent one by one, so that an ERROR that names none can only be about the one.
        on_done: called, on any thread, when the first message's receipt is resolved.
    """

    def __init__(self, connection: Connection, *, alone: bool, on_done: Callable[[], None]) -> None:
        self._connection = connection
        self._alone = alone
        self._on_done = on_done
        self._dialect = dialect_named(connection.dialect)
        # A confirmed message of a broker that then restarts shall still be there.
        can_keep = self._dialect.supports("persistent")
        self._extra = self._dialect.send_headers(SendOptions(persistent=True)) if can_keep else {}
        self._sent: deque[_Sent] = deque()
        self._cut_short: tuple[Row, ConnectionLost] | None = None
        self._watched: Receipt | None = None
        self._progress = time.monotonic()
        self.last_seq = 0
        """The place of the last message that was sent."""

    def __len__(self) -> int:
        return len(self._sent)

    def end_caution(self) -> None:
        """Note that from now on several messages are in flight."""
        self._alone = False

    def send(self, rows: Sequence[Row]) -> list[Refusal]:
        """Send messages in one write, and return those that cannot be written.

        Raises:
            StompError: the connection is over.
        """
        hopeless = []
        if not self._sent:
            self._progress = time.monotonic()
        with self._connection.batch():
            for row in rows:
                try:
                    receipt = self._send(row)
                except ConnectionLost as error:
                    # A broker refuses a large message while it is still being written: it was in flight too.
                    if error.outcome == "unknown":
                        self._cut_short = row, error
                        self.last_seq = row.seq
                    raise
                except LocalProtocolError as error:
                    error_message = f"it cannot be sent in STOMP {self._connection.version}: {error}"
                    hopeless.append(Refusal(row, error_message, hopeless=True))
                else:
                    self._sent.append(_Sent(row, receipt))
                self.last_seq = row.seq
        return hopeless

    def _send(self, row: Row) -> Receipt:
        own = row.header_map()
        kind = own.pop("content-type", None)
        headers = {**self._dialect.dedupe_headers(row.id), **self._extra, **own}
        return self._connection.send(row.destination, row.body, content_type=kind, headers=headers, receipt=True)

    def take_confirmed(self) -> list[Row]:
        """Return the messages at the front that the broker has confirmed, and forget them here."""
        confirmed = []
        while self._sent and self._sent[0].receipt.outcome == "confirmed":
            confirmed.append(self._sent.popleft().row)
        if confirmed:
            self._progress = time.monotonic()
        return confirmed

    def check(self, receipt_timeout: float) -> float | None:
        """Return the seconds in which the broker must confirm the next message; `None` while none is in flight.

        Raises:
            StompError: the connection is over.
            ReceiptTimeout: the broker confirms nothing.
        """
        if not self._sent:
            return None
        first = self._sent[0].receipt
        if first.error is not None:
            raise first.error.with_traceback(None)
        if self._watched is not first:
            self._watched = first
            first.add_done_callback(lambda _: self._on_done())
        left = self._progress + receipt_timeout - time.monotonic()
        if left <= 0:
            raise ReceiptTimeout(f"the broker confirmed nothing for {receipt_timeout:g} s", receipt_id=first.id)
        return left

    def settle(self) -> tuple[list[Row], list[Refusal], Verdict]:
        """Return what was confirmed and what was refused; when the connection is over, so that no receipt can come.

        Of messages that were lost without an ERROR only one that was in flight alone is returned, with `Verdict.LOST`.
        """
        fates = self._fates()
        self._sent, self._cut_short = deque(), None
        confirmed = [row for row, outcome, _ in fates if outcome == "confirmed"]
        refused = [Refusal(row, words_of(error)) for row, outcome, error in fates if outcome == "rejected"]
        unknown = [(row, error) for row, outcome, error in fates if outcome == "unknown"]
        if refused or not unknown:
            return confirmed, refused, Verdict.REFUSED if refused else Verdict.NONE
        row, error = unknown[0]
        alone = [Refusal(row, words_of(error))] if self._alone and len(unknown) == 1 else []
        if isinstance(error, BrokerError):
            if error.receipt_id is not None:
                return confirmed, [], Verdict.NONE
            return confirmed, alone, Verdict.REFUSED if alone else Verdict.SUSPECT
        # Not the subclasses: they tell of silence, which says nothing of a message.
        return (confirmed, alone, Verdict.LOST) if type(error) is ConnectionLost else (confirmed, [], Verdict.NONE)

    def _fates(self) -> list[tuple[Row, str, StompError | None]]:
        """Return outcome and error of each message that was in flight."""
        fates: list[tuple[Row, str, StompError | None]] = [
            (one.row, one.receipt.outcome, one.receipt.error) for one in self._sent
        ]
        if self._cut_short is not None:
            row, error = self._cut_short
            named = isinstance(error, BrokerError) and error.receipt_id is not None
            # It never got to know its receipt, but an ERROR that names none of the others can only be about this one.
            its = named and all(one.receipt.outcome != "rejected" for one in self._sent)
            fates.append((row, "rejected" if its else "unknown", error))
        return fates


def words_of(error: StompError | None) -> str:
    """Return the broker's error message in an ERROR: its `message` header and its body."""
    if not isinstance(error, BrokerError):
        return str(error)
    message = error.frame.headers.get("message") or ""
    body = error.frame.body.decode("utf-8", "replace").strip()
    return f"{message}\n{body}".strip()[:_MOST_WORDS]
