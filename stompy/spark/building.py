"""Functions that build the options of source and sink, with Python names, and check them.

At run time their keywords come from the tables of options. Type checkers and editors use `building.pyi`, which is
generated from the tables: `python -m tests.documentation.spark_building`. They need neither Spark nor pyarrow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stompy.spark.options import Option, written
from stompy.spark.sink_options import SINK_TABLE, SinkOptions
from stompy.spark.source_options import BATCH_TABLE, STREAM_TABLE, batch_options, stream_options


def options_for_stream(**options: Any) -> dict[str, str]:
    """Return options for `spark.readStream`.

    For example::

        spark.readStream.format("stomp").options(**options_for_stream(url=..., destination=..., spool_dir=...)).load()

    Durations are seconds; sizes are bytes, or text such as `"8m"`. Omitted options have their defaults. The passcode is
    not an option, as options are sent to executors and often printed: see `passcode_env` and `passcode_file`.

    Raises:
        ConfigurationError: an option is unknown, missing or invalid; its value is not shown.
    """
    return _checked(STREAM_TABLE, stream_options, options)


def options_for_read(**options: Any) -> dict[str, str]:
    """Return options for `spark.read`, which consumes the messages of a queue as a table; as `options_for_stream`."""
    return _checked(BATCH_TABLE, batch_options, options)


def options_for_write(**options: Any) -> dict[str, str]:
    """Return options for `df.write` and `df.writeStream`; as `options_for_stream`."""
    return _checked(SINK_TABLE, SinkOptions.of, options)


def _checked(
    table: Sequence[Option], check: Callable[[Mapping[str, str]], object], values: Mapping[str, Any]
) -> dict[str, str]:
    options = written(table, values)
    check(options)
    return options


def _signature(table: Sequence[Option]) -> inspect.Signature:
    """Return the signature for `help` and notebooks; required options come first."""
    required, keyword = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([
        inspect.Parameter(option.field, keyword, default=required if option.required else None)
        for option in sorted(table, key=lambda option: not option.required)
    ])  # fmt: skip


for _function, _table in (
    (options_for_stream, STREAM_TABLE),
    (options_for_read, BATCH_TABLE),
    (options_for_write, SINK_TABLE),
):
    vars(_function)["__signature__"] = _signature(_table)
