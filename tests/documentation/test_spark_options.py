from __future__ import annotations

from tests.documentation.spark_options import PAGE, page


def test_the_page_of_options_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.documentation.spark_options"
