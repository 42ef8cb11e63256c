"""Pages on Spark that have the reader save programs and run commands: who does what they say sees what they say.

That of the cluster starts one on this machine, which takes minutes: `make test-long-spark`.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.marked import marked
from tests.support.printed import blocks, run_page

TUTORIAL, CLUSTER = "docs/getting-started-spark.md", "docs/how-to/spark-on-a-cluster.md"
COMMANDS = {TUTORIAL: 10, CLUSTER: 13}


def free_ports(*taken: str) -> dict[str, str]:
    """Return ports that are free here for those that a page prints."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in taken]
    free = [str(one.getsockname()[1]) for one in listening]
    for one in listening:
        one.close()
    return dict(zip(taken, free, strict=True))


@pytest.mark.parametrize("page", COMMANDS)
def test_each_program_of_a_page_is_saved_and_run(page: str) -> None:
    files = [block.file for block in blocks(page, "python")]
    commands = [command for block in blocks(page) for command, _ in block.commands]
    assert files
    assert [file for file in files if not any(str(file) in command for command in commands)] == []
    assert len(commands) == COMMANDS[page]


@pytest.mark.broker
@pytest.mark.needs("spark")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(TUTORIAL, marks=pytest.mark.timeout(180)),
        pytest.param(CLUSTER, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    for name in ("empty", "shared"):
        (tmp_path / name).mkdir()
    # As printed, but for what others may have on this machine.
    instead = {**free_ports("61613", "7077"), "/shared": str(tmp_path / "shared")}
    with marked() as mark:
        environment = {**mark, "SPARK_LOCAL_IP": "127.0.0.1"}
        steps = run_page(page, tmp_path / "empty", environment, within=150, instead=instead)
        assert len(list(steps)) == COMMANDS[page]
