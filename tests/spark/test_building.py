from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stompy.errors import ConfigurationError
from stompy.spark import options_for_read, options_for_stream, options_for_write
from stompy.spark.options import Option
from stompy.spark.sink_options import SINK_TABLE, SinkOptions
from stompy.spark.source_options import BATCH_TABLE, STREAM_TABLE, batch_options, stream_options

Builder = Callable[..., dict[str, str]]

WHERE: dict[str, Any] = {"url": "stomp://localhost", "destination": "/queue/a", "spool_dir": "/spool"}
NAMED = {"url": "stomp://localhost", "destination": "/queue/a", "spoolDir": "/spool"}

TABLES = pytest.mark.parametrize(
    ("build", "table"),
    [
        (options_for_stream, STREAM_TABLE),
        (options_for_read, BATCH_TABLE),
        (options_for_write, SINK_TABLE),
    ],
)


@TABLES
def test_each_option_is_a_keyword_and_each_keyword_an_option(build: Builder, table: Iterable[Option]) -> None:
    parameters = inspect.signature(build).parameters.values()
    assert {one.name for one in parameters} == {option.field for option in table}
    assert {one.kind for one in parameters} == {inspect.Parameter.KEYWORD_ONLY}


@TABLES
def test_what_is_required_has_no_default_and_all_else_is_left_to_spark(build: Builder, table: Iterable[Option]) -> None:
    defaults = {one.name: one.default for one in inspect.signature(build).parameters.values()}
    assert defaults == {option.field: inspect.Parameter.empty if option.required else None for option in table}


def test_what_is_not_given_is_not_there() -> None:
    assert options_for_stream(**WHERE) == NAMED
    assert options_for_write(url="stomp://localhost") == {"url": "stomp://localhost"}


def test_values_become_the_text_that_the_source_reads() -> None:
    built = options_for_stream(
        **{**WHERE, "spool_dir": Path("/spool")},
        heartbeat=(5, 0.5),
        connect_headers={"x-tenant": "a"},
        receivers=4,
        receiver_mode="process",
        max_spool_bytes=1 << 30,
        fail_on_data_loss=False,
        max_trigger_delay=0.00001,
        idle_timeout=2.5,
    )
    assert built["spoolDir"] == "/spool"
    options = stream_options(built)
    spool = options.spool
    several = options_for_stream(**{**WHERE, "destination": ["/queue/a", "/queue/b"]})
    assert stream_options(several).spool.destination == ("/queue/a", "/queue/b")
    assert (spool.broker.heartbeat, spool.broker.connect_headers) == ((5.0, 0.5), {"x-tenant": "a"})
    assert (spool.receivers, spool.receiver_mode, spool.fail_on_data_loss) == (4, "process", False)
    assert spool.max_spool_bytes == 1 << 30
    assert (options.max_trigger_delay, options.idle_timeout) == (0.00001, 2.5)


def test_values_of_a_table_and_of_the_sink() -> None:
    read = batch_options(options_for_read(**WHERE, browse=True, max_messages=7, read_id="monday"))
    assert (read.browse, read.max_messages, read.read_id) == (True, 7, "monday")
    written = SinkOptions.of(options_for_write(url="stomp://localhost", transactions="false", rate_limit=50))
    assert (written.transactions, written.rate_limit) == ("false", 50)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prefetch": 0}, "prefetch must be a whole number of 1 or more"),
        ({"prefetch": 1.5}, "prefetch must be a whole number"),
        ({"receivers": True}, "receivers must be a whole number"),
        ({"idle_timeout": -1.0}, "idleTimeout must be a duration"),
        ({"idle_timeout": float("inf")}, "idleTimeout must be a duration"),
        ({"receiver_mode": "fibre"}, "receiverMode must be one of thread, process"),
        ({"heartbeat": (1, 2, 3)}, "heartbeat must be two intervals"),
        ({"subscribe_headers": {"n": 1}}, "subscribeHeaders must be a JSON object of text"),
        ({"subscribe_headers": {"n": b"1"}}, "subscribeHeaders cannot be a dict"),
        ({"selector": b"sesame"}, "selector cannot be a bytes"),
        ({"passcode_env": "A", "passcode_file": "b"}, "not both"),
        ({"url": "stomp://etl:sesame@localhost"}, "option url must not contain a passcode"),
    ],
)
def test_a_wrong_value_is_refused_at_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        options_for_stream(**{**WHERE, **given})
    assert "sesame" not in str(refused.value)


@TABLES
def test_a_passcode_is_not_taken(build: Builder, table: Iterable[Option]) -> None:
    del table
    with pytest.raises(ConfigurationError, match="passcodeEnv") as refused:
        build(url="stomp://localhost", destination="/queue/a", passcode="sesame")
    assert "sesame" not in str(refused.value)


def test_an_unknown_keyword_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown option 'prefech'; did you mean prefetch\?"):
        options_for_stream(url="stomp://localhost", destination="/queue/a", spool_dir="/s", prefech=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"'max_messages' is one of spark\.read, not of spark\.readStream"):
        options_for_stream(**WHERE, max_messages=1)  # type: ignore[call-arg]


@TABLES
def test_what_is_missing_is_named(build: Builder, table: Iterable[Option]) -> None:
    for option in table:
        if option.required:
            given = {name: value for name, value in WHERE.items() if name != option.field}
            with pytest.raises(ConfigurationError, match=f"option {option.name} is missing"):
                build(**{name: value for name, value in given.items() if name in {one.field for one in table}})


def test_an_option_may_be_written_as_spark_writes_it_but_once() -> None:
    assert options_for_write(url="stomp://localhost", rateLimit=5)["rateLimit"] == "5"  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="rateLimit is given twice"):
        options_for_write(url="stomp://localhost", rate_limit=5, rateLimit=6)  # type: ignore[call-arg]


ALONE = """\
import sys
sys.modules["pyspark"] = sys.modules["pyarrow"] = None
from stompy.spark import options_for_read, options_for_stream, options_for_write
print(options_for_write(url="stomp://localhost"))
"""


def test_they_need_neither_spark_nor_pyarrow() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    printed = subprocess.run(
        [sys.executable, "-c", ALONE], env=env, capture_output=True, text=True, timeout=50, check=True
    ).stdout
    assert printed.strip() == "{'url': 'stomp://localhost'}"
