"""Tasks run once, without a broker."""

from __future__ import annotations

from typing import Any, cast

import pytest

import stompy

worker = stompy.Worker("stomp://nowhere.invalid")


@worker.task("/queue/orders", "/queue/more", decode="json", attempts=3, backoff=lambda attempt: 10.0 * attempt)
def order(body: dict[str, int], context: stompy.TaskContext) -> str:
    """Send an invoice."""
    if body["id"] < 0:
        raise stompy.Reject("no such order")
    if body["id"] == 0:
        raise stompy.Defer(5)
    if body["id"] > 100:
        raise ValueError("too large")
    context.send("/queue/invoices", body, headers={"customer": context.message.headers["customer"]}, priority=7)
    return "done"


worker.add(lambda message, context: context.send("/queue/b") or 1 / 0, "/queue/tx", name="tx", transactional=True)


def test_a_message_that_is_processed() -> None:
    ran = worker.run_once("/queue/more", {"id": 1}, headers={"customer": "c1"})
    assert (ran.outcome, ran.value, ran.error) == ("processed", "done", None)
    (sent,) = ran.sent
    assert (sent.destination, sent.body) == ("/queue/invoices", {"id": 1})
    assert sent.options == {"headers": {"customer": "c1"}, "priority": 7}


@pytest.mark.parametrize(
    ("body", "attempt", "outcome", "delay"),
    [
        ({"id": -1}, 1, "dead-letter", 0),
        ({"id": 0}, 1, "defer", 5),
        ({"id": 101}, 2, "retry", 20),
        ({"id": 101}, 3, "dead-letter", 0),
        ("no JSON", 1, "retry", 10),
    ],
)
def test_a_message_that_fails(body: object, attempt: int, outcome: str, delay: float) -> None:
    ran = worker.run_once("/queue/orders", cast("Any", body), attempt=attempt)
    assert (ran.outcome, ran.delay, ran.sent) == (outcome, delay, [])
    assert ran.error is not None


def test_a_failed_transaction_sends_nothing() -> None:
    ran = worker.run_once("/queue/tx")
    assert (ran.outcome, ran.sent) == ("retry", [])
    assert isinstance(ran.error, ZeroDivisionError)


def test_a_destination_without_a_task_is_refused() -> None:
    with pytest.raises(stompy.ConfigurationError, match="0 tasks"):
        worker.run_once("/queue/other")
