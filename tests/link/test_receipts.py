"""Receipts by themselves; with a broker behind them they are in test_link.py."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from stompy.errors import (
    BrokerError,
    ConnectionLostError,
    LimitExceededError,
    ReceiptTimeoutError,
    StompError,
    StompTimeoutError,
)
from stompy.frames.frame import Frame
from stompy.link.flow import FlowControl
from stompy.link.link import Link
from stompy.link.receipts import Receipt, Receipts, write_before_wait
from stompy.link.settings import Limits
from stompy.protocol.heartbeat import Heartbeats, HeartbeatTimer
from tests.support.peer import until
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling
from tests.transport.conftest import calling as calling


class WatchedGate(FlowControl):
    """A gate that notes how many held it open."""

    shut = False

    def __init__(self) -> None:
        super().__init__(Limits(), HeartbeatTimer(Heartbeats(), 0.0))
        self.held_at_most = 0

    def hold(self, holder: object) -> None:
        super().hold(holder)
        self.held_at_most = max(self.held_at_most, len(self.holders))


class Around:
    """What receipts need of a link."""

    def __init__(self) -> None:
        self.receipt_timeout = 20.0
        self.owner = self
        self.flow = WatchedGate()
        self.jobs: list[Callable[[], None]] = []
        self.runs_jobs = False

    def call_soon(self, function: Callable[[], None]) -> None:
        if self.runs_jobs:
            function()
        else:
            self.jobs.append(function)

    def check_open(self) -> None:
        raise ConnectionLostError("gone", outcome="not-sent")


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.fixture
def receipts(around: Around) -> Receipts:
    return Receipts("c-1-", cast("Link", around))


def expected(receipts: Receipts, *, always: bool = False) -> Receipt:
    """Return a receipt that is in flight."""
    receipt = receipts.make()
    receipts.register(receipt, always=always)
    return receipt


def test_ids_begin_with_the_prefix_and_never_repeat(receipts: Receipts) -> None:
    ids = [expected(receipts).id for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(one.startswith("c-1-") for one in ids)


def test_a_new_receipt_is_pending(receipts: Receipts) -> None:
    receipt = expected(receipts)
    assert (receipt.done(), receipt.running(), receipt.cancel(), receipt.cancelled()) == (False, True, False, False)
    assert repr(receipt) == "<Receipt 'c-1-1' pending>"
    assert len(receipts) == 1


def test_a_confirmed_receipt_lets_its_waiter_go(receipts: Receipts, calling: Calling) -> None:
    receipt = expected(receipts)
    waiter = calling(receipt.result)
    waiter.until_blocked()
    assert receipts.confirm(receipt.id)
    waiter.result()
    assert (outcome_of(receipt), receipt.done(), receipt.exception(0), len(receipts)) == ("confirmed", True, None, 0)
    receipt.result(0)


def test_several_threads_may_wait_for_one_receipt(receipts: Receipts, calling: Calling) -> None:
    receipt = expected(receipts)
    waiters = [calling(receipt.result) for _ in range(5)]
    for waiter in waiters:
        waiter.until_blocked()
    receipts.confirm(receipt.id)
    for waiter in waiters:
        waiter.result()


def test_receipts_are_matched_by_id_and_never_by_order(receipts: Receipts) -> None:
    first, second, third = expected(receipts), expected(receipts), expected(receipts)
    receipts.confirm(third.id)
    receipts.confirm(first.id)
    assert [one.done() for one in (first, second, third)] == [True, False, True]


def test_a_wait_that_is_too_long_ends_with_a_timeout_that_names_the_receipt(receipts: Receipts) -> None:
    receipt = expected(receipts)
    with pytest.raises(ReceiptTimeoutError, match="no receipt 'c-1-1' within 0 s") as caught:
        receipt.result(0)
    assert caught.value.receipt_id == receipt.id
    assert isinstance(caught.value, StompTimeoutError)
    assert isinstance(caught.value, TimeoutError)
    assert not receipt.done()


def test_without_a_timeout_the_default_of_the_connection_counts(receipts: Receipts, around: Around) -> None:
    around.receipt_timeout = 0.0
    with pytest.raises(ReceiptTimeoutError, match="within 0 s"):
        expected(receipts).result()


def test_a_timeout_at_a_full_inbox_says_so(receipts: Receipts, around: Around) -> None:
    around.flow.paused = True
    with pytest.raises(ReceiptTimeoutError, match="inbox is at its hard limit"):
        expected(receipts).result(0)


def test_an_answer_after_the_timeout_still_resolves(receipts: Receipts) -> None:
    receipt = expected(receipts)
    with pytest.raises(ReceiptTimeoutError):
        receipt.result(0)
    assert receipts.confirm(receipt.id)
    receipt.result(0)


def test_unknown_and_doubled_answers_are_ignored(receipts: Receipts) -> None:
    receipt = expected(receipts)
    assert not receipts.confirm("somebody-else")
    assert not receipt.done()
    assert receipts.confirm(receipt.id)
    assert not receipts.confirm(receipt.id)
    assert outcome_of(receipt) == "confirmed"


def test_a_waiter_holds_the_gate_and_lets_it_go(receipts: Receipts, around: Around, calling: Calling) -> None:
    receipt = expected(receipts)
    waiter = calling(receipt.result)
    waiter.until_blocked()
    assert len(around.flow.holders) == 1
    receipts.confirm(receipt.id)
    waiter.result()
    assert len(around.flow.holders) == 0
    with pytest.raises(ReceiptTimeoutError):
        expected(receipts).result(0)
    assert len(around.flow.holders) == 0
    receipt.result()
    assert around.flow.held_at_most == 1


def refused(receipt: Receipt) -> BrokerError:
    return BrokerError("no", frame=Frame("ERROR"), receipt_id=receipt.id, outcome="rejected")


def test_a_rejected_receipt_raises_the_brokers_error_at_each_wait(receipts: Receipts) -> None:
    receipt, other = expected(receipts), expected(receipts)
    error = refused(receipt)
    receipts.reject(receipt.id, error)
    assert (receipt.exception(0), receipt.exception(), other.done()) == (error, error, False)
    for _ in range(2):
        with pytest.raises(BrokerError, match="no"):
            receipt.result()


def test_a_rejection_of_something_unknown_is_ignored(receipts: Receipts) -> None:
    receipt = expected(receipts)
    receipts.reject("somebody-else", refused(receipt))
    assert not receipt.done()


def test_the_end_of_the_link_fails_all_that_are_pending(receipts: Receipts, calling: Calling) -> None:
    confirmed, *pending = (expected(receipts) for _ in range(101))
    receipts.confirm(confirmed.id)
    waiters = [calling(receipt.result) for receipt in pending[:5]]
    for waiter in waiters:
        waiter.until_blocked()
    lost = ConnectionLostError("gone")
    receipts.fail_all(lost)
    for waiter in waiters:
        with pytest.raises(ConnectionLostError, match="gone"):
            waiter.result()
    assert {outcome_of(receipt) for receipt in pending} == {"unknown"}
    assert {receipt.exception(0) for receipt in pending} == {lost}
    assert outcome_of(confirmed) == "confirmed"
    assert len(receipts) == 0


def test_a_rejected_receipt_stays_rejected_when_the_link_ends(receipts: Receipts) -> None:
    receipt = expected(receipts)
    receipts.reject(receipt.id, refused(receipt))
    receipts.fail_all(ConnectionLostError("gone"))
    assert outcome_of(receipt) == "rejected"


def test_no_receipt_begins_after_the_end(receipts: Receipts) -> None:
    receipts.fail_all(ConnectionLostError("gone"))
    with pytest.raises(ConnectionLostError, match="gone") as lost:
        expected(receipts)
    assert lost.value.outcome == "not-sent"


def test_a_forgotten_receipt_is_none_any_more(receipts: Receipts) -> None:
    receipt = expected(receipts)
    receipts.forget(receipt)
    receipts.forget(receipt)
    assert len(receipts) == 0
    assert not receipts.confirm(receipt.id)


def test_a_wait_for_a_receipt_that_is_forgotten_ends(receipts: Receipts, around: Around, calling: Calling) -> None:
    receipt = expected(receipts)
    waiting = calling(receipt.result)  # as a flush beside the call whose frame is not written
    until(lambda: len(around.flow.holders) == 1)
    receipts.forget(receipt)
    with pytest.raises(StompError, match="failed"):
        waiting.result()


def test_outstanding_receipts_are_those_that_wait(receipts: Receipts) -> None:
    first, second = expected(receipts), expected(receipts)
    receipts.confirm(first.id)
    assert receipts.outstanding() == [second]


def test_callbacks_run_where_user_code_runs_once_and_in_order(receipts: Receipts, around: Around) -> None:
    receipt = expected(receipts)
    seen: list[object] = []
    receipt.add_done_callback(lambda one: seen.append(("first", one)))
    receipt.add_done_callback(lambda one: seen.append(("second", one)))
    receipts.confirm(receipt.id)
    assert seen == []
    for job in around.jobs:
        job()
    assert seen == [("first", receipt), ("second", receipt)]
    receipts.confirm(receipt.id)
    receipts.fail_all(ConnectionLostError("gone"))
    assert len(around.jobs) == 2


def test_a_callback_on_a_receipt_that_is_done_comes_soon(receipts: Receipts, around: Around) -> None:
    receipt = expected(receipts)
    receipts.fail_all(ConnectionLostError("gone"))
    seen: list[str] = []
    receipt.add_done_callback(lambda one: seen.append(outcome_of(one)))
    assert seen == []
    around.jobs.pop()()
    assert seen == ["unknown"]


def test_a_callback_races_the_answer_without_loss_or_doubling(receipts: Receipts, around: Around) -> None:
    for _ in range(200):
        receipt = expected(receipts)
        answering = threading.Thread(target=receipts.confirm, args=(receipt.id,))
        answering.start()
        receipt.add_done_callback(lambda one: None)
        answering.join()
    assert len(around.jobs) == 200


Await = Callable[[Sequence[Receipt]], object]
WAITS: dict[str, Await] = {
    "wait": lambda all_: concurrent.futures.wait(all_, 20),
    "as_completed": lambda all_: list(concurrent.futures.as_completed(all_, 20)),
    "asyncio": lambda all_: asyncio.run(gathered(all_)),
}


async def gathered(futures: Sequence[Receipt]) -> None:
    await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_receipt_is_a_future_among_futures_and_keeps_reading_enabled(
    receipts: Receipts, around: Around, calling: Calling, wait: Await
) -> None:
    around.runs_jobs = True
    confirmed, rejected, lost, early = (expected(receipts) for _ in range(4))
    receipts.confirm(early.id)
    other: concurrent.futures.Future[None] = concurrent.futures.Future()
    waiter = calling(lambda: wait([confirmed, other, rejected, lost, early]))  # type: ignore[list-item]
    if wait is not WAITS["asyncio"]:  # which adds callbacks, and does not wait
        until(lambda: around.flow.holders == {confirmed, rejected, lost})
    receipts.confirm(confirmed.id)
    receipts.reject(rejected.id, refused(rejected))
    other.set_result(None)
    receipts.fail_all(ConnectionLostError("gone"))
    waiter.result()
    assert not around.flow.holders
    assert [type(each.exception()) for each in (confirmed, rejected, lost, early)] == [
        type(None), BrokerError, ConnectionLostError, type(None),
    ]  # fmt: skip


def test_a_future_of_this_python_has_no_name_of_a_receipt() -> None:
    state = set(vars(concurrent.futures.Future()))
    assert state.isdisjoint(Receipt.__slots__)
    assert state.isdisjoint(vars(concurrent.futures.Future)), "a value of the class would hide what is made late"


def test_a_receipt_that_nobody_waits_for_has_none_of_the_state_of_a_future(receipts: Receipts) -> None:
    receipt = expected(receipts)
    receipts.confirm(receipt.id)
    receipt.result()
    assert vars(receipt) == {}
    assert concurrent.futures.wait([receipt], 0).done == {receipt}
    assert set(vars(receipt)) == set(vars(concurrent.futures.Future()))


def test_the_state_of_a_future_is_made_while_the_answer_comes(
    receipts: Receipts, around: Around, quick_switches: None
) -> None:
    for number in range(300):
        receipt = expected(receipts)
        answer = receipts.confirm if number % 2 else lambda name: receipts.reject(name, refused(receipt))  # noqa: B023
        answering = threading.Thread(target=answer, args=(receipt.id,))
        answering.start()
        done, pending = concurrent.futures.wait([receipt], 20)
        answering.join()
        assert (done, pending) == ({receipt}, set())
        assert (receipt.exception() is None) is bool(number % 2)
    assert not around.flow.holders


def test_a_future_that_waits_moves_to_the_next_link_and_holds_its_gate(
    receipts: Receipts, around: Around, calling: Calling
) -> None:
    receipt = kept(around, RecordingStore())
    receipts.register(receipt)
    waiting = calling(lambda: concurrent.futures.wait([receipt], 20))
    until(lambda: around.flow.holders == {receipt})
    receipts.fail_all(ConnectionLostError("gone"))
    elsewhere = Around()
    other = Receipts("c-2-", cast("Link", elsewhere))
    other.register(receipt)
    assert elsewhere.flow.holders == {receipt}
    other.confirm(receipt.id)
    assert waiting.result() == ({receipt}, set())
    assert not elsewhere.flow.holders


def test_a_frame_in_a_batch_is_written_before_a_wait_among_futures(receipts: Receipts) -> None:
    written, failed = expected(receipts), expected(receipts)

    def lose(timeout: float | None) -> None:
        receipts.fail_all(ConnectionLostError("gone"))
        raise ConnectionLostError("gone")

    write_before_wait(written, lambda timeout: receipts.confirm(written.id))
    assert concurrent.futures.wait([written], 20).done == {written}
    write_before_wait(failed, lose)
    assert concurrent.futures.wait([failed], 20).done == {failed}


class RecordingStore:
    """A store that records the calls of its methods."""

    def __init__(self) -> None:
        self.keep = True
        self.calls: list[str] = []

    def registered(self, receipt: Receipt) -> None:
        self.calls.append(f"registered {receipt.id}")

    def will_resend(self, receipt: Receipt) -> bool:
        self.calls.append(f"over {receipt.id}")
        return self.keep

    def rejected(self, receipt: Receipt, error: StompError) -> StompError:
        return error

    def resolved(self, receipt: Receipt) -> None:
        self.calls.append(f"resolved {receipt.id}")


def kept(around: Around, store: RecordingStore) -> Receipt:
    return Receipt("kept-1", cast("Link", around), threading.Lock(), store)


def test_a_kept_receipt_stays_open_over_the_end_of_its_link(receipts: Receipts, around: Around) -> None:
    store = RecordingStore()
    receipt = kept(around, store)
    receipts.register(receipt)
    receipts.fail_all(ConnectionLostError("gone"))
    assert not receipt.done()
    assert not receipts.confirm(receipt.id)
    other = Receipts("c-2-", cast("Link", around))
    other.register(receipt)
    assert other.confirm(receipt.id)
    assert outcome_of(receipt) == "confirmed"
    assert store.calls == ["registered kept-1", "over kept-1", "registered kept-1", "resolved kept-1"]


def test_a_receipt_that_is_not_kept_any_more_ends_as_unknown(receipts: Receipts, around: Around) -> None:
    store = RecordingStore()
    store.keep = False
    receipt = kept(around, store)
    receipts.register(receipt)
    receipts.fail_all(ConnectionLostError("gone"))
    assert outcome_of(receipt) == "unknown"


def test_a_link_that_is_over_takes_over_nothing(receipts: Receipts, around: Around) -> None:
    store = RecordingStore()
    receipts.fail_all(ConnectionLostError("gone"))
    with pytest.raises(ConnectionLostError, match="gone"):
        receipts.register(kept(around, store))
    assert store.calls == []


def test_who_waits_goes_on_at_the_next_link_and_holds_its_gate(
    receipts: Receipts, around: Around, calling: Calling
) -> None:
    receipt = kept(around, RecordingStore())
    receipts.register(receipt)
    waiting = calling(lambda: receipt.result(20))
    waiting.until_blocked()
    assert len(around.flow.holders) == 1
    receipts.fail_all(ConnectionLostError("gone"))
    elsewhere = Around()
    other = Receipts("c-2-", cast("Link", elsewhere))
    other.register(receipt)
    until(lambda: len(elsewhere.flow.holders) == 1)
    assert len(around.flow.holders) == 0
    other.confirm(receipt.id)
    waiting.result()


def test_a_frame_that_has_not_left_is_written_out_before_the_wait(receipts: Receipts) -> None:
    receipt = expected(receipts)
    write_before_wait(receipt, lambda timeout: receipts.confirm(receipt.id))
    receipt.result(0)


def test_no_more_than_the_limit_are_in_flight_but_the_last_one_always_has_room(around: Around) -> None:
    receipts = Receipts("c-1-", cast("Link", around), limit=2)
    first = expected(receipts)
    expected(receipts)
    with pytest.raises(LimitExceededError, match="max_receipts=2"):
        expected(receipts)
    expected(receipts, always=True)
    receipts.confirm(first.id)
    with pytest.raises(LimitExceededError):
        expected(receipts)
    receipts.forget(receipts.outstanding()[0])
    expected(receipts)
