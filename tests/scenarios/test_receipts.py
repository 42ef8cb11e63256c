"""Receipts: when they come, in which order, and what becomes of them at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from stompy.errors import StompTimeoutError
from stompy.frames.frame import Frame
from tests.scenarios.acts import SOON, Recorder, left
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.support.peer import until
from tests.support.receipts import outcome_of

pytestmark = [pytest.mark.broker, pytest.mark.scenario("receipts")]


@pytest.mark.parametrize("persistent", [False, True], ids=["default", "persistent"])
def test_many_receipts_may_be_in_flight(connect: Connect, queue: str, expect: Expect, persistent: bool) -> None:
    heard = Recorder()
    connection = connect(listeners=[heard])
    headers = {"persistent": "true"} if persistent else {}
    receipts = [connection.send_async(queue, str(number), headers=headers) for number in range(200)]
    connection.flush(timeout=SOON)
    assert all(outcome_of(receipt) == "confirmed" for receipt in receipts)
    until(lambda: len(heard.receipts) == 200)
    asked = [receipt.id for receipt in receipts]
    came = [frame.headers["receipt-id"] for frame in heard.receipts]
    assert sorted(came) == sorted(asked)
    expect("receipts-order", "in order" if came == asked else "as it comes", heard.receipts[0])


def test_every_frame_can_have_a_receipt(raw: Raw, queue: str) -> None:
    client = raw()
    client.subscribe(queue, "client-individual")
    client.sure("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": queue, "transaction": "t"}, b"x")
    client.sure("COMMIT", {"transaction": "t"})
    message = client.expect("MESSAGE")
    client.settle(message, receipt="acked")
    frames, _ = client.until(lambda frame: frame.command == "RECEIPT")
    assert [frame.headers["receipt-id"] for frame in frames] == ["acked"]
    client.sure("BEGIN", {"transaction": "t"})
    client.sure("ABORT", {"transaction": "t"})
    client.sure("UNSUBSCRIBE", {"id": "1", "destination": queue})
    client.sure("DISCONNECT")


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_the_receipt_of_a_send_in_a_transaction(raw: Raw, queue: str, expect: Expect, end: str) -> None:
    client = raw()
    client.say("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": queue, "transaction": "t", "receipt": "send"}, b"x")
    client.say("SEND", {"destination": f"{queue}.other", "receipt": "other"}, b"x")
    frames, _ = client.until(_receipt("other"))
    at_once = [frame.headers["receipt-id"] for frame in frames if frame.headers["receipt-id"] == "send"]
    client.say(end, {"transaction": "t", "receipt": "end"})
    client.say("SEND", {"destination": f"{queue}.other", "receipt": "last"}, b"x")
    frames, _ = client.until(_receipt("last"))
    with contextlib.suppress(StompTimeoutError):
        frames += client.until(_receipt("send"), within=0.5 if not at_once else 0.0)[0]
    late = [frame.headers["receipt-id"] for frame in frames if frame.headers["receipt-id"] in ("send", "end")]
    expect(f"receipt-in-tx-{end}", f"at once: {' '.join(at_once) or 'nothing'}; then: {' '.join(late)}")


def test_receipts_asked_for_just_before_disconnect(raw: Raw, connect: Connect, queue: str, expect: Expect) -> None:
    client = raw()
    frames = [client.encoded("SEND", {"destination": queue, "receipt": f"r{n}"}, b"x") for n in range(50)]
    client.raw(b"".join([*frames, client.encoded("DISCONNECT", {"receipt": "bye"})]))
    came = [frame.headers["receipt-id"] for frame in client.rest()]
    assert "bye" in came
    stored = len(left(connect(), queue))
    expect("receipts-at-disconnect", f"{'all' if len(came) == 51 else 'not all'}; stored: {stored}")


def test_disconnect_waits_for_what_it_was_asked_to_confirm(connect: Connect, queue: str) -> None:
    connection = connect()
    receipts = [connection.send_async(queue, "x") for _ in range(50)]
    connection.flush(timeout=SOON)
    connection.close()
    assert {outcome_of(receipt) for receipt in receipts} == {"confirmed"}


def test_what_send_took_is_there_after_the_connection_was_closed(connect: Connect, queue: str) -> None:
    first = connect()
    for number in range(50):
        first.send(queue, str(number))
    first.close()
    assert [message.text for message in left(connect(), queue)] == [str(number) for number in range(50)]


@pytest.mark.once
def test_the_outgoing_direction_shut_after_a_send(raw: Raw, connect: Connect, queue: str, expect: Expect) -> None:
    client = raw()
    client.say("SEND", {"destination": queue, "receipt": "r"}, b"x")
    client.half_close()
    came = [frame.command for frame in client.rest()]
    expect("half-close", f"{' '.join([*came, 'closed'])}; stored: {len(left(connect(), queue))}")


def _receipt(identity: str) -> Callable[[Frame], bool]:
    def holds(frame: Frame) -> bool:
        return frame.headers.get("receipt-id") == identity

    return holds
