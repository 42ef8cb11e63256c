"""Settings that make no sense are refused, in words."""

from __future__ import annotations

from typing import Any

import pytest

from stompy.broker.settings import Settings
from stompy.broker.users import Users
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Version


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_queue_messages", 0),
        ("max_queue_bytes", -1),
        ("max_outbox_bytes", 1.5),
        ("max_outbox_frames", True),
        ("prefetch", 0),
        ("attempts", 0),
        ("connect_timeout", -1.0),
        ("linger", float("inf")),
        ("connect_timeout", float("nan")),
        ("versions", ()),
        ("versions", (Version.DRAFT, Version.V1_2)),
        ("dead_letter", ""),
        ("dead_letter", "/topic/dead"),
        ("dead_letter", "/queue/a.*"),
        ("dead_letter", "/queue/a,/queue/b"),
        ("expired", "/temp-queue/a"),
        ("expired", ""),
    ],
)
def test_a_senseless_setting_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError):
        Settings(**{name: value})


def test_zero_redeliveries_make_sense() -> None:
    assert Settings(attempts=1).attempts == 1


def test_repr_shows_no_passcode() -> None:
    assert "s3cret" not in repr(Settings(users=Users({"alice": "s3cret"})))


def test_the_limits_of_state_leave_room_for_the_largest_bodies() -> None:
    mib = 1024 * 1024
    usual, large = Settings(), Settings(max_body=500 * mib)
    assert (usual.state_bytes, usual.session_state_bytes) == (256 * mib, 160 * mib)
    assert (large.state_bytes, large.session_state_bytes) == (1_000 * mib, 532 * mib)
    given = Settings(max_state_bytes=7, max_session_state_bytes=5)
    assert (given.state_bytes, given.session_state_bytes) == (7, 5)


@pytest.mark.parametrize("name", ["max_state_bytes", "max_session_state_bytes", "max_handshakes_per_address"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_limit_that_may_be_left_out_is_a_number_of_1_or_more(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Settings(**{name: value})
