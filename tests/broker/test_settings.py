"""Settings that make no sense are refused, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stompy.broker.broker import profile_named
from stompy.broker.settings import BrokerLimits, Settings
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
    assert Settings(attempts=None).attempts is None


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


def test_a_limit_that_is_given_leaves_those_of_the_broker_that_it_stands_in_for() -> None:
    profile = profile_named("rabbitmq")
    settings = Settings(profile=profile, max_headers=7, max_sessions=5)
    assert settings.frame_limits == replace(profile.frame_limits, max_headers=7)


@pytest.mark.parametrize("name", ["max_headers", "max_header_line", "max_header_block", "max_body", "max_first_body"])
def test_the_limits_of_frames_may_be_0_and_no_less(name: str) -> None:
    settings: dict[str, Any] = {name: 0}
    assert getattr(Settings(**settings).frame_limits, name) == 0
    with pytest.raises(ConfigurationError, match=name):
        BrokerLimits(**{**settings, name: -1})
