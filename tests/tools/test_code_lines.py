from __future__ import annotations

import pytest

from tools.code_lines import TOP, code_lines, main


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# a comment\n\nx = 1  # another\n", 1),
        ('"""A module."""\n\n\ndef f():\n    """Two\n    lines."""\n    return """a\n    text"""\n', 3),
        ("class A:\n    x: int\n    '''Of an attribute.'''\n", 2),
        ("call(\n    1,\n\n    # why\n    2,\n)\n", 4),
        ("if x: ...\n", 1),
    ],
)
def test_lines_without_blanks_comments_and_docstrings_count(source: str, lines: int) -> None:
    assert code_lines(source) == lines


def test_each_folder_and_their_sum_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(TOP / "stompy")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {"frames", "link", "all"} <= {row[0] for row in rows}
    assert sum(int(row[3]) for row in rows[:-1]) == int(rows[-1][3])
