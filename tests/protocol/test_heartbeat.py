from __future__ import annotations

import itertools
import math

import pytest

from stompy.errors import ConfigurationError, LimitExceededError, RemoteProtocolError
from stompy.frames.grammar import Version
from stompy.protocol.heartbeat import (
    DEFAULT_EOL_RATE,
    DEFAULT_TOLERANCE,
    SEND_SHARE,
    HeartbeatOffer,
    HeartbeatRateLimit,
    Heartbeats,
    HeartbeatTimer,
)
from stompy.protocol.server import ServerProtocol
from tests.protocol.exchange import CONNECT_OF, DRAFT, MODERN, V1_0, V1_2, client_of, server_of, wire

NONE = Heartbeats()


class Clock:
    """A clock that only advances when asked to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def forward(self, seconds: float) -> float:
        self.now += seconds
        return self.now


def timer_of(heartbeats: Heartbeats, *, tolerance: float = DEFAULT_TOLERANCE) -> tuple[HeartbeatTimer, Clock]:
    clock = Clock()
    return HeartbeatTimer(heartbeats, clock.now, tolerance), clock


# ------------------------------------------------------------------------------------------------------- the header


@pytest.mark.requirement("HBT-02", "HBT-03", "A-13")
@pytest.mark.parametrize(
    ("value", "offer"),
    [
        ("10000,0", HeartbeatOffer(10_000, 0)),
        ("0,0", HeartbeatOffer(0, 0)),
        ("0,500", HeartbeatOffer(0, 500)),
        ("1,2", HeartbeatOffer(1, 2)),
        ("007,0010", HeartbeatOffer(7, 10)),
        ("0, 0", HeartbeatOffer(0, 0)),
        (" 10 , 20 ", HeartbeatOffer(10, 20)),
        ("9999999999,9999999999", HeartbeatOffer(9_999_999_999, 9_999_999_999)),
    ],
)
def test_two_numbers_are_read(value: str, offer: HeartbeatOffer) -> None:
    assert HeartbeatOffer.parse(value) == offer


@pytest.mark.requirement("HBT-02", "A-13")
@pytest.mark.parametrize(
    "value",
    [
        *("", ",", "1", "1,", ",1", "abc", "1,b", "1,2,3", "-1,0", "0,-1", "+1,0", "1.5,0", "1e3,0", "1;2", "1 2"),
        *("\t1,2", "٣,٣", "1,2\n", "10000000000,0", "0,99999999999", "0x1,0"),
    ],
)
def test_anything_else_is_refused(value: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^heart-beat must be two numbers of at most 10 digits, not '"):
        HeartbeatOffer.parse(value)


@pytest.mark.requirement("HBT-04")
def test_no_header_is_the_same_as_zeros() -> None:
    assert HeartbeatOffer.parse(None) == HeartbeatOffer.parse("0,0") == HeartbeatOffer()


def test_a_long_offending_value_is_cut() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        HeartbeatOffer.parse("x" * 1000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("send", "receive", "header"),
    [(0, 0, "0,0"), (10, 2.5, "10000,2500"), (0.0001, 0, "1,0"), (0, 0.0015, "0,2"), (9_999_999, 1, "9999999000,1000")],
)
def test_seconds_become_milliseconds_and_never_nothing(send: float, receive: float, header: str) -> None:
    offer = HeartbeatOffer.from_seconds(send, receive)
    assert str(offer) == header
    assert HeartbeatOffer.parse(header) == offer


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf, 9_999_999.5, 10_000_000])
def test_seconds_that_the_header_cannot_say_are_refused(seconds: float) -> None:
    for pair in ((seconds, 0), (0, seconds)):
        with pytest.raises(ConfigurationError, match="0 to 9999999 seconds"):
            HeartbeatOffer.from_seconds(*pair)


# ---------------------------------------------------------------------------------------------------- the arithmetic


@pytest.mark.requirement("HBT-03", "HBT-05", "HBT-06")
def test_each_direction_is_the_longer_wish_or_nothing_where_one_side_says_0() -> None:
    for cx, cy, sx, sy in itertools.product((0, 50, 100, 300), repeat=4):
        client, server = HeartbeatOffer(cx, cy), HeartbeatOffer(sx, sy)
        upward = max(cx, sy) / 1000 if cx and sy else None
        downward = max(sx, cy) / 1000 if sx and cy else None
        assert Heartbeats.agree(client, server) == Heartbeats(send=upward, receive=downward)
        assert Heartbeats.agree(server, client) == Heartbeats(send=downward, receive=upward)


@pytest.mark.requirement("HBT-05", "HBT-06")
def test_the_example_of_the_table() -> None:
    client, server = HeartbeatOffer(100, 200), HeartbeatOffer(300, 50)
    assert Heartbeats.agree(client, server) == Heartbeats(send=0.1, receive=0.3)
    assert Heartbeats.agree(server, client) == Heartbeats(send=0.3, receive=0.1)


CASES = [
    ("100,200", "300,50", 0.1, 0.3),
    ("100,200", "0,0", None, None),
    ("100,200", "300,0", None, 0.3),
    ("100,200", "0,50", 0.1, None),
    ("0,200", "300,50", None, 0.3),
    ("100,0", "300,50", 0.1, None),
    ("0,0", "300,50", None, None),
    ("100,200", None, None, None),
]


@pytest.mark.requirement("HBT-01", "HBT-03", "HBT-04", "HBT-05", "HBT-06", "CON-14")
@pytest.mark.parametrize(("mine", "theirs", "send", "receive"), CASES)
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_a_client_obeys_both_headers(
    version: Version, mine: str, theirs: str | None, send: float | None, receive: float | None
) -> None:
    extra = {} if theirs is None else {"heart-beat": theirs}
    client = client_of(version, heartbeat=HeartbeatOffer.parse(mine), extra=extra)
    assert client.heartbeats == Heartbeats(send, receive)


@pytest.mark.requirement("HBT-01", "HBT-03", "HBT-04", "HBT-05", "HBT-06", "CON-14")
@pytest.mark.parametrize(("mine", "theirs", "send", "receive"), CASES)
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_a_broker_obeys_both_headers(
    version: Version, mine: str, theirs: str | None, send: float | None, receive: float | None
) -> None:
    server = ServerProtocol(heartbeat=HeartbeatOffer.parse(mine))
    headers = {"accept-version": version.value, "host": "h"} | ({} if theirs is None else {"heart-beat": theirs})
    server.receive(wire("CONNECT", headers))
    assert server.heartbeats == Heartbeats(send, receive)
    assert f"\nheart-beat:{mine}\n".encode() in server.connected("s")


@pytest.mark.requirement("HBT-13")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_1_0_has_no_heartbeats_whatever_the_headers_say(version: Version) -> None:
    offer = HeartbeatOffer(100, 100)
    for value in ("100,100", "garbage"):
        assert client_of(version, heartbeat=offer, extra={"heart-beat": value}).heartbeats == NONE
    server = server_of(version, heartbeat=offer)
    assert server.heartbeats == NONE


@pytest.mark.requirement("HBT-13")
def test_a_broker_reads_no_heart_beat_header_in_1_0_and_writes_none() -> None:
    server = ServerProtocol(heartbeat=HeartbeatOffer(100, 100))
    assert server.receive(wire("CONNECT", {"accept-version": "1.0", "heart-beat": "garbage"}))
    assert (server.error, server.heartbeats) == (None, NONE)
    assert b"heart-beat" not in server.connected("s")


@pytest.mark.requirement("CON-14", "HBT-01")
def test_what_was_agreed_on_heart_beats_is_known_before_connected_is_sent() -> None:
    server = ServerProtocol(heartbeat=HeartbeatOffer(100, 200))
    server.receive(wire("CONNECT", {**CONNECT_OF[V1_2], "heart-beat": "300,50"}))
    assert (server.heartbeats.send, server.heartbeats.receive) == (0.1, 0.3)


# -------------------------------------------------------------------------------------------------------- the timer


def test_without_an_agreement_nothing_is_ever_due() -> None:
    timer, clock = timer_of(NONE)
    clock.forward(1e9)
    assert not timer.beat_due(clock.now)
    assert not timer.dead(clock.now)
    assert timer.next_check(clock.now) is None
    assert NONE.silence_allowed() is None
    assert NONE.beat_after is None


@pytest.mark.requirement("HBT-08")
@pytest.mark.parametrize("interval", [0.001, 0.1, 10.0, 30.0])
def test_a_beat_is_due_well_before_the_interval_ends(interval: float) -> None:
    timer, clock = timer_of(Heartbeats(send=interval))
    start = clock.now
    assert not timer.beat_due(clock.forward(interval * SEND_SHARE * 0.9))
    wait = timer.next_check(clock.now)
    assert wait is not None
    assert clock.forward(wait) - start < interval * 0.8
    assert timer.beat_due(clock.now + 1e-6)


@pytest.mark.requirement("HBT-08")
def test_anything_sent_puts_the_beat_off() -> None:
    timer, clock = timer_of(Heartbeats(send=10.0))
    timer.sent(clock.forward(5.0))
    assert not timer.beat_due(clock.forward(5.0))
    assert timer.next_check(clock.now) == pytest.approx(1.0)
    assert timer.beat_due(clock.forward(1.0))


@pytest.mark.requirement("HBT-11", "HBT-12", "A-46")
@pytest.mark.parametrize("interval", [0.001, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("tolerance", [0.1, 1.0, 1.5, 3.0])
def test_a_peer_is_never_dead_within_the_interval_and_a_margin(interval: float, tolerance: float) -> None:
    timer, clock = timer_of(Heartbeats(receive=interval), tolerance=tolerance)
    assert not timer.dead(clock.forward(interval))
    assert not timer.dead(clock.forward(interval * 0.0999))


@pytest.mark.requirement("HBT-11", "A-46")
def test_a_silent_peer_is_dead_after_the_tolerance() -> None:
    timer, clock = timer_of(Heartbeats(receive=10.0))
    wait = timer.next_check(clock.now)
    assert wait == DEFAULT_TOLERANCE * 10.0
    assert not timer.dead(clock.forward(wait))
    assert timer.dead(clock.forward(0.001))
    assert timer.dead(clock.now)


@pytest.mark.requirement("HBT-12")
def test_the_default_tolerance_tolerates_a_first_beat_after_two_intervals() -> None:
    for interval in (0.01, 1.0, 30.0):
        assert (Heartbeats(receive=interval).silence_allowed() or 0) > 2 * interval


@pytest.mark.requirement("HBT-07", "HBT-10", "A-46")
def test_any_bytes_count_as_a_sign_of_life() -> None:
    timer, clock = timer_of(Heartbeats(receive=1.0))
    for _ in range(20):
        timer.heard(clock.forward(2.9))
        assert not timer.dead(clock.now)
    assert timer.next_check(clock.now) == pytest.approx(3.0)


@pytest.mark.requirement("HBT-03")
def test_a_client_that_only_sends_never_times_out_a_silent_broker() -> None:
    timer, clock = timer_of(Heartbeats.agree(HeartbeatOffer(500, 0), HeartbeatOffer(500, 500)))
    assert not timer.dead(clock.forward(1e6))
    timer, clock = timer_of(Heartbeats.agree(HeartbeatOffer(0, 500), HeartbeatOffer(500, 500)))
    assert not timer.beat_due(clock.forward(1e6))


def test_the_next_look_is_at_whatever_comes_first() -> None:
    timer, clock = timer_of(Heartbeats(send=10.0, receive=1.0))
    assert timer.next_check(clock.now) == pytest.approx(3.0)
    timer.heard(clock.forward(5.5))
    assert timer.next_check(clock.now) == pytest.approx(0.5)
    assert timer.next_check(clock.forward(100)) == 0.0


def test_while_the_clock_stands_still_nothing_changes() -> None:
    timer, clock = timer_of(Heartbeats(send=1.0, receive=1.0))
    looks = {timer.next_check(clock.now) for _ in range(1000)}
    assert list(looks) == [pytest.approx(SEND_SHARE)]
    assert not timer.beat_due(clock.now)
    assert not timer.dead(clock.now)


# -------------------------------------------------------------------------------------------- a machine that slept


@pytest.mark.requirement("HBT-12")
@pytest.mark.parametrize("slept", [40.0, 3600.0, 1e7])
def test_a_suspended_machine_gives_the_peer_another_chance(slept: float) -> None:
    timer, clock = timer_of(Heartbeats(receive=1.0))
    timer.next_check(clock.now)
    assert not timer.dead(clock.forward(slept))
    # The reader now finds what came while the machine slept.
    timer.heard(clock.forward(0.1))
    assert not timer.dead(clock.forward(2.9))


def test_a_peer_that_went_away_while_the_machine_slept_is_dead_one_silence_later() -> None:
    timer, clock = timer_of(Heartbeats(receive=1.0))
    timer.next_check(clock.now)
    assert not timer.dead(clock.forward(3600.0))
    wait = timer.next_check(clock.now) or 0.0
    assert wait == pytest.approx(3.0)
    assert timer.dead(clock.forward(wait + 0.001))


def test_a_machine_that_sleeps_again_and_again_does_not_keep_a_dead_peer_alive() -> None:
    timer, clock = timer_of(Heartbeats(receive=1.0))
    timer.next_check(clock.now)
    assert not timer.dead(clock.forward(3600.0))
    timer.next_check(clock.now)
    assert timer.dead(clock.forward(3600.0))


def test_a_machine_that_sleeps_twice_and_hears_the_peer_between_gives_two_chances() -> None:
    timer, clock = timer_of(Heartbeats(receive=1.0))
    for _ in range(2):
        timer.next_check(clock.now)
        assert not timer.dead(clock.forward(3600.0))
        timer.heard(clock.forward(0.1))


def test_a_check_that_is_a_little_late_is_no_suspension() -> None:
    timer, clock = timer_of(Heartbeats(receive=10.0))
    wait = timer.next_check(clock.now) or 0.0
    assert timer.dead(clock.forward(wait + 9.0))


def test_checks_at_fixed_intervals_find_a_silent_peer_in_time() -> None:
    timer, clock = timer_of(Heartbeats(receive=1.0))
    steps = next(step for step in range(1, 1000) if timer.dead(clock.forward(0.1)))
    assert 29 <= steps <= 32


def test_after_a_sleep_one_beat_is_due_and_not_all_that_were_missed() -> None:
    timer, clock = timer_of(Heartbeats(send=1.0))
    assert timer.beat_due(clock.forward(3600.0))
    timer.sent(clock.now)
    assert not timer.beat_due(clock.now)
    assert timer.next_check(clock.now) == pytest.approx(SEND_SHARE)


def test_beats_at_the_allowed_rate_are_tolerated_forever() -> None:
    meter = HeartbeatRateLimit(100, now=0.0)
    for second in range(1, 1000):
        meter.check(second * 100, frames=0, now=float(second))


def test_ten_seconds_of_them_may_come_at_once_and_one_more_is_a_flood() -> None:
    meter = HeartbeatRateLimit(100, now=0.0)
    meter.check(1000, frames=0, now=0.0)
    with pytest.raises(LimitExceededError, match="max_eol_rate=100") as caught:
        meter.check(1001, frames=0, now=0.0)
    assert (caught.value.limit_name, caught.value.limit) == ("max_eol_rate", 100)


def test_time_makes_room_again_but_never_more_than_at_first() -> None:
    meter = HeartbeatRateLimit(100, now=0.0)
    meter.check(1000, frames=0, now=0.0)
    meter.check(1500, frames=0, now=5.0)
    meter.check(2500, frames=0, now=1000.0)
    with pytest.raises(LimitExceededError):
        meter.check(2501, frames=0, now=1000.0)


def test_line_ends_after_frames_are_no_flood() -> None:
    meter = HeartbeatRateLimit(1, now=0.0)
    for round in range(1, 1000):
        meter.check(round * 100 * 4, frames=100, now=0.0)


def test_the_default_tolerates_the_shortest_heartbeat_there_is_in_crlf() -> None:
    assert DEFAULT_EOL_RATE >= 2 * 1000


@pytest.mark.requirement("HBT-13")
def test_a_broker_that_answers_the_header_in_1_0_too_agrees_on_nothing() -> None:
    server = ServerProtocol(heartbeat=lambda asked: asked)
    assert server.receive(wire("CONNECT", {"accept-version": "1.0", "heart-beat": "100,100"}))
    assert server.heartbeats == NONE
