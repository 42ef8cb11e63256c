from __future__ import annotations

import pytest

from stompy.errors import ConnectionLostError, ConnectTimeoutError, SpoolFullError
from stompy.spark.receivers import Health


def test_without_a_broker_it_is_patient_for_as_long_as_configured() -> None:
    health = Health("receiver 0")
    health.check(60.0)
    with pytest.raises(
        ConnectTimeoutError, match=r"receiver 0 had no connection to a broker.*brokerTimeout.*no connection yet"
    ):
        health.check(-1.0)
    health.subscribed()
    health.check(-1.0)
    health.lost(ConnectionLostError("the wire was cut"))
    with pytest.raises(ConnectTimeoutError, match="the wire was cut"):
        health.check(-1.0)


def test_an_error_is_raised_again_and_again() -> None:
    health = Health("receiver 0")
    health.fail(SpoolFullError("no room", path="/spool"))
    for _ in range(2):
        with pytest.raises(SpoolFullError, match="no room"):
            health.check(60.0)


def test_it_is_quiet_only_while_there_is_a_subscription() -> None:
    health = Health("receiver 0")
    assert (health.quiet_for(), health.subscribed_for()) == (0.0, 0.0)
    health.subscribed()
    assert health.quiet_for() > 0.0
    health.lost(ConnectionLostError("cut"))
    assert health.quiet_for() == 0.0
    assert health.subscribed_for() > 0.0


def test_it_is_not_quiet_while_messages_are_on_their_way_into_the_spool() -> None:
    health = Health("receiver 0")
    health.subscribed()
    health.arrived()
    assert health.quiet_for() == 0.0
    health.settled()
    assert health.quiet_for() > 0.0
