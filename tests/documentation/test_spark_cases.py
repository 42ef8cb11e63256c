from __future__ import annotations

from pathlib import Path

from tests.documentation.spark_cases import PAGE, TESTS, marked, page, problems, read_cases


def test_every_hard_case_has_a_test_and_every_mark_a_case() -> None:
    assert problems(read_cases(), marked(TESTS)) == []


def test_the_page_of_hard_cases_is_what_the_marks_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read_cases(), marked(TESTS)), (
        "run python -m tests.documentation.spark_cases"
    )


def test_a_case_without_a_test_and_a_mark_without_a_case_are_told(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text('@pytest.mark.hard_case("A", "B")\ndef test_x() -> None: ...\n')
    found = marked(tmp_path)
    assert found == {"A": ["test_a.py::test_x"], "B": ["test_a.py::test_x"]}
    assert problems({"A": "one", "C": "two"}, found) == [
        "B is no case, but test_a.py::test_x names it",
        "C has no test (two)",
    ]
    assert page({"A": "one"}, found).endswith("| A | one | test_a.py: `test_x` |\n")
