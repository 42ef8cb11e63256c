from __future__ import annotations

import pickle

import pytest

from stompy.errors import ConfigurationError
from stompy.spark.option_tables import SinkOptions

GIVEN = {"url": "stomp://localhost"}


def test_the_address_is_enough() -> None:
    assert SinkOptions.of({**GIVEN, "checkpointLocation": "x"}) == SinkOptions(url="stomp://localhost")


def test_what_was_given_is_taken() -> None:
    given = {"destination": "/queue/a", "dedup": "position", "transactionsize": "7"}
    options = SinkOptions.of({**GIVEN, **given, "ratelimit": "50", "brokertimeout": "5m"})
    assert options.transaction_size == 7
    assert (options.destination, options.dedup) == ("/queue/a", "position")
    assert (options.rate_limit, options.broker_timeout) == (50, 300.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"destinaton": "/queue/a"}, "did you mean destination"),
        ({"transactionsize": "0"}, "transactionSize must be a whole number of 1 or more"),
        ({"dedup": "yes"}, "dedup must be one of content, position, none"),
        ({"spooldir": "/spool"}, "unknown option 'spooldir'"),
        ({"passcode": "sesame"}, "passcodeEnv"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        SinkOptions.of({**GIVEN, **given})
    assert "sesame" not in str(refused.value)


def test_they_travel() -> None:
    options = SinkOptions.of(GIVEN)
    assert pickle.loads(pickle.dumps(options)) == options
