"""What a link is told."""

from __future__ import annotations

import pickle

import pytest

from stompy.frames.version import NEGOTIABLE
from stompy.link.settings import LinkSettings


def test_every_wait_has_a_finite_default() -> None:
    settings = LinkSettings()
    assert 0 < settings.send_timeout < 3600
    assert 0 < settings.receipt_timeout < 3600


def test_all_versions_that_can_be_negotiated_are_offered_by_default() -> None:
    assert tuple(LinkSettings().versions) == NEGOTIABLE


def test_neither_credentials_nor_connect_headers_are_shown() -> None:
    text = repr(LinkSettings(login="fred", passcode="sesame", headers={"x-token": "hush"}))
    assert not {"sesame", "fred", "hush"} & set(text.replace("'", " ").split())
    assert "sesame" not in text
    assert "hush" not in text


def test_settings_travel_to_another_process_but_a_passcode_does_not() -> None:
    settings = LinkSettings(send_timeout=2.0)
    assert pickle.loads(pickle.dumps(settings)) == settings
    with pytest.raises(TypeError, match="unasked"):
        pickle.dumps(LinkSettings(passcode="sesame"))
