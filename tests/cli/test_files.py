from __future__ import annotations

from pathlib import Path

import pytest

from stompy.cli.console import first_line, why
from stompy.cli.exits import Exit, Failure


@pytest.mark.parametrize(("text", "line"), [("a\nb\n", "a"), ("a", "a"), (" a \r\n", " a "), ("", ""), ("\na", "")])
def test_the_first_line_comes_without_its_end(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(text, encoding="utf-8")
    assert first_line(path, "secret") == line


def test_a_file_that_cannot_be_read_is_told_with_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(Failure, match=r"cannot read the secret file '.*secret': No such file") as caught:
        first_line(path, "secret")
    assert caught.value.code is Exit.DATA
    path.write_bytes(b"\xff")
    with pytest.raises(Failure, match="it is not UTF-8"):
        first_line(path, "secret")


def test_a_reason_does_not_repeat_the_path() -> None:
    assert why(FileNotFoundError(2, "No such file or directory", "/a/b")) == "No such file or directory"
    assert why(ValueError("embedded null byte")) == "embedded null byte"
