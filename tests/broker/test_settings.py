"""Settings that make no sense are refused, in words."""

from __future__ import annotations

from typing import Any

import pytest

from stompy.broker.settings import Settings, is_topic
from stompy.broker.users import Users
from stompy.errors import ConfigurationError
from stompy.frames.version import Version


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_queue_messages", 0),
        ("max_queue_bytes", -1),
        ("max_outbox_bytes", 1.5),
        ("max_outbox_frames", True),
        ("prefetch", 0),
        ("max_redeliveries", -1),
        ("connect_timeout", -1.0),
        ("linger", float("inf")),
        ("connect_timeout", float("nan")),
        ("versions", ()),
        ("versions", (Version.DRAFT, Version.V1_2)),
        ("dead_letter", ""),
        ("dead_letter", "/topic/dead"),
    ],
)
def test_a_senseless_setting_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError):
        Settings(**{name: value})


def test_zero_redeliveries_make_sense() -> None:
    assert Settings(max_redeliveries=0).max_redeliveries == 0


def test_repr_shows_no_passcode() -> None:
    assert "s3cret" not in repr(Settings(users=Users({"alice": "s3cret"})))


@pytest.mark.parametrize(
    ("destination", "topic"),
    [
        ("/topic/a", True),
        ("/topic/", True),
        ("/topic", False),
        ("/queue/a", False),
        ("a", False),
        ("/Topic/a", False),
        ("/temp-queue/a", True),
    ],
)
def test_a_topic_is_known_by_its_prefix(destination: str, topic: bool) -> None:
    assert is_topic(destination) is topic
