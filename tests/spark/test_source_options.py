from __future__ import annotations

import pickle

import pytest

from stompy.errors import ConfigurationError
from stompy.spark.source_options import (
    BATCH_TABLE,
    STREAM_TABLE,
    BatchOptions,
    SpoolOptions,
    StreamOptions,
    batch_options,
    check_read_options,
    spool_options,
    stream_options,
)

GIVEN = {"url": "stomp://localhost", "destination": "/queue/a", "spooldir": "/spool"}


def test_every_option_has_its_field() -> None:
    stream = (StreamOptions.__dataclass_fields__.keys() | SpoolOptions.__dataclass_fields__.keys()) - {
        "spool",
        "broker",
    }
    made = stream_options(GIVEN)
    fields = stream | set(type(made.spool.broker).__dataclass_fields__)
    assert {option.field for option in STREAM_TABLE} == fields
    batch = BatchOptions.__dataclass_fields__.keys() - {"broker"}
    assert {option.field for option in BATCH_TABLE} == batch | set(type(made.spool.broker).__dataclass_fields__)


def test_a_stream_needs_an_address_a_destination_and_a_spool() -> None:
    for name in GIVEN:
        with pytest.raises(ConfigurationError, match="is missing"):
            stream_options({key: value for key, value in GIVEN.items() if key != name})


def test_they_travel() -> None:
    for made in (stream_options(GIVEN), batch_options(GIVEN), spool_options(GIVEN)):
        assert pickle.loads(pickle.dumps(made)) == made


def test_an_option_of_the_stream_is_none_of_the_batch() -> None:
    stream_options({**GIVEN, "maxmessagespertrigger": "5"})
    with pytest.raises(ConfigurationError, match="unknown option"):
        batch_options({**GIVEN, "maxmessagespertrigger": "5"})


@pytest.mark.parametrize("make", [stream_options, batch_options, spool_options])
def test_a_passcode_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigurationError, match="passcodeEnv"):
        make({**GIVEN, "passcode": "sesame"})


def test_what_fits_neither_a_stream_nor_a_table_is_refused() -> None:
    check_read_options({**GIVEN, "maxmessagespertrigger": "5"})
    check_read_options({**GIVEN, "browse": "true"})
    for wrong in ({"maxmesagespertrigger": "5"}, {"browse": "true", "receivers": "1"}, {"prefetch": "many"}):
        with pytest.raises(ConfigurationError):
            check_read_options({**GIVEN, **wrong})


def test_every_option_says_what_it_does() -> None:
    for option in (*STREAM_TABLE, *BATCH_TABLE):
        assert option.says[0].islower() or option.says[0] in "`'1" or option.says.startswith("STOMP")
        assert not option.says.endswith(".")


def test_a_segment_has_room() -> None:
    with pytest.raises(ConfigurationError, match="segmentMaxBytes"):
        stream_options({**GIVEN, "segmentmaxbytes": "0"})
