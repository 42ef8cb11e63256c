"""The settings of a link."""

from __future__ import annotations

import pickle

import stompy
from stompy.frames.grammar import NEGOTIABLE
from stompy.link.settings import LinkSettings


def test_every_wait_has_a_finite_default() -> None:
    timeouts = LinkSettings().timeouts
    assert all(0 < seconds < 3600 for seconds in (timeouts.connect, timeouts.send, timeouts.receipt))


def test_all_versions_that_can_be_negotiated_are_offered_by_default() -> None:
    assert tuple(LinkSettings().versions) == NEGOTIABLE


def test_headers_of_connect_are_not_shown() -> None:
    assert "hush" not in repr(LinkSettings(headers={"x-token": "hush"}))


def test_settings_travel_to_another_process() -> None:
    settings = LinkSettings(timeouts=stompy.Timeouts(send=2.0))
    assert pickle.loads(pickle.dumps(settings)) == settings
