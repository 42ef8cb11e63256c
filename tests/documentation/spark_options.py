"""Make the page of the pipeline's options from their tables: `python -m tests.documentation.spark_options`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from stompy.spark.option_tables import (
    NOT_OF_A_TABLE,
    BatchOptions,
    ReadOptions,
    SinkOptions,
    SparkBrokerOptions,
    SpoolOptions,
    StreamOptions,
)
from stompy.spark.options import own_options

PAGE = Path(__file__).parent.parent.parent / "docs" / "spark" / "options.md"

HEAD = """\
# Options of the Spark source and sink

This page is generated from the tables that parse the options (`python -m tests.documentation.spark_options`).

Names are case-insensitive; `maxMessages`, `maxmessages` and `max_messages` are the same. An unknown name raises an
error that suggests the nearest one. Durations are seconds, or `200ms`, `30s`, `5m`, `2h`; sizes are bytes, or `64k`,
`8m`, `1g`. **Bold**: required.

There is no option for a passcode, and the address must not contain one: options are pickled and sent to every executor,
and programs print them. Use `passcodeEnv` or `passcodeFile` instead: the source resolves it in the driver's Python,
the sink in that of each executor.

Give them as Spark's own: `.option("spoolDir", "/data/spool")`, or `.options(url=..., spool_dir="/data/spool")`.
`load()` of the source checks them, and so does the write of the sink.
"""


def page() -> str:
    """Return the whole page."""
    others = ", ".join(f"`{name}`" for name in NOT_OF_A_TABLE)
    parts = [
        HEAD,
        section("The broker: source and sink", SparkBrokerOptions),
        section("Receivers: `spark.readStream`, `spark.read` and `stompy spool fill`", SpoolOptions),
        f"`spark.read` has none of {others}, as each of its spools is read completely and once.\n",
        section("Streams and tables: `spark.readStream` and `spark.read`", ReadOptions),
        section("Streams: `spark.readStream`", StreamOptions),
        section("Tables: `spark.read`", BatchOptions),
        section("The sink: `df.write` and `df.writeStream`", SinkOptions),
    ]
    return "\n".join(parts)


def section(title: str, kind: Any) -> str:
    """Return a section with the table of a dataclass of options."""
    rows = [f"## {title}\n", "| option | default | what it does |", "|---|---|---|"]
    for option in own_options(kind):
        name = f"**`{option.name}`**" if option.required else f"`{option.name}`"
        default = "" if option.default is None else f"`{option.default}`"
        rows.append(f"| {name} | {default} | {option.description.replace('|', '/')} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
