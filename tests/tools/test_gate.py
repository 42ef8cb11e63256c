"""What runs the stages: side by side, in order, to the first failure, with what it prints and keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SCRIPT = TOP / "tools/gate.py"

MAKEFILE = """\
test-one: ; @echo '3 passed, 2 skipped in 0.10s'; echo 'and again'; echo '== 4 passed in 1.00s =='
test-none: ; @echo 'no tests ran in 0.01s'
broken: ; @echo 'the reason'; exit 3
endless: ; @sleep 60 & echo $$! >{folder}/child; wait
plain: ; @true
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A project of five stages."""
    (tmp_path / "tools").mkdir()
    (tmp_path / ".ci").mkdir()
    (tmp_path / "Makefile").write_text(MAKEFILE.format(folder=tmp_path))
    return tmp_path


def run(top: Path, stages: str) -> subprocess.CompletedProcess[str]:
    """Run these stages by the real script, put into another project."""
    source = SCRIPT.read_text(encoding="utf-8")
    start, end = source.index("GATE: "), source.index("LONG: ")
    (top / "tools" / "gate.py").write_text(f"{source[:start]}GATE = ({stages})\n\n{source[end:]}", encoding="utf-8")
    command = [sys.executable, str(top / "tools" / "gate.py")]
    return subprocess.run(command, cwd=top, capture_output=True, text=True, timeout=50, check=False)


def test_a_green_run_counts_the_tests_and_keeps_the_table_beside_the_one_before(top: Path) -> None:
    stages = 'Stage("test-one", alone=True, tests=True), Stage("plain", after=("test-one",)),'
    first, second = run(top, stages), run(top, stages)
    assert first.returncode == second.returncode == 0, first.stdout + first.stderr
    assert first.stdout.splitlines()[-1] == "7 passed, 0 failed, 2 skipped"
    assert "7 (-)" in first.stdout
    assert "7 (7)" in second.stdout
    for name in ("gate", "gate-previous"):
        (one, plain) = json.loads((top / ".ci" / f"{name}.json").read_text())
        assert (one["stage"], one["passed"], one["skipped"], plain["stage"]) == ("test-one", 7, 2, "plain")


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ('Stage("broken"),', "exit status 2"),
        ('Stage("test-none", tests=True),', "ran no test"),
        ('Stage("endless", limit=0),', "took more than 0 s"),
        ('Stage("endless"), Stage("broken"),', "the reason"),
    ],
)
def test_the_first_failure_ends_the_run_and_nothing_of_it_stays(top: Path, stages: str, reason: str) -> None:
    done = run(top, stages + ' Stage("plain", alone=True),')
    assert done.returncode == 1
    assert reason in done.stdout
    assert "plain begins" not in done.stdout
    assert not (top / ".ci" / "gate.json").exists()
    if (top / "child").exists():
        child = (top / "child").read_text().strip()
        state = Path(f"/proc/{child}/stat")
        assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_test_that_fails_has_no_second_try(top: Path) -> None:
    (top / "test_it.py").write_text("tries = []\ndef test_it():\n    tries.append(1)\n    assert len(tries) > 1\n")
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider test_it.py"
    (top / "Makefile").write_text(f"suite: ; @{command}\n")
    done = run(top, 'Stage("suite", tests=True),')
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


LONG = ("test-long-client", "test-long-worker", "test-long-spark", "test-autobahn", "fuzz", "mutation")


def long_run(*dates: str) -> list[dict[str, str]]:
    return [{"stage": name, "date": date} for name, date in zip(LONG, dates, strict=False)]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (long_run(*["2026-02-01"] * 6), "nothing was released since"),
        (long_run("2026-02-01", "2026-01-31", "2026-03-01", "2026-03-01"), "before the release of 2026-02-01"),
        (long_run(*["2026-02-01"] * 5), "`make mutation` has no result"),
        ([], "`make test-long-client` has no result"),
    ],
)
def test_a_long_run_must_be_whole_and_no_older_than_the_last_release(
    top: Path, found: list[dict[str, str]], words: str
) -> None:
    (top / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [0.2.0] - 2026-02-01\n\n## [0.1.0] - 2026-01-01\n")
    (top / ".ci" / "gate-long.json").write_text(json.dumps(found))
    (top / "tools" / "gate.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, str(top / "tools" / "gate.py"), "--check-long"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert words in done.stdout
    assert done.returncode == (0 if "nothing was released" in words else 1)


def test_before_the_first_release_no_long_run_is_too_old(top: Path) -> None:
    (top / "CHANGELOG.md").write_text("## [Unreleased]\n")
    (top / "tools" / "gate.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, str(top / "tools" / "gate.py"), "--check-long"]
    assert subprocess.run(command, capture_output=True, timeout=50, check=False).returncode == 0


def test_each_stage_is_a_target_of_the_makefile() -> None:
    makefile = (TOP / "Makefile").read_text(encoding="utf-8")
    source = SCRIPT.read_text(encoding="utf-8")
    names = [line.split('"')[1] for line in source.splitlines() if line.startswith('    Stage("')]
    assert len(names) > 15
    assert [name for name in names if f"\n{name}:" not in makefile] == []
