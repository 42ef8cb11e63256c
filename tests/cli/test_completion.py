"""The scripts with which shells complete the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stompy.cli.main import _COMMANDS
from tests.cli.conftest import Run


def completed(script: Path, *words: str) -> set[str]:
    """Return what bash completes the last word to."""
    line = " ".join(f"'{word}'" for word in words)
    program = f'source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _stompy; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["su"], {"subscribe"}),
        (["send", "--cont"], {"--content-type"}),
        (["subscribe", "--until"], {"--until-empty"}),
        (["completion", "f"], {"fish"}),
        (["nonsense", "--"], set()),
    ],
)
def test_bash_completes_commands_and_options(run: Run, tmp_path: Path, words: list[str], found: set[str]) -> None:
    script = tmp_path / "completion"
    script.write_bytes(run("completion", "bash").out)
    assert completed(script, "stompy", *words) == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_others_name_every_command_and_its_options(run: Run, shell: str) -> None:
    script = run("completion", shell).out.decode()
    assert all(name in script for name in _COMMANDS)
    assert "content-type" in script


def test_an_unknown_shell_is_refused(run: Run) -> None:
    assert run("completion", "tcsh").code == 2
