"""A broker that is missing skips a test, or fails it."""

from __future__ import annotations

import pytest

from stompy.testing import containers
from stompy.testing.brokers import BrokerUnavailableError
from stompy.testing.containers import REQUIRE_VARIABLE, broker_or_skip, missing


@pytest.mark.parametrize("named", ["", "activemq5,rabbitmq4", " "])
def test_a_missing_broker_skips_the_test(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv(REQUIRE_VARIABLE, named)
    with pytest.raises(pytest.skip.Exception, match="no activemq broker: no docker"):
        missing("activemq", "no docker")


@pytest.mark.parametrize("named", ["activemq", "rabbitmq4, activemq", "all"])
def test_one_that_is_required_fails_it(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv(REQUIRE_VARIABLE, named)
    with pytest.raises(pytest.fail.Exception, match="the activemq broker is required: no docker"):
        missing("activemq", "no docker")


def test_every_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: str, **options: object) -> None:
        raise BrokerUnavailableError(kind, ("official: no pull", f"local: {options}"))

    monkeypatch.setattr(containers, "start_broker", refuse)
    monkeypatch.delenv(REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"official: no pull; local: {'tls': True}"):
        broker_or_skip("artemis", tls=True)


@pytest.mark.broker
def test_one_that_is_there_is_returned() -> None:
    with broker_or_skip("embedded") as broker:
        assert broker.kind == "embedded"
