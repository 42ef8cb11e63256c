from __future__ import annotations

from tests.documentation.spark_building import MODULE, module


def test_the_functions_that_build_options_are_what_the_tables_say() -> None:
    assert MODULE.read_text(encoding="utf-8") == module(), "run python -m tests.documentation.spark_building"
