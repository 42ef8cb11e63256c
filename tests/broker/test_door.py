from __future__ import annotations

from stompy.broker.door import Door, Place, Visit


def entered(door: Door) -> Visit:
    visit = door.enter()
    assert visit is not None
    return visit


def test_clients_come_in_until_there_are_too_many_and_again_when_one_has_left() -> None:
    door = Door(max_sessions=2, max_handshakes=9)
    first, second = entered(door), entered(door)
    door.greeted(first)
    refused = entered(door)
    assert refused.refusal is not None
    assert str(refused.refusal) == "too many sessions (limit max_sessions=2)"
    door.leave(first)
    door.leave(first)
    assert entered(door).refusal is None
    assert entered(door).refusal is not None
    door.leave(second)


def test_those_who_say_nothing_cannot_take_every_place() -> None:
    door = Door(max_sessions=9, max_handshakes=2)
    first, _ = entered(door), entered(door)
    refusal = entered(door).refusal
    assert refusal is not None
    assert (refusal.limit_name, refusal.limit) == ("max_handshakes", 2)
    door.greeted(first)
    assert entered(door).refusal is None


def test_a_storm_of_refused_clients_is_not_answered_one_by_one() -> None:
    door = Door(max_sessions=1, max_handshakes=1)
    entered(door)
    told = [door.enter() for _ in range(100)]
    answered = [visit for visit in told if visit is not None]
    assert 0 < len(answered) < 50
    assert {visit.place for visit in answered} == {Place.REFUSED}
    door.leave(answered[0])
    assert door.enter() is not None
