"""The data pipeline's tests: they run where pyarrow is, those with a session where pyspark is too.

`--require-spark` names packages with commas between them, or `all`: where one of these is missing, it is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.options import chosen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

# Modules that can be tested without pyarrow and pyspark are tested everywhere.
_WITH_ARROW = ("spool", "receiver", "source", "crashes", "test_schema.py")

collect_ignore: list[str] = []

_NEEDED = ("pyarrow", "pyspark", "grpc")
_MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]

if "pyarrow" in _MISSING:
    collect_ignore += _WITH_ARROW

if "grpc" in _MISSING:
    collect_ignore += ("connect",)

if "pyspark" in _MISSING:
    collect_ignore += (
        "connect",
        "brokers",
        "pipelines",
        "queries",
        "sink/test_writer.py",
        "source/test_stream.py",
        "crashes/test_broker_gone.py",
        "crashes/test_cluster_killed.py",
        "crashes/test_committed.py",
        "crashes/test_driver_killed.py",
        "crashes/test_sink_killed.py",
        "crashes/test_source_killed.py",
        "crashes/test_spool_gone.py",
        "crashes/test_terminated.py",
        "test_datasource.py",
        "test_metrics.py",
        "test_session.py",
    )


def pytest_configure() -> None:
    """Refuse a run that lacks a package that it must have."""
    required = {*chosen.require_spark.split(",")}
    if lacking := [name for name in _MISSING if {"all", name} & required]:
        raise pytest.UsageError(f"{', '.join(lacking)} required: pip install -e . --group spark-test")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of Spark on this machine, for all tests: it takes ten seconds to start."""
    from pyspark.sql import SparkSession

    top = str(HERE.parent.parent)
    hooks = str(HERE / "crashes" / "site")  # a sitecustomize that does nothing unless a test asks for it
    # For the JVM and the Pythons that it starts: this interpreter, this source tree, nothing but loopback.
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH=os.pathsep.join(filter(None, (top, hooks, os.environ.get("PYTHONPATH")))),
        SPARK_LOCAL_IP="127.0.0.1",
    )
    session = (
        SparkSession.builder.master("local[2,3]")  # a task that fails has two more attempts
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def stomp(spark: SparkSession) -> SparkSession:
    """The same session, which knows `format("stomp")`."""
    from stompy.spark import register

    register(spark)
    return spark
