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

This page is generated from the tables that parse the options (`python -m tests.documentation.spark_options`).

Names are case-insensitive; `maxMessages`, `maxmessages` and `max_messages` are the same. An unknown name raises an
error that suggests the nearest one. Durations are seconds, or `200ms`, `30s`, `5m`, `2h`; sizes are bytes, or `64k`,
`8m`, `1g`. **Bold**: required.

There is no option for a passcode, and the address must not contain one: options are pickled and sent to every executor,
and programs print them. Use `passcodeEnv` or `passcodeFile` instead: the source resolves it in the driver's Python,
`spark.read` and the sink in that of each executor.

Give them as Spark's own: `.option("spoolDir", "/data/spool")`, or `.options(url=..., spool_dir="/data/spool")`.
`load()` of the source checks them, and so does the write of the sink.
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
