from __future__ import annotations

from stompy.spark.option_tables import BatchOptions, SinkOptions, StreamOptions
from stompy.spark.options import table_of
from tests.documentation.spark_options import PAGE, page

MOST = 40
"""Options of source and sink, by name; a smaller number is always welcome."""


def test_the_page_of_options_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.documentation.spark_options"


def test_the_options_are_few() -> None:
    names = {option.name for kind in (StreamOptions, BatchOptions, SinkOptions) for option in table_of(kind)}
    assert len(names) <= MOST, sorted(names)
