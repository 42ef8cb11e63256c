#!/usr/bin/env python3
"""Writes an archive of the classes that Spark loads, for Java to begin with: usage: tools/spark_archive.py FILE

Half of what Spark's start costs is the loading of classes, and the tests start it some fifty times. To be run by the
Python that has pyspark. The archive fits that Java and that Spark alone; another Java starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def run_what_tests_run(folder: Path) -> None:
    """Have Spark load what a table and a stream need."""
    settings = {"ui.enabled": "false", "ui.showConsoleProgress": "false", "sql.shuffle.partitions": "2"}
    builder = SparkSession.builder.master("local[2]")
    spark = builder.config(map={f"spark.{name}": value for name, value in settings.items()}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(10).selectExpr("id % 2 AS key", "cast(id AS string) AS body").write.parquet(str(folder / "table"))
    frame = spark.readStream.schema("key LONG, body STRING").parquet(str(folder / "table"))
    for name, chosen in (("plain", frame), ("counted", frame.groupBy("key").count())):
        query = (
            chosen.writeStream.foreachBatch(lambda batch, _: batch.collect())
            .outputMode("update")
            .option("checkpointLocation", str(folder / name))
            .trigger(once=True)
            .start()
        )
        query.awaitTermination()
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "written"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def main(file: str) -> None:
    """Write the archive when Java ends."""
    os.environ["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -XX:ArchiveClassesAtExit={file}"
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        run_what_tests_run(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
