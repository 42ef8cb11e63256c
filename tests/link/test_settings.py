"""The settings of a link."""

from __future__ import annotations

import pickle

from stompy.frames.grammar import NEGOTIABLE
from stompy.link.settings import LinkSettings


def test_every_wait_has_a_finite_default() -> None:
    settings = LinkSettings()
    assert 0 < settings.send_timeout < 3600
    assert 0 < settings.receipt_timeout < 3600


def test_all_versions_that_can_be_negotiated_are_offered_by_default() -> None:
    assert tuple(LinkSettings().versions) == NEGOTIABLE


def test_headers_of_connect_are_not_shown() -> None:
    assert "hush" not in repr(LinkSettings(headers={"x-token": "hush"}))


def test_settings_travel_to_another_process() -> None:
    settings = LinkSettings(send_timeout=2.0)
    assert pickle.loads(pickle.dumps(settings)) == settings
