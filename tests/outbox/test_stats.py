from __future__ import annotations

import dataclasses

import pytest

from stompy.outbox.outbox import DeadLetter, OutboxStats

STATS = OutboxStats(
    waiting=1, oldest_age=2.5, in_flight=0, dead_letters=0, bytes=10, sent=3, connected=False, last_error=None
)
ASIDE = DeadLetter(id="1", destination="/queue/a", headers={}, body=b"", age=1.0, attempts=5, error_message="no")


@pytest.mark.parametrize(("value", "field"), [(STATS, "waiting"), (ASIDE, "attempts")])
def test_what_an_outbox_tells_is_a_value(value: OutboxStats | DeadLetter, field: str) -> None:
    assert dataclasses.replace(value) == value
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, 5)
