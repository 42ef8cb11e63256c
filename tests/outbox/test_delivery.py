from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from stompy.connection.connection import Connection
from stompy.errors import (
    BrokerError,
    ConnectionLostError,
    HeartbeatTimeoutError,
    LocalProtocolError,
    NotConnectedError,
    ReceiptTimeoutError,
    SendTimeoutError,
    SessionError,
    StompError,
)
from stompy.frames.frame import Frame
from stompy.outbox.delivery import InFlight, Verdict, error_text
from stompy.outbox.store import now_ms
from tests.outbox.conftest import a_row

ROWS = [a_row(body, id=f"id-{seq}", seq=seq) for seq, body in enumerate((b"1", b"2", b"3"), start=1)]


class FakeReceipt:
    def __init__(self, id: str) -> None:
        self.id = id
        self.ended = False
        self.error: StompError | None = None
        self.callbacks: list[Callable[[object], None]] = []

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self.callbacks.append(callback)

    def done(self) -> bool:
        return self.ended

    def exception(self, timeout: float) -> StompError | None:
        if not self.ended:
            raise ReceiptTimeoutError("no receipt", receipt_id=self.id)
        return self.error

    def result(self, timeout: float) -> None:
        if self.error is not None:
            raise self.error

    def end(self, error: StompError | None = None) -> None:
        self.ended, self.error = True, error


