"""Pages on Spark that have the reader save programs and run commands: who does what they say sees what they say.

That of the cluster starts one on this machine, which takes minutes: `make test-long-spark`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.marked import marked
from tests.support.ports import reserved_port
from tests.support.printed import JAVAS_OWN, blocks, run_page

FIRST, TUTORIAL, CLUSTER = "docs/spark/index.md", "docs/spark/tutorial.md", "docs/spark/cluster.md"
COMMANDS = {FIRST: 5, TUTORIAL: 10, CLUSTER: 13}


def replaced(text: str, instead: dict[str, str]) -> str:
    for old, new in instead.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("page", COMMANDS)
def test_each_program_of_a_page_is_saved_and_run(page: str) -> None:
    files = [block.file for block in blocks(page, "python")]
    commands = [command for block in blocks(page) for command, _ in block.commands]
    assert files
    assert [file for file in files if not any(str(file) in command for command in commands)] == []
    assert len(commands) == COMMANDS[page]


@pytest.mark.xdist_group("java")
@pytest.mark.broker
@pytest.mark.needs("spark")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(FIRST, marks=pytest.mark.timeout(300)),
        pytest.param(TUTORIAL, marks=pytest.mark.timeout(180)),
        pytest.param(CLUSTER, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    for name in ("empty", "shared"):
        (tmp_path / name).mkdir()
    with reserved_port() as port, reserved_port() as of_spark, marked() as mark:
        # As printed, but for what others may have on this machine.
        instead = {"61613": str(port), "7077": str(of_spark), "/shared": str(tmp_path / "shared")}
        environment = {**mark, "SPARK_LOCAL_IP": "127.0.0.1"}
        steps = list(run_page(page, tmp_path / "empty", environment, within=150, instead=instead))
    assert len(steps) == COMMANDS[page]
    if page != CLUSTER:
        assert unexpected(page, steps, instead) == []


def unexpected(page: str, steps: list[str], instead: dict[str, str]) -> list[str]:
    """Return the lines that commands printed, on stdout or stderr, and that the page, as it was run, does not have."""
    back = {new: old for old, new in instead.items()}
    commands = [command for block in blocks(page, "console") for command in block.commands]
    found = []
    for (command, lines), printed in zip(commands, steps, strict=True):
        shown = [re.compile(".*".join(map(re.escape, line.split("...")))) for line in lines]
        if "pip install" not in command:
            found += [
                line
                for line in filter(str.strip, replaced(printed, back).splitlines())
                if not JAVAS_OWN.match(line) and not any(one.match(line) for one in shown)
            ]
    return found
