"""The brokers that stompy knows, the choice between them, and what their refusals mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from stompy.dialects.brokers import (
    ACTIVEMQ,
    ARTEMIS,
    EMBEDDED,
    GENERIC,
    RABBITMQ,
    DialectName,
    dialect_named,
    dialect_of,
    is_client_id_in_use,
    is_unknown_virtual_host,
    leniency_of,
)
from stompy.dialects.dialect import Dialect
from stompy.dialects.options import BROKER_OPTIONS, SUBSCRIBE_FEATURES
from stompy.errors import ConfigurationError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Leniency
from tests.connection.conftest import Talking
from tests.transport.conftest import Calling


@pytest.mark.parametrize(
    ("server", "dialect"),
    [
        ("ActiveMQ/6.3.1", ACTIVEMQ),
        ("ActiveMQ/5.17.2", ACTIVEMQ),
        ("ActiveMQ-Artemis/2.56.0 ActiveMQ Artemis Messaging Engine", ARTEMIS),
        ("RabbitMQ/3.10.8", RABBITMQ),
        ("RabbitMQ/4.3.6", RABBITMQ),
        ("stompy-broker", EMBEDDED),
        (None, GENERIC),
        ("", GENERIC),
    ],
)
def test_the_server_header_chooses(server: str | None, dialect: Dialect) -> None:
    assert dialect_of(server) is dialect


@pytest.mark.parametrize("server", ["somebody/1", "RabbitMQ-like", "ActiveMQ"])
def test_an_unknown_broker_is_asked_for_standard_stomp_only_and_called_by_its_name(server: str) -> None:
    dialect = dialect_of(server)
    assert replace(dialect, product=GENERIC.product) == GENERIC
    with pytest.raises(ConfigurationError, match=server):
        dialect.send_headers({"priority": 1})


def test_a_dialect_is_chosen_by_name() -> None:
    assert [dialect_named(name).name for name in get_args(DialectName)] == list(get_args(DialectName))
    with pytest.raises(ConfigurationError, match="activemq, artemis, rabbitmq, stompy, generic"):
        dialect_named("RabbitMQ")


@pytest.mark.parametrize("dialect", [ACTIVEMQ, ARTEMIS, RABBITMQ, EMBEDDED])
def test_an_option_is_either_to_be_had_or_not(dialect: Dialect) -> None:
    options = {*BROKER_OPTIONS, *SUBSCRIBE_FEATURES}
    assert set(dialect.headers) | set(dialect.unsupported) <= options
    assert not set(dialect.headers) & set(dialect.unsupported)


@pytest.mark.parametrize("dialect", [ACTIVEMQ, ARTEMIS, RABBITMQ])
def test_of_a_known_broker_every_option_is_known(dialect: Dialect) -> None:
    options = {*BROKER_OPTIONS, *SUBSCRIBE_FEATURES}
    missing = options - set(dialect.headers) - set(dialect.unsupported)
    assert not missing, f"{dialect.name} in stompy/dialects/brokers.py needs a header, or in `unsupported` a reason"


def test_the_page_on_features_tells_what_the_tables_say() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "broker-features.md"
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in page.read_text().splitlines()]
    rows = {row[0]: row[1:] for row in cells if len(row) == 5}
    assert rows.pop("option") == ["ActiveMQ", "Artemis", "RabbitMQ", "embedded"]
    options = [*BROKER_OPTIONS, *SUBSCRIBE_FEATURES]
    for option in options:
        row = [one.headers.get(option, "–") for one in (ACTIVEMQ, ARTEMIS, RABBITMQ, EMBEDDED)]
        assert rows.get(option) == row, (
            f"{page} needs the row: | {' | '.join(f'`{cell}`' for cell in [option, *row])} |"
        )


def test_what_brokers_deviate_in_is_tolerated() -> None:
    assert leniency_of("RabbitMQ/4") & Leniency.ESCAPES_IN_1_0
    assert leniency_of("ActiveMQ/6") == Leniency.ESCAPED_CONNECT
    assert leniency_of("ActiveMQ-Artemis/2") == Leniency.CR_ESCAPE_IN_1_1
    assert leniency_of(None) == Leniency.NONE


@pytest.mark.parametrize("asked", [{"persistent": True}, {"priority": 1}, {"expires": 1}, {"delay": 1}])
def test_what_a_broker_cannot_do_is_refused_and_nothing_sent(talking: Talking, asked: dict[str, Any]) -> None:
    talk = talking(server="somebody/1")
    with pytest.raises(ConfigurationError, match="somebody/1"):
        talk.conn.send("/queue/a", "x", **asked)
    with pytest.raises(ConfigurationError, match="somebody/1"):
        talk.conn.subscribe("/queue/a", selector="a = 1")
    assert talk.peer.quiet()


def test_the_server_header_of_connected_chooses(talking: Talking, calling: Calling) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    assert talk.conn.dialect == "activemq"
    subscribing = calling(lambda: talk.conn.subscribe("/queue/a", prefetch=1))
    assert talk.peer.expect_and_confirm("SUBSCRIBE").headers["activemq.prefetchSize"] == "1"
    subscribing.result()
    talk.conn.send("/queue/a", "x", priority=4)
    assert talk.peer.expect("SEND").headers["priority"] == "4"


def test_the_caller_chooses_over_the_server_header(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1", dialect="rabbitmq")
    assert talk.conn.dialect == "rabbitmq"
    talk.conn.send("/queue/a", "x", expires=2)
    assert talk.peer.expect("SEND").headers["expiration"] == "2000"


@pytest.mark.parametrize(
    ("dialect", "passcode"),
    [(None, "a:b"), ("artemis", "a:b"), ("activemq", "a\\cb"), ("rabbitmq", "a\\cb")],
)
def test_a_dialect_that_was_named_says_how_connect_is_written(
    talking: Talking, dialect: DialectName | None, passcode: str
) -> None:
    talk = talking(dialect=dialect, login="me", passcode="a:b")
    headers = talk.request.headers
    assert headers["passcode"] == passcode
    assert (headers["host"] == "/") == (dialect == "rabbitmq")


def test_a_virtual_host_that_was_named_goes_before_the_dialects(talking: Talking) -> None:
    talk = talking(dialect="rabbitmq", vhost="mine")
    assert talk.request.headers["host"] == "mine"


def test_the_client_id_is_sent_and_names_durable_subscriptions(talking: Talking) -> None:
    talk = talking(server="RabbitMQ/4", client_id="me")
    assert talk.request.headers["client-id"] == "me"
    subscription = talk.subscribe("/topic/a", durable="d")
    assert subscription._active.subscribe_headers["x-queue-name"] == "me.d"


NO_SUCH_HOST = Frame("ERROR", {"message": "Bad CONNECT"}, b"Virtual host 'localhost' access denied")
WRONG_PASSCODE = Frame("ERROR", {"message": "Bad CONNECT"}, b"Access refused for user 'guest'\n")
IN_USE = Frame("ERROR", {"message": "Broker: b - Client: me already connected from tcp://127.0.0.1:48770"})
WRONG_LOGIN = Frame("ERROR", {"message": "User name [me] or password is invalid."})


@pytest.mark.parametrize("frame", [NO_SUCH_HOST, WRONG_PASSCODE, IN_USE, WRONG_LOGIN, Frame("ERROR")])
def test_each_refusal_is_taken_for_what_it_is(frame: Frame) -> None:
    assert is_unknown_virtual_host(frame) == (frame is NO_SUCH_HOST)
    assert is_client_id_in_use(frame) == (frame is IN_USE)
