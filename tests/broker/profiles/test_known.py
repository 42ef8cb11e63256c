"""The profiles by their names."""

from __future__ import annotations

import pytest

import stompy
from stompy.broker import Broker
from stompy.broker.broker import Like, profile_named
from stompy.broker.profile import OWN
from stompy.errors import ConfigurationError


@pytest.mark.parametrize(
    ("like", "dialect"),
    [("activemq", "activemq"), ("activemq5", "activemq"), ("artemis", "artemis"), ("rabbitmq", "rabbitmq")],
)
def test_a_connection_takes_it_for_that_broker(like: Like, dialect: str) -> None:
    with Broker(like=like) as broker, stompy.connect(broker.url) as connection:
        assert connection.dialect == dialect
        connection.send("/queue/a", "x", persistent=True, confirm=True)
        assert connection.subscribe("/queue/a").receive(timeout=20).text == "x"
        assert connection.server == broker.server


def test_an_unknown_name_is_refused() -> None:
    assert profile_named(None) is OWN
    with pytest.raises(ConfigurationError, match="activemq5"):
        profile_named("kafka")
