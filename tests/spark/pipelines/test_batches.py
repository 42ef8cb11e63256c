from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from stompy.errors import ConfigurationError
from stompy.spark.pipelines.batches import Tally, query_id


def test_rows_are_counted_in_the_pass_of_the_action(spark: SparkSession) -> None:
    tally, seen = Tally(), list[int]()

    def collect(rows: DataFrame) -> None:
        seen.append(len(rows.collect()))

    assert tally.counted(spark.range(7), "a", collect) == 7
    assert tally.counted(spark.range(5), "a", collect) == 5
    assert tally.counted(spark.range(3).where("id < 0"), "b", collect) == 0
    assert seen == [7, 5, 0]
    assert tally.rows() == {"a": 12, "b": 0}


def test_a_folder_that_is_no_checkpoint_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="metadata is not that of a checkpoint"):
        query_id(spark, str(tmp_path))
