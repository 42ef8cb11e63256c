from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.errors import ConnectError, OutboxError, OutboxFullError
from stompy.frames.frame import Frame
from stompy.testing.faults import Cut as FaultCut
from stompy.testing.faults import FaultPlan
from stompy.testing.proxy import FaultProxy
from tests.outbox.conftest import DEDUPE, Answer, Cut, MakesOutbox, Scripts
from tests.support.peer import WITHIN, Peer, until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def confirm(peer: Peer, frame: Frame) -> None:
    peer.receipt(frame)


def test_what_waits_is_sent_in_order_and_removed(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    peer = scripted(confirm)
    outbox = outbox_to(peer.url, batch=7)
    ids = [outbox.put("/queue/a", str(number)) for number in range(100)]
    outbox.flush()
    assert peer.bodies == [str(number).encode() for number in range(100)]
    assert [frame.headers[DEDUPE] for frame in peer.sends] == ids
    stats = outbox.stats()
    assert (stats.waiting, stats.in_flight, stats.sent, stats.bytes, stats.last_error) == (0, 0, 100, 0, None)
    assert peer.sessions == 1


def test_no_more_than_a_batch_is_in_flight(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    held: list[Frame] = []
    enough = threading.Event()

    def hold(peer: Peer, frame: Frame) -> None:
        held.append(frame)
        if len(held) == 10:
            enough.set()

    peer = scripted(hold)
    outbox = outbox_to(peer.url, batch=10)
    for number in range(30):
        outbox.put("/queue/a", str(number))
    assert enough.wait(20)
    until(lambda: outbox.stats().in_flight == 10)
    assert outbox.stats().waiting == 30
    assert len(peer.sends) == 10


def test_confirmations_out_of_order_are_good_enough(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    held: list[Frame] = []

    def confirm_backwards(peer: Peer, frame: Frame) -> None:
        held.append(frame)
        if len(held) == 5:
            for one in reversed(held):
                peer.receipt(one)
            held.clear()

    peer = scripted(confirm_backwards)
    outbox = outbox_to(peer.url, batch=5)
    for number in range(20):
        outbox.put("/queue/a", str(number))
    outbox.flush()
    assert len(peer.sends) == 20


def test_what_was_not_confirmed_is_sent_again_in_order_with_the_same_id(
    outbox_to: MakesOutbox, scripted: Scripts
) -> None:
    def cut_at_fifth(peer: Peer, frame: Frame) -> None:
        if len(script.sends) == 5:
            raise Cut
        if len(script.sends) not in (3, 4):
            peer.receipt(frame)

    script = scripted(cut_at_fifth)
    outbox = outbox_to(script.url)
    ids = [outbox.put("/queue/a", str(number)) for number in range(10)]
    outbox.flush()
    assert script.sessions == 2
    sent = [frame.headers[DEDUPE] for frame in script.sends]
    # At the cut, two were confirmed; whether the client has seen that is open.
    again = sent[5:]
    assert sent[:5] == ids[:5]
    assert again == ids[-len(again) :]
    assert 8 <= len(again) <= 10


def test_an_absent_broker_is_waited_for(outbox_to: MakesOutbox) -> None:
    with Broker() as broker:
        pass
    outbox = outbox_to(broker.url)
    for number in range(10):
        outbox.put("/queue/a", str(number))
    until(lambda: outbox.stats().last_error is not None)
    assert outbox.stats().waiting == 10
    with broker:
        outbox.flush()
        assert broker.depth("/queue/a") == 10


def test_a_broker_that_comes_and_goes_gets_everything(outbox_to: MakesOutbox, broker: Broker) -> None:
    outbox = outbox_to(broker.url)
    for round in range(5):
        for number in range(200):
            outbox.put("/queue/a", f"{round} {number}")
        broker.close()
        broker.start()
    outbox.flush()
    assert broker.depth("/queue/a") >= 1_000


def test_a_link_lost_while_nothing_is_to_be_sent_is_left(outbox_to: MakesOutbox, broker: Broker) -> None:
    outbox = outbox_to(broker.url)
    outbox.put("/queue/a", "1")
    outbox.flush()
    assert outbox.stats().connected
    broker.close()
    until(lambda: outbox._forwarder._connection is None)
    assert not outbox.stats().connected
    broker.start()
    outbox.put("/queue/a", "2")
    outbox.flush()
    assert broker.depth("/queue/a") == 2


def test_a_broker_that_confirms_nothing_is_left_and_tried_again(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    def silent_at_first(peer: Peer, frame: Frame) -> None:
        if script.sessions > 1:
            peer.receipt(frame)

    script = scripted(silent_at_first)
    outbox = outbox_to(script.url, timeouts=stompy.Timeouts(receipt=0.5))
    outbox.put("/queue/a", "1")
    outbox.flush(timeout=WITHIN)
    assert script.sessions == 2


def refuse(poison: bytes, *, named: bool = True, times: int = 1_000_000) -> Answer:
    """Return an answer that refuses a body so many times."""
    left = [times]

    def answer(peer: Peer, frame: Frame) -> None:
        if frame.body == poison and left[0]:
            left[0] -= 1
            headers = {"receipt-id": frame.headers["receipt"]} if named else {}
            peer.error("no such queue", b"and there never was", headers)
            raise Cut
        peer.receipt(frame)

    return answer


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("place", [0, 5, 9])
def test_poison_becomes_a_dead_letter_with_the_brokers_words_and_the_rest_goes_on(
    outbox_to: MakesOutbox, scripted: Scripts, place: int, named: bool
) -> None:
    broker = scripted(refuse(str(place).encode(), named=named))
    outbox = outbox_to(broker.url, attempts=3)
    ids = [outbox.put("/queue/a", str(number)) for number in range(10)]
    outbox.flush()
    (aside,) = outbox.dead_letters()
    assert (aside.id, aside.attempts) == (ids[place], 3)
    assert aside.error_message == "no such queue\nand there never was"
    assert {frame.headers[DEDUPE] for frame in broker.sends} == set(ids)
    stats = outbox.stats()
    assert (stats.waiting, stats.dead_letters, stats.sent) == (0, 1, 9)


@pytest.mark.parametrize("named", [True, False])
def test_a_message_refused_less_often_than_that_arrives_before_those_behind_it(
    outbox_to: MakesOutbox, scripted: Scripts, named: bool
) -> None:
    broker = scripted(refuse(b"3", named=named, times=2))
    outbox = outbox_to(broker.url, attempts=5)
    for number in range(8):
        outbox.put("/queue/a", str(number))
    outbox.flush()
    assert outbox.stats().dead_letters == 0
    last_time = {body: place for place, body in enumerate(broker.bodies)}
    assert sorted(last_time, key=last_time.__getitem__) == [str(number).encode() for number in range(8)]


def test_without_a_number_of_tries_nothing_becomes_a_dead_letter(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    broker = scripted(refuse(b"poison", times=12))
    outbox = outbox_to(broker.url, attempts=None)
    outbox.put("/queue/a", "poison")
    outbox.flush()
    assert broker.bodies == [b"poison"] * 13
    assert outbox.stats().dead_letters == 0


def test_tries_are_counted_over_restarts(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    broker = scripted(refuse(b"poison"))
    outbox = outbox_to(broker.url, attempts=None)
    outbox.put("/queue/a", "poison")
    until(lambda: broker.sessions >= 3)
    outbox.close()
    outbox = outbox_to(broker.url, attempts=2)
    outbox.flush()
    (aside,) = outbox.dead_letters()
    assert aside.attempts >= 3


def test_a_message_that_is_retried_goes_out_with_its_old_id(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    broker = scripted(refuse(b"poison", times=1))
    outbox = outbox_to(broker.url, attempts=1)
    identity = outbox.put("/queue/a", "poison")
    outbox.flush()
    outbox.retry(identity)
    outbox.flush()
    assert [frame.headers[DEDUPE] for frame in broker.sends] == [identity, identity]
    assert outbox.dead_letters() == []


def test_a_message_that_this_version_cannot_express_is_dead_letter_at_once(
    outbox_to: MakesOutbox, scripted: Scripts
) -> None:
    broker = scripted(confirm, version="1.0")
    outbox = outbox_to(broker.url)
    outbox.put("/queue/a", "1", headers={"note": "two\nlines"})
    outbox.put("/queue/a", "2")
    outbox.flush()
    (aside,) = outbox.dead_letters()
    assert aside.error_message.startswith("it cannot be sent in STOMP 1.0")
    assert broker.bodies == [b"2"]


def test_a_full_queue_of_the_broker_is_waited_for(outbox_to: MakesOutbox) -> None:
    with Broker(limits=BrokerLimits(max_queue_messages=1)) as broker:
        outbox = outbox_to(broker.url, attempts=None)
        for number in range(3):
            outbox.put("/queue/a", str(number))
        until(lambda: "full" in str(outbox.stats().last_error), "the broker's error message")
        assert outbox.stats().dead_letters == 0
        assert broker.depth("/queue/a") == 1


def test_a_frame_too_large_for_the_broker_becomes_a_dead_letter(outbox_to: MakesOutbox) -> None:
    with Broker(limits=BrokerLimits(max_body=1_000)) as broker:
        outbox = outbox_to(broker.url, attempts=2)
        for body in (b"1", b"x" * 5_000, b"2"):
            outbox.put("/queue/a", body)
        outbox.flush()
        (aside,) = outbox.dead_letters()
        assert len(aside.body) == 5_000
        assert "1000" in aside.error_message
        assert broker.depth("/queue/a") >= 2


def test_a_broker_that_drops_everything_costs_few_messages_their_place(
    outbox_to: MakesOutbox, scripted: Scripts
) -> None:
    sick = threading.Event()
    sick.set()

    def drop(peer: Peer, frame: Frame) -> None:
        if sick.is_set():
            raise Cut
        peer.receipt(frame)

    broker = scripted(drop)
    outbox = outbox_to(broker.url, attempts=1)
    for number in range(6):
        outbox.put("/queue/a", str(number))
    until(lambda: outbox.stats().dead_letters == 2)
    sick.clear()
    outbox.flush()
    # Alone twice, then the next one four times; before that once together, where only the first one was read.
    assert broker.bodies[:7] == [b"0"] * 3 + [b"1"] * 4
    assert [aside.body for aside in outbox.dead_letters()] == [b"0", b"1"]
    assert outbox.stats().sent == 4
    sick.set()
    outbox.retry(outbox.dead_letters()[0].id)
    until(lambda: outbox.stats().dead_letters == 2)
    # Once where others had been confirmed, once where it was not known to be alone, and twice alone as at first.
    assert broker.bodies.count(b"0") == 3 + 4


def test_losses_before_and_after_an_outage_are_not_counted_together(outbox_to: MakesOutbox, path: str) -> None:
    plan = FaultPlan(FaultCut("SEND", keep=0))
    with Broker() as broker, FaultProxy(broker.url, faults=plan) as proxy:
        outbox = outbox_to(proxy.url, attempts=2)
        outbox.put("/queue/a", "1")
        for _ in range(6):
            sessions = broker.stats().sessions_total
            until(lambda sessions=sessions: broker.stats().sessions_total > sessions)  # type: ignore[misc]
            broker.close()
            until(lambda: isinstance(outbox.stats().last_error, ConnectError))
            broker.start()
        assert outbox.stats().dead_letters == 0


def test_what_was_confirmed_is_not_sent_again_while_the_disk_refuses_its_removal(
    outbox_to: MakesOutbox, scripted: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = scripted(confirm)
    outbox = outbox_to(script.url)
    refusals: list[OutboxFullError] = []

    def refusing_at_first(remove: Callable[[Any], None]) -> Callable[[Any], None]:
        def refuse_at_first(what: Any) -> None:
            if len(refusals) < 3:
                refusals.append(OutboxFullError("no room", path="a"))
                raise refusals[-1]
            remove(what)

        return refuse_at_first

    for name in ("remove", "remove_numbers"):
        monkeypatch.setattr(outbox._store, name, refusing_at_first(getattr(outbox._store, name)))
    outbox.put("/queue/a", "1")
    until(lambda: len(refusals) == 3)
    outbox.flush()
    until(lambda: outbox.stats().bytes == 0, "the removal from the disk")
    assert script.bodies == [b"1"]
    assert (outbox.stats().sent, outbox.stats().last_error) == (1, None)


def test_a_disk_that_fails_at_the_end_of_a_session_keeps_nothing_from_being_sent(
    outbox_to: MakesOutbox, scripted: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm_the_first_and_cut(peer: Peer, frame: Frame) -> None:
        if len(script.sends) == 2:
            peer.receipt(script.sends[0])
            raise Cut
        if len(script.sends) > 2:
            peer.receipt(frame)

    script = scripted(confirm_the_first_and_cut)
    outbox = outbox_to(script.url)
    calls = removing_fails(outbox, monkeypatch, {1})
    for text in "12":
        outbox.put("/queue/a", text)
    until(lambda: outbox.stats().waiting == 0, "both messages")
    assert calls > [1]
    assert set(script.bodies) == {b"1", b"2"}


def test_a_disk_that_fails_for_a_while_is_rid_of_what_was_confirmed_afterwards(
    outbox_to: MakesOutbox, scripted: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = scripted(confirm)
    outbox = outbox_to(script.url)
    # While the second message is in flight, when the session ends, and when the next one begins.
    calls = removing_fails(outbox, monkeypatch, {2, 3, 4})
    for text in "12":
        outbox.put("/queue/a", text)
        until(lambda: outbox.stats().sent or len(calls) > 1)
    until(lambda: outbox.stats().waiting == 0, "the removal from the disk")
    assert calls == [1, 2, 3, 4, 5]
    assert script.bodies == [b"1", b"2"]


def removing_fails(outbox: stompy.Outbox, monkeypatch: pytest.MonkeyPatch, which: Collection[int]) -> list[int]:
    """Let some removals from the disk fail, by their numbers; return the numbers of all, as they come."""
    calls: list[int] = []
    remove = outbox._store.remove

    def fail_at_some(rows: Any) -> None:
        calls.append(len(calls) + 1)
        if calls[-1] in which:
            raise OutboxError("disk I/O error", path="a")
        remove(rows)

    monkeypatch.setattr(outbox._store, "remove", fail_at_some)
    return calls


def test_a_refused_login_is_told_and_tried_on(outbox_to: MakesOutbox) -> None:
    with Broker(users={"user": "right"}) as broker:
        outbox = outbox_to(broker.url, login="user", passcode="sesame")
        outbox.put("/queue/a", "1")
        until(lambda: outbox.stats().last_error is not None)
        assert "refused" in str(outbox.stats().last_error)
        assert "sesame" not in str(outbox.stats().last_error)
        assert outbox.stats().waiting == 1
