from __future__ import annotations

from collections.abc import Sequence

import pytest

from stompy.spark.spool.record import Identity
from stompy.spark.spool.redelivery import Redelivery, StoredRange
from tests.spark.spool.spool_model import Model

A, B = ("a", ""), ("b", "")


class ForgetsAtTheReceipt(Redelivery):
    """The rule that one receiver needs, and that is wrong for several."""

    def _is_over(self, turn: int, delivery: StoredRange) -> bool:
        return True


class ForgetsWithoutARoundTrip(Redelivery):
    """Takes any receipt for a heartbeat, also one for what was sent before."""

    def note_receipt(self, receiver: int, turn: int) -> list[Identity]:
        return super().note_receipt(receiver, self.turn)


class RecognisesNothing(Redelivery):
    """As if each receiver looked at what it had itself before its session was lost, and not at the others."""

    def wrote(self, receiver: int, ids: Sequence[Identity], start: int, end: int) -> StoredRange:
        before = set(self.known)
        delivery = super().wrote(receiver, ids, start, end)
        self.known = before
        return delivery


class LosesTheSuspects(Redelivery):
    """Forgets what a lost session had not got confirmed."""

    def end(self, receiver: int) -> tuple[list[Identity], list[Identity]]:
        forgotten, suspects = super().end(receiver)
        return [*forgotten, *suspects], []


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(Model(messages=1), id="a crash and a frozen process"),
        pytest.param(Model(lives=1), id="two messages"),
        pytest.param(Model(lives=1, messages=1, receivers=3), id="three receivers"),
        # Two gigabytes and, on a machine that has nothing else to do, three minutes.
        pytest.param(Model(), id="two messages, a lost session and a crash", marks=pytest.mark.long),
        pytest.param(
            Model(messages=1, lives=3, losses=2), id="two lost sessions and two crashes", marks=pytest.mark.long
        ),
        pytest.param(Model(lives=1, losses=2), id="two messages and two lost sessions", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(1800)
def test_in_no_state_is_a_message_lost_or_there_twice(model: Model) -> None:
    assert model.search() is None
    assert len(model.seen) > 1000, "the model has stopped to do anything"


@pytest.mark.parametrize("rule", [ForgetsAtTheReceipt, ForgetsWithoutARoundTrip, RecognisesNothing, LosesTheSuspects])
def test_the_search_finds_what_is_wrong_with_another_rule(rule: type[Redelivery]) -> None:
    process_dies = rule is LosesTheSuspects
    found = Model(messages=1 if process_dies else 2, lives=2 if process_dies else 1, rule=rule).search()
    assert found is not None
    assert any("gives up" in step for step in found)


def test_with_one_receiver_an_id_is_forgotten_with_the_receipt() -> None:
    rule = Redelivery()
    rule.begin(0)
    delivery = rule.wrote(0, [A, B], 0, 2)
    assert (rule.known, rule.settled) == ({A, B}, 0)
    assert rule.confirm(delivery) == [A, B]
    assert (rule.known, rule.settled) == (set(), None)


def test_another_session_that_is_open_must_answer_something_sent_later() -> None:
    rule = Redelivery()
    rule.begin(0)
    rule.begin(1)
    earlier = rule.wrote(1, [B], 0, 1)
    later = rule.wrote(0, [A], 1, 2)
    assert rule.confirm(later) == []
    assert rule.needs_receipt(1)
    assert not rule.needs_receipt(0)
    assert rule.confirm(earlier) == [], "its ACK was sent before"
    asked = rule.turn
    assert rule.note_receipt(1, asked) == [A]
    assert rule.note_receipt(0, asked) == [B]
    assert not rule.needs_receipt(0)


def test_a_session_that_ends_or_begins_later_has_no_copy() -> None:
    rule = Redelivery()
    rule.begin(0)
    rule.begin(1)
    assert rule.confirm(rule.wrote(0, [A], 0, 1)) == []
    rule.begin(2)
    assert not rule.needs_receipt(2)
    assert rule.end(1) == ([A], [])


def test_what_a_lost_session_had_not_got_confirmed_may_come_again_and_holds_the_watermark_until_it_is_on_disk() -> None:
    rule = Redelivery()
    rule.begin(0)
    rule.wrote(0, [A], 0, 1)
    assert rule.end(0) == ([], [A])
    settled = [rule.settled]
    rule.leave(0)
    settled.append(rule.settled)
    assert settled == [0, None]
    rule.begin(0)
    assert rule.confirm(rule.wrote(0, [A], 1, 1)) == [A]
