"""The profiles by their names."""

from __future__ import annotations

import json
from importlib import resources
from typing import get_args

import pytest

import stompy
from stompy.arguments import check_arguments
from stompy.broker import Broker, BrokerLimits
from stompy.broker.broker import Like, profile_named
from stompy.broker.profile import OWN, Profile, described
from stompy.errors import ConfigurationError
from tests.broker.conftest import Serve


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


def test_each_value_in_the_file_of_brokers_has_the_type_of_its_field() -> None:
    sections = json.loads((resources.files("stompy.broker") / "brokers.json").read_text(encoding="utf-8"))
    for name, section in sections.items():
        made = described(name, OWN)
        check_arguments(Profile.__init__, {field: getattr(made, field) for field in section})
    assert sections.keys() == {"stompy", "stand-in", *get_args(Like)}


@pytest.mark.parametrize("like", get_args(Like))
def test_a_wrong_login_is_refused_in_the_same_words_whichever_command_begins_the_session(
    serve: Serve, like: Like
) -> None:
    served = serve(like=like, users={"ann": "sesame"}, limits=BrokerLimits(login_delay=0.0))

    def refusal(command: str) -> tuple[dict[str, str], bytes]:
        client = served.dial()
        client.raw(f"{command}\naccept-version:1.2\nhost:/\nlogin:ann\npasscode:wrong\n\n\0".encode())
        refused = client.expect("ERROR")
        return dict(refused.headers), refused.body

    assert refusal("STOMP") == refusal("CONNECT")


@pytest.mark.parametrize("like", ["artemis", "rabbitmq"])
def test_a_second_subscription_without_an_id_takes_no_part_in_the_queue(serve: Serve, like: Like) -> None:
    """Neither broker wants an id, and the destination stands for it; so the second one has an id that is taken."""
    served = serve(like=like)
    client = served.client("1.1", host="/")
    client.sure("SUBSCRIBE", {"destination": "/queue/a"})
    client.say("SUBSCRIBE", {"destination": "/queue/a"})
    assert "subscription" in client.expect("ERROR").headers["message"]
    queue = served.broker.stats().queues.get("/queue/a")
    assert queue is None or queue.consumers == (like == "artemis")  # RabbitMQ ends the session
