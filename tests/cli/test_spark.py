"""`stompy spark`, as far as it goes without Spark; the pipelines have their own tests."""

from __future__ import annotations

import importlib.util
import re
from datetime import datetime
from pathlib import Path

import pytest

from stompy.cli.exits import Exit
from stompy.spark.option_tables import SparkBrokerOptions
from stompy.spark.options import table_of
from tests.cli.conftest import Run

HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
HAS_SPARK = importlib.util.find_spec("pyspark") is not None
ARCHIVE = ("spark", "archive", "/queue/a", "out", "--spool", "spool", "--checkpoint", "checkpoint")
REPLAY = ("spark", "replay", "out", "/queue/a", "--checkpoint", "checkpoint")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("spark", "archive", "/queue/a", "out", "--checkpoint", "c"), "--spool"),
        (("spark", "replay", "out"), "--checkpoint"),
        ((*REPLAY, "--since", "yesterday"), "2026-01-31T08:00+00:00"),
        ((*REPLAY, "--until", "2026-01-31T08:00"), "time zone"),
        ((*REPLAY, "--option", "spoolDir"), "NAME=VALUE"),
        ((*REPLAY, "--rate", "0"), "1 or more"),
        ((*ARCHIVE, "--passcode", "sesame"), "unknown option --passcode"),
    ],
)
def test_a_wrong_command_line_is_named(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.code == Exit.USAGE
    assert message in result.err
    assert "sesame" not in result.err


@pytest.mark.parametrize("pipeline", ["archive", "replay"])
def test_a_pipeline_has_every_connection_option_of_spark(run: Run, pipeline: str) -> None:
    shown = run("spark", pipeline, "--help").out.decode()
    names = [option.name for option in table_of(SparkBrokerOptions)]
    assert [name for name in names if "--" + re.sub("(?=[A-Z])", "-", name).lower() not in shown] == []


@pytest.mark.skipif(HAS_SPARK, reason="Spark is installed here")
def test_without_spark_it_says_what_to_install(run: Run) -> None:
    result = run(*ARCHIVE)
    assert result.code == Exit.USAGE
    assert "pip install 'stompy-client[spark]'" in result.error


@pytest.mark.skipif(HAS_ARROW, reason="pyarrow is installed here")
def test_without_pyarrow_a_replay_says_what_to_install(run: Run) -> None:
    result = run(*REPLAY)
    assert result.code == Exit.USAGE
    assert "a replay needs pyarrow: pip install 'stompy-client[spool]'" in result.error


@pytest.mark.needs("pyarrow")
def test_a_replay_reports_one_line_and_needs_no_spark(run: Run, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from stompy.broker import Broker

    rows = {
        "sequence": [0, 1], "body": [b"one", b"two"], "content_type": ["text/plain", None],
        "destination": ["/queue/a"] * 2, "headers": pa.array([[("k", "a")], [("k", "b")]], pa.map_("string", "string")),
        "received_at": pa.array([datetime(2026, 1, 31)] * 2, pa.timestamp("us", tz="UTC")),
    }  # fmt: skip
    folder = tmp_path / "kind=bad" / "date=2026-01-31" / "part=q-000000000"
    folder.mkdir(parents=True)
    pq.write_table(pa.table(rows), folder / "x.parquet")
    with Broker() as broker:
        arguments = ("spark", "replay", str(tmp_path), "/queue/b", "--checkpoint", str(tmp_path / "c"), "--bad")
        result = run(*arguments, "--url", broker.url, "--header", "k:b", "--rate", "100", "--replay-id", "nightly")
        assert result.code == Exit.OK, result.err
        assert result.err == f"stompy: 1 sent from {tmp_path}\n"
        assert broker.depth("/queue/b") == 1
