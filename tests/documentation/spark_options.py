"""Make the page of the pipeline's options from their tables: `python -m tests.documentation.spark_options`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from stompy.spark.broker_options import BROKER_OPTIONS
from stompy.spark.options import Option
from stompy.spark.sink_options import SINK_OPTIONS
from stompy.spark.source_options import BATCH_OPTIONS, BATCH_TABLE, SPOOL_OPTIONS, STREAM_OPTIONS

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "spark-options.md"

HEAD = """\
# Options of the Spark source and sink

This page is made from the tables that the options are parsed with (`python -m tests.documentation.spark_options`).

Names have no case; `maxMessages`, `maxmessages` and `max_messages` are the same. An unknown name is refused with the
nearest one. Durations are seconds, or `200ms`, `30s`, `5m`, `2h`; sizes are bytes, or `64k`, `8m`, `1g`. **Bold**:
required.

A passcode is no option, and none is taken in the address: options travel pickled to every executor, and programs print
them. Name a place instead (`passcodeEnv`, `passcodeFile`): for the source it is looked up in the driver's Python, for
`spark.read` and the sink in each executor's.

In Python, `stompy.spark.options_for_stream`, `options_for_read` and `options_for_write` [build them](spark.md) from
typed keywords, and refuse what is wrong at once.
"""


def page() -> str:
    """Return the whole page."""
    batch = {option.name for option in BATCH_TABLE}
    shared = ", ".join(f"`{option.name}`" for option in SPOOL_OPTIONS if option.name in batch)
    parts = [
        HEAD,
        section("The broker: source and sink", BROKER_OPTIONS),
        section("Receivers: `spark.readStream` and `stompy spool`", SPOOL_OPTIONS),
        f"`spark.read` takes some of them: {shared}.\n",
        section("Streams: `spark.readStream`", STREAM_OPTIONS),
        section("Tables: `spark.read`", BATCH_OPTIONS),
        section("The sink: `df.write` and `df.writeStream`", SINK_OPTIONS),
    ]
    return "\n".join(parts)


def section(title: str, table: Iterable[Option]) -> str:
    """Return a section with a table."""
    rows = [f"## {title}\n", "| option | default | what it does |", "|---|---|---|"]
    for option in table:
        name = f"**`{option.name}`**" if option.required else f"`{option.name}`"
        default = "" if option.default is None else f"`{option.default}`"
        rows.append(f"| {name} | {default} | {option.description.replace('|', '/')} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
