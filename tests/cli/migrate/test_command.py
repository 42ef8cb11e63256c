"""`stompy migrate` as users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FINE = "import stomp\nconn = stomp.Connection()\nconn.connect('ann', 'secret', wait=True)\n"
OLD = "import stomp\nclass Own(stomp.ConnectionListener):\n    def on_message(self, headers, body): pass\n"


def test_a_program_that_runs_on_the_adapter_is_told_line_by_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "prices.py"
    path.write_text(FINE)
    result = run("migrate", str(path))
    lines = result.out.decode().splitlines()
    assert result.code == 0
    assert lines[0] == f"{path}:1: import stomp: `import stompy.compat as stomp`; natively `import stompy`"
    assert [line.split(":")[1] for line in lines] == ["1", "2", "3"]
    assert result.err == "stompy: files that use stomp.py: 1; uses: 3; that need a hand: 0\n"
    assert "secret" not in result.out.decode()


def test_what_needs_a_hand_is_marked_and_gives_exit_code_1(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "prices.py"
    path.write_text(OLD)
    result = run("migrate", str(path))
    assert result.code == 1
    assert f"{path}:3: Own.on_message: needs a hand: is called with one argument" in result.out.decode()


def test_nothing_is_run_or_changed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "prices.py"
    path.write_text(f"{FINE}open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(7)\n")
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert run("migrate", str(tmp_path)).code == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [each.name for each in tmp_path.iterdir()] == ["prices.py"]


def test_a_folder_is_searched_without_environments(run: Run, tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", ".venv/d.py", "lib/site-packages/e.py", "b/none.py", "b/f.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("print()" if "none" in name else FINE)
    result = run("migrate", str(tmp_path))
    assert {line.split(":")[0] for line in result.out.decode().splitlines()} == {
        str(tmp_path / "a.py"),
        str(tmp_path / "b" / "c.py"),
    }
    assert "files that use stomp.py: 2;" in result.err


def test_with_json_each_use_is_an_object(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "prices.py"
    path.write_text(OLD)
    result = run("migrate", "--json", str(path))
    uses = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 1
    assert uses[-1]["file"] == str(path)
    assert (uses[-1]["line"], uses[-1]["name"], uses[-1]["hand"]) == (3, "Own.on_message", True)
    assert uses[-1]["text"].startswith("is called with one argument")


@pytest.mark.parametrize(("content", "code"), [(b"import stomp\nprint 'x'\n", 1), (b"\0stomp", 1), (b"print 'x'\n", 0)])
def test_a_file_that_is_no_python_3_needs_a_hand_if_it_names_stomp(
    content: bytes, code: int, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "old.py"
    path.write_bytes(content)
    result = run("migrate", str(path))
    assert result.code == code
    assert ("cannot be parsed" in result.out.decode()) == bool(code)


def test_a_path_that_is_not_there_is_an_error(run: Run, tmp_path: Path) -> None:
    result = run("migrate", str(tmp_path / "none.py"))
    assert result.code == 5
    assert "cannot read" in result.error


def test_a_name_with_control_characters_is_escaped(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m.py"
    path.write_text(FINE)
    assert b"\x1b" not in run("migrate", str(path)).out
