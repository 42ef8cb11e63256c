from __future__ import annotations

import pytest

from stompy.errors import LimitExceeded
from stompy.protocol.flood import DEFAULT_EOL_RATE, EolMeter


def test_beats_at_the_allowed_rate_are_borne_with_for_ever() -> None:
    meter = EolMeter(100, now=0.0)
    for second in range(1, 1000):
        meter.look(second * 100, frames=0, now=float(second))


def test_ten_seconds_of_them_may_come_at_once_and_one_more_is_a_flood() -> None:
    meter = EolMeter(100, now=0.0)
    meter.look(1000, frames=0, now=0.0)
    with pytest.raises(LimitExceeded, match="max_eol_rate=100") as caught:
        meter.look(1001, frames=0, now=0.0)
    assert (caught.value.limit_name, caught.value.limit) == ("max_eol_rate", 100)


def test_time_makes_room_again_but_never_more_than_at_first() -> None:
    meter = EolMeter(100, now=0.0)
    meter.look(1000, frames=0, now=0.0)
    meter.look(1500, frames=0, now=5.0)
    meter.look(2500, frames=0, now=1000.0)
    with pytest.raises(LimitExceeded):
        meter.look(2501, frames=0, now=1000.0)


def test_line_ends_behind_frames_are_no_flood() -> None:
    meter = EolMeter(1, now=0.0)
    for round in range(1, 1000):
        meter.look(round * 100 * 4, frames=100, now=0.0)


def test_the_default_bears_the_shortest_heartbeat_there_is_in_crlf() -> None:
    assert DEFAULT_EOL_RATE >= 2 * 1000
