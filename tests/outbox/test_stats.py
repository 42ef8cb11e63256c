from __future__ import annotations

import dataclasses

import pytest

from stompy.outbox.stats import OutboxStats, SetAside

STATS = OutboxStats(
    waiting=1, oldest_age=2.5, in_flight=0, set_aside=0, octets=10, sent=3, connected=False, last_error=None
)
ASIDE = SetAside(id="1", destination="/queue/a", headers={}, body=b"", age=1.0, tries=5, words="no")


@pytest.mark.parametrize(("value", "field"), [(STATS, "waiting"), (ASIDE, "tries")])
def test_what_an_outbox_tells_is_a_value(value: OutboxStats | SetAside, field: str) -> None:
    assert dataclasses.replace(value) == value
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, 5)
