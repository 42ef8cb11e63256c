"""What SEND and SUBSCRIBE ask for: each header works, or is refused."""

from __future__ import annotations

import sys

import pytest

from stompy.broker.destinations import targets_of
from stompy.broker.profile import (
    OWN,
    PLAIN,
    SendRequest,
    SubscribeRequest,
    check_combination,
    send_options,
    subscribe_options,
)
from stompy.errors import RemoteProtocolError
from tests.broker.conftest import Served

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ({}, PLAIN),
        ({"priority": "9"}, SendRequest(priority=9)),
        ({"priority": "12"}, SendRequest(priority=9)),
        ({"persistent": "true"}, SendRequest(persistent=True)),
        ({"persistent": "False"}, SendRequest(persistent=False)),
        ({"expires": "1000001500"}, SendRequest(expires=NOW + 1.5)),
        ({"expires": "0"}, PLAIN),
        ({"expiration": "1500"}, SendRequest(expires=NOW + 1.5)),
        ({"AMQ_SCHEDULED_DELAY": "2000"}, SendRequest(due=NOW + 2)),
        ({"AMQ_SCHEDULED_DELAY": "0"}, PLAIN),
        ({"AMQ_SCHEDULED_TIME": "1000003000"}, SendRequest(due=NOW + 3)),
        ({"AMQ_SCHEDULED_TIME": "1"}, PLAIN),
        ({"JMSXGroupID": "g", "JMSXGroupSeq": "-1"}, SendRequest(group="g", group_ends=True)),
        ({"_AMQ_DUPL_ID": "d"}, SendRequest(dedupe_id="d")),
    ],
)
def test_what_a_send_asks_for(headers: dict[str, str], options: SendRequest) -> None:
    assert send_options(headers.get, NOW) == options


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ({}, SubscribeRequest(prefetch=7)),
        ({"prefetch-count": "3"}, SubscribeRequest(prefetch=3)),
        ({"prefetch-count": "0"}, SubscribeRequest(prefetch=sys.maxsize)),
        ({"activemq.prefetchSize": "0"}, SubscribeRequest(prefetch=0)),
        ({"selector": " "}, SubscribeRequest(prefetch=7)),
        ({"activemq.subscriptionName": "d"}, SubscribeRequest(prefetch=7, durable="d")),
        ({"durable-subscription-name": "d"}, SubscribeRequest(prefetch=7, durable="d")),
        ({"browser": "true"}, SubscribeRequest(prefetch=7, browse=True)),
        ({"browser": "false"}, SubscribeRequest(prefetch=7)),
        ({"activemq.exclusive": "true"}, SubscribeRequest(prefetch=7, exclusive=True)),
        ({"no-local": "true"}, SubscribeRequest(prefetch=7, no_local=True)),
    ],
)
def test_what_a_subscribe_asks_for(headers: dict[str, str], options: SubscribeRequest) -> None:
    assert subscribe_options(headers.get, prefetch=7) == options


@pytest.mark.parametrize(
    "header", ["priority", "persistent", "expires", "expiration", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"]
)
def test_a_senseless_value_of_a_send_is_refused(header: str) -> None:
    with pytest.raises(RemoteProtocolError, match=header):
        send_options({header: "maybe"}.get, NOW)


@pytest.mark.parametrize("header", ["prefetch-count", "browser", "activemq.exclusive", "no-local", "selector"])
def test_a_senseless_value_of_a_subscribe_is_refused(header: str) -> None:
    with pytest.raises(RemoteProtocolError, match=header):
        subscribe_options({header: "may be"}.get, prefetch=7)


@pytest.mark.parametrize(("command", "header"), [(name, one) for name, table in OWN.lacks.items() for one in table])
def test_a_header_that_asks_for_what_cannot_be_had_is_an_error(served: Served, command: str, header: str) -> None:
    client = served.client()
    client.say(command, {"destination": "/queue/a", "id": "1", header: "1"})
    assert header in client.error().headers["message"]


def test_a_routing_type_must_be_that_of_the_destination(served: Served) -> None:
    client = served.client()
    client.sure("SEND", {"destination": "/queue/a", "destination-type": "ANYCAST"})
    client.sure("SUBSCRIBE", {"destination": "/topic/a", "id": "1", "subscription-type": "MULTICAST"})
    client.say("SEND", {"destination": "/queue/a", "destination-type": "MULTICAST"})
    assert "destination-type" in client.error().headers["message"]


@pytest.mark.parametrize(
    ("options", "destination"),
    [
        (SubscribeRequest(browse=True, durable="d"), "/queue/a"),
        (SubscribeRequest(browse=True, exclusive=True), "/queue/a"),
        (SubscribeRequest(browse=True), "/topic/a"),
        (SubscribeRequest(browse=True), "/queue/a.*"),
        (SubscribeRequest(browse=True), "/queue/a,/queue/b"),
        (SubscribeRequest(durable="d"), "/topic/a,/topic/b"),
        (SubscribeRequest(no_local=True), "/queue/a"),
        (SubscribeRequest(exclusive=True), "/topic/a"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(options: SubscribeRequest, destination: str) -> None:
    with pytest.raises(RemoteProtocolError):
        check_combination(options, targets_of(destination, "s"))
    check_combination(SubscribeRequest(), targets_of(destination, "s"))
