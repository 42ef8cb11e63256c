"""The programs that the documentation prints run as printed."""

from __future__ import annotations

import pytest

from tests.support.printed import blocks

PROGRAMS = [
    pytest.param(block.text, id=f"{page}-{index}")
    for page in ("README.md", "docs/index.md")
    for index, block in enumerate(blocks(page, "python"))
    if block.text.startswith("import stompy\n")
]
"""Blocks that begin with the import are whole; the others are parts, which lean on names of the reader's own."""


def test_each_page_has_a_program() -> None:
    assert len(PROGRAMS) == 2


@pytest.mark.broker
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_printed_program_runs(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program, "printed program", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out
