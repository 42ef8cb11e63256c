"""What both pipelines do with a micro-batch."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as sql

from stompy.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tally:
    """Rows by kind, counted as they pass; any thread may ask.

    | lock | guards | held over I/O? |
    |---|---|---|
    | `_lock` (a leaf) | the counts | no |
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: Counter[str] = Counter()

    def counted(self, rows: DataFrame, kind: str, then: Callable[[DataFrame], None]) -> int:
        """Hand rows to an action and count them in the same pass.

        Args:
            rows: a batch.
            kind: under which they are counted.
            then: runs one action over what it is given.

        Returns:
            How many there were.
        """
        observed = Observation()
        then(rows.observe(observed, sql.count(sql.lit(1)).alias("rows")))
        count = int(observed.get["rows"])
        with self._lock:
            self._rows[kind] += count
        return count

    def rows(self) -> Mapping[str, int]:
        """Return the counts so far, by kind."""
        with self._lock:
            return dict(self._rows)


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query that a checkpoint belongs to: the same after each restart.

    Raises:
        ConfigurationError: the folder is no checkpoint.
    """
    try:
        text = "".join(row[0] for row in spark.read.text(f"{checkpoint.rstrip('/')}/metadata").collect())
        return str(json.loads(text)["id"])
    except Exception as error:
        # What a file system says comes as some error of Java's.
        raise ConfigurationError(
            f"{checkpoint}/metadata is not that of a checkpoint: {type(error).__name__}"
        ) from error
