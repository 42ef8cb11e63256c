from __future__ import annotations

import pickle
from typing import Any

import pytest

from stompy.errors import ConfigurationError
from stompy.spark.option_tables import (
    BatchOptions,
    StreamOptions,
    batch_options,
    read_options,
    spool_options,
    stream_options,
)
from stompy.spark.options import table_of

GIVEN = {"url": "stomp://localhost", "destination": "/queue/a", "spooldir": "/spool"}


def test_a_stream_needs_an_address_a_destination_and_a_spool() -> None:
    for name in GIVEN:
        with pytest.raises(ConfigurationError, match="is missing"):
            stream_options({key: value for key, value in GIVEN.items() if key != name})


def test_they_travel() -> None:
    for made in (stream_options(GIVEN), batch_options(GIVEN), spool_options(GIVEN)):
        assert pickle.loads(pickle.dumps(made)) == made


def test_an_option_of_the_stream_is_none_of_the_batch() -> None:
    stream_options({**GIVEN, "maxoffsetspertrigger": "5"})
    with pytest.raises(ConfigurationError, match=r"of spark\.readStream"):
        batch_options({**GIVEN, "maxoffsetspertrigger": "5"})


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (stream_options, "maxmessages", "option 'maxmessages' is one of spark.read, not of spark.readStream"),
        (stream_options, "browse", "one of spark.read, not of spark.readStream"),
        (batch_options, "maxOffsetsPerTrigger", "one of spark.readStream, not of spark.read"),
        (stream_options, "kafka.bootstrap.servers", "unknown option 'kafka.bootstrap.servers': write url instead"),
        (stream_options, "subscribe", "write destination instead"),
        (stream_options, "startingOffsetsByTimestamp", "write startingTimestamp instead"),
        (stream_options, "login", "write url=stomp://login@host:61613 instead"),
        (batch_options, "startingOffsets", "one of spark.readStream, not of spark.read"),
        (stream_options, "kafka.security.protocol", "unknown option"),
        (batch_options, "minpartitions", "write numPartitions instead"),
    ],
)
def test_an_option_of_something_else_is_named_as_such(make: Any, name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make({**GIVEN, name: "1"})


@pytest.mark.parametrize("make", [stream_options, batch_options, spool_options])
def test_a_passcode_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigurationError, match="passcodeEnv"):
        make({**GIVEN, "passcode": "sesame"})


def test_what_fits_neither_a_stream_nor_a_table_is_refused() -> None:
    assert read_options({**GIVEN, "maxoffsetspertrigger": "5"}).headers_as == "map"
    assert read_options({**GIVEN, "browse": "true", "headersas": "array"}).headers_as == "array"
    for wrong in ({"maxmesagespertrigger": "5"}, {"browse": "true", "durable": "mine"}, {"prefetch": "many"}):
        with pytest.raises(ConfigurationError):
            read_options({**GIVEN, **wrong})


def test_every_option_says_what_it_does() -> None:
    for option in (*table_of(StreamOptions), *table_of(BatchOptions)):
        text = option.description
        assert text[0].islower() or text[0] in "`'1" or text.startswith("STOMP")
        assert not text.endswith(".")


@pytest.mark.parametrize("make", [stream_options, batch_options, spool_options])
@pytest.mark.parametrize(
    "given",
    [
        {"destination": "/topic/prices"},
        {"destination": "/exchange/amq.topic/prices"},
        {"destination": "topic://prices"},
        {"subscribeheaders": '{"Subscription-Type": "MULTICAST"}'},
        {"destination": "/queue/a, /topic/prices"},
    ],
)
def test_a_topic_has_one_receiver(make: object, given: dict[str, str]) -> None:
    assert callable(make)
    make({**GIVEN, **given})
    with pytest.raises(
        ConfigurationError, match=r"receivers must be 1 .*each subscription of a topic gets every message"
    ):
        make({**GIVEN, **given, "receivers": "2"})


def test_several_destinations_are_one_text_for_the_spool_in_whatever_order() -> None:
    options = spool_options({**GIVEN, "destination": "/queue/b, /queue/a"})
    assert options.destination == ("/queue/b", "/queue/a")
    assert options.origin == "/queue/a,/queue/b"
    for wrong in ("/queue/a,/queue/a", "/queue/a,,/queue/b", ","):
        with pytest.raises(ConfigurationError, match="one or several different texts"):
            spool_options({**GIVEN, "destination": wrong})


def test_a_durable_subscription_has_one_destination() -> None:
    with pytest.raises(ConfigurationError, match="durable names one subscription"):
        stream_options({**GIVEN, "durable": "mine", "clientid": "me", "destination": "/topic/a,/topic/b"})


def test_a_durable_subscription_has_one_receiver() -> None:
    with pytest.raises(ConfigurationError, match="receivers must be 1"):
        spool_options({**GIVEN, "durable": "mine", "clientid": "me", "receivers": "2"})


def test_a_table_takes_its_messages_itself() -> None:
    with pytest.raises(ConfigurationError, match="receivers must be 1 or more"):
        batch_options({**GIVEN, "receivers": "0"})