class FakeConnection:
    """Takes everything but bodies that begin with `!`."""

    version = "1.0"

    def __init__(self, dialect: str = "generic") -> None:
        self.dialect = dialect
        self.sent: list[dict[str, Any]] = []
        self.receipts: list[FakeReceipt] = []
        self.ends_at: tuple[int, SessionError] | None = None

    def batch(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def send_async(self, destination: str, body: bytes, **options: Any) -> FakeReceipt:
        if body.startswith(b"!"):
            raise LocalProtocolError("a line end in a header")
        if self.ends_at is not None and len(self.sent) + 1 == self.ends_at[0]:
            raise self.ends_at[1]
        self.sent.append({"destination": destination, "body": body, **options})
        self.receipts.append(FakeReceipt(f"r-{len(self.sent)}"))
        return self.receipts[-1]


class Sending:
    def __init__(self, *, alone: bool = False, dialect: str = "generic") -> None:
        self.connection = FakeConnection(dialect)
        self.done = 0
        self.delivery = InFlight(cast("Connection", self.connection), alone=alone, on_done=self._on_done)

    def _on_done(self) -> None:
        self.done += 1


def an_error(receipt_id: str | None, body: bytes = b"") -> BrokerError:
    return BrokerError("no", frame=Frame("ERROR", {"message": "no such queue"}, body), receipt_id=receipt_id)


def test_a_message_goes_out_with_its_headers_its_dedupe_id_and_a_receipt() -> None:
    sending = Sending()
    sending.delivery.send([a_row(id="id-9", headers='{"content-type":"text/plain","a":"b"}')])
    assert sending.connection.sent == [
        {
            "destination": "/queue/a",
            "body": b"body",
            "content_type": "text/plain",
            "headers": {"stompy-dedupe-id": "id-9", "a": "b"},
        }
    ]


def test_a_broker_that_knows_duplicates_gets_its_own_header_and_keeps_the_message() -> None:
    sending = Sending(dialect="artemis")
    sending.delivery.send([a_row(id="id-9")])
    sent = sending.connection.sent[0]
    assert sent["headers"] == {"stompy-dedupe-id": "id-9", "_AMQ_DUPL_ID": "id-9"}
    assert sent["persistent"] is True


def test_a_message_goes_out_with_its_options_of_which_times_count_from_its_put() -> None:
    sending = Sending(dialect="artemis")
    given = {"persistent": False, "priority": 7, "dedupe_id": "mine", "expires": 100, "delay": 30}
    sending.delivery.send([replace(a_row(), options=json.dumps(given), put_ms=now_ms() - 60_000)])
    sent = sending.connection.sent[0]
    assert sent["headers"] == {"stompy-dedupe-id": "mine", "_AMQ_DUPL_ID": "mine"}
    assert (sent["persistent"], sent["priority"]) == (False, 7)
    assert 0 < sent["expires"] <= 40
    assert 0 < sent["delay"] < 1


def test_headers_of_the_user_come_before_those_of_the_outbox() -> None:
    sending = Sending(dialect="activemq")
    sending.delivery.send([a_row(headers='{"stompy-dedupe-id":"order-7","persistent":"false"}')])
    assert sending.connection.sent[0]["headers"] == {"stompy-dedupe-id": "order-7", "persistent": "false"}
    assert "persistent" not in sending.connection.sent[0]


def test_confirmed_messages_are_taken_from_the_front() -> None:
    sending = Sending()
    sending.delivery.send(ROWS)
    for number in (0, 2):
        sending.connection.receipts[number].end()
    assert sending.delivery.take_confirmed() == ROWS[:1]
    assert len(sending.delivery) == 2
    sending.connection.receipts[1].end()
    assert sending.delivery.take_confirmed() == ROWS[1:]


def test_a_message_that_cannot_be_written_is_refused_for_good_and_the_others_go() -> None:
    sending = Sending()
    bad = a_row(b"!", seq=2)
    (refusal,) = sending.delivery.send([ROWS[0], bad, ROWS[2]])
    assert (refusal.row, refusal.permanent) == (bad, True)
    assert refusal.error_message == "it cannot be sent in STOMP 1.0: a line end in a header"
    assert [sent["body"] for sent in sending.connection.sent] == [b"1", b"3"]
    assert sending.delivery.last_seq == 3


def test_the_first_message_is_watched_once() -> None:
    sending = Sending()
    assert sending.delivery.check(10) is None
    sending.delivery.send(ROWS)
    for _ in range(3):
        left = sending.delivery.check(10)
        assert left is not None
        assert 0 < left <= 10
    (callback,) = sending.connection.receipts[0].callbacks
    callback(None)
    assert sending.done == 1


def test_a_broker_that_confirms_nothing_is_left() -> None:
    sending = Sending()
    sending.delivery.send(ROWS)
    with pytest.raises(ReceiptTimeoutError, match="confirmed nothing"):
        sending.delivery.check(0)


def test_the_end_of_the_connection_is_raised() -> None:
    sending = Sending()
    sending.delivery.send(ROWS)
    sending.connection.receipts[0].end(ConnectionLostError("cut"))
    with pytest.raises(ConnectionLostError, match="cut"):
        sending.delivery.check(10)


def settled(outcomes: list[tuple[str, StompError | None]], *, alone: bool = False) -> tuple[list[int], list[int], str]:
    """Send as many messages as there are outcomes; return who was confirmed, who refused, and the verdict."""
    sending = Sending(alone=alone)
    sending.delivery.send(ROWS[: len(outcomes)])
    for receipt, (outcome, error) in zip(sending.connection.receipts, outcomes, strict=True):
        if outcome != "pending":
            receipt.end(with_outcome(error, outcome))
    confirmed, refused, verdict = sending.delivery.settle()
    return [row.seq for row in confirmed], [refusal.row.seq for refusal in refused], verdict.name


def test_a_lost_link_reports_confirmations_and_the_message_that_was_sent_alone() -> None:
    lost = ConnectionLostError("cut")
    assert settled([("unknown", lost), ("confirmed", None), ("unknown", lost)]) == ([2], [], "LOST")
    assert settled([("unknown", lost)]) == ([], [], "LOST")
    assert settled([("unknown", lost)], alone=True) == ([], [1], "LOST")


@pytest.mark.parametrize(
    "silence", [HeartbeatTimeoutError("deaf"), SendTimeoutError("slow"), NotConnectedError("closed")]
)
def test_a_broker_that_falls_silent_says_nothing_of_a_message(silence: StompError) -> None:
    assert settled([("unknown", silence)], alone=True) == ([], [], "NONE")


def with_outcome(error: StompError | None, outcome: str) -> StompError | None:
    """Return the error of one message: each has an error of its own, of which its outcome is."""
    made = copy.copy(error)
    if made is not None:
        vars(made)["outcome"] = outcome
    return made


def cut_short(error: SessionError, *, before: int = 0, alone: bool = False) -> tuple[list[int], str]:
    """Lose the connection in the middle of a write; return who is refused, and the verdict."""
    sending = Sending(alone=alone)
    sending.connection.ends_at = before + 1, error
    with pytest.raises(SessionError):
        sending.delivery.send(ROWS)
    for receipt in sending.connection.receipts:
        named = getattr(error, "receipt_id", None) == receipt.id
        receipt.end(with_outcome(error, "rejected" if named else "unknown"))
    _, refused, verdict = sending.delivery.settle()
    return [refusal.row.seq for refusal in refused], verdict.name


def test_a_connection_whose_end_nobody_waited_for_says_nothing_of_its_messages() -> None:
    sending = Sending()
    sending.delivery.send(ROWS)
    sending.connection.receipts[0].end()
    assert sending.delivery.settle() == (ROWS[:1], [], Verdict.NONE)
    assert sending.delivery.unsettled == [2, 3]


def test_an_error_that_comes_while_a_message_is_written_is_about_one_in_flight() -> None:
    assert cut_short(an_error(None), before=1) == ([], "SUSPECT")
    assert cut_short(an_error(None), alone=True) == ([1], "REFUSED")
    assert cut_short(an_error("r-1"), before=1) == ([1], "REFUSED")
    assert cut_short(an_error("r-2"), before=1) == ([2], "REFUSED")
    assert cut_short(ConnectionLostError("cut"), alone=True) == ([1], "LOST")


def test_a_message_of_which_nothing_was_written_is_not_suspected() -> None:
    assert cut_short(ConnectionLostError("cut", outcome="not-sent"), alone=True) == ([], "NONE")


def test_an_error_that_names_a_message_refuses_it_alone() -> None:
    error = an_error("r-2")
    assert settled([("unknown", error), ("rejected", error), ("unknown", error)]) == ([], [2], "REFUSED")


def test_an_error_that_names_nobody_makes_all_suspect() -> None:
    error = an_error(None)
    assert settled([("confirmed", None), ("unknown", error), ("unknown", error)]) == ([1], [], "SUSPECT")
    assert settled([("unknown", error)]) == ([], [], "SUSPECT")


def test_an_error_that_names_nobody_refuses_the_message_that_was_sent_alone() -> None:
    assert settled([("unknown", an_error(None))], alone=True) == ([], [1], "REFUSED")


def test_an_error_about_something_else_refuses_nobody() -> None:
    assert settled([("unknown", an_error("other"))], alone=True) == ([], [], "NONE")


def test_a_receipt_that_never_came_says_nothing() -> None:
    assert settled([("pending", None)]) == ([], [], Verdict.NONE.name)


def test_the_brokers_words_are_header_and_body_cut() -> None:
    assert error_text(an_error(None, b"The frame was SEND.\n")) == "no such queue\nThe frame was SEND."
    assert len(error_text(an_error(None, b"x" * 10_000))) == 4_000
    assert error_text(ConnectionLostError("cut")) == "cut"
