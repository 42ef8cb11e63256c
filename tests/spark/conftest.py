"""The data pipeline's tests: they run where pyarrow is, those with a session where pyspark is too.

`make test-spark` sets STOMPY_REQUIRE_SPARK, and then what is missing is a failure.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REQUIRED = bool(os.environ.get("STOMPY_REQUIRE_SPARK"))

# Modules that can be tested without pyarrow and pyspark are tested everywhere.
_WITH_ARROW = ("spool", "receiver", "crashes", "test_schema.py")

collect_ignore: list[str] = []

if importlib.util.find_spec("pyarrow") is None:
    if REQUIRED:
        raise pytest.UsageError("pyarrow is required: pip install -e '.[spark,test]'")
    collect_ignore += _WITH_ARROW
