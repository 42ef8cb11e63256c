"""Pages with programs and commands: who saves and runs what they print sees the output that they print."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from stompy.cli.main import build_parser
from tests.support.marked import marked
from tests.support.ports import reserved_port
from tests.support.printed import TOP, Shell, blocks, run_page

PAGES = sorted(
    page
    for path in [
        *(TOP / "docs").glob("*.md"),
        *(TOP / "docs").glob("recipes/*.md"),
        *(TOP / "docs").glob("how-to/log*.md"),
        *(TOP / "docs").glob("how-to/move-*.md"),
    ]
    if blocks(page := path.relative_to(TOP).as_posix(), "console") and "spark" not in page
)


def test_there_are_pages_to_run() -> None:
    assert len(PAGES) >= 8


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_a_page_is_run(page: str) -> None:
    files = [block.file for block in blocks(page, "python") if block.file is not None]
    commands = [command for block in blocks(page) for command, _ in block.commands]
    assert [file for file in files if not any(file in command for command in commands)] == []


@pytest.mark.broker
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with reserved_port() as port, marked() as mark:
        environment = {**mark, "STOMPY_URL": f"stomp://localhost:{port}", "PYTHONUNBUFFERED": "1"}
        instead = {"61613": str(port), "examples/data": str(TOP / "examples/data")}
        for _ in run_page(page, tmp_path / "empty", environment, within=50, instead=instead):
            pass


@pytest.mark.broker
def test_the_command_line_block_of_the_readme_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    flights = TOP / "examples/data/flights.ndjson"
    (pasted,) = (block.text for block in blocks("README.md") if "stompy broker" in block.text)
    with reserved_port() as port, marked() as mark:
        environment = {**mark, "STOMPY_URL": f"stomp://localhost:{port}"}
        text = pasted.replace("61613", str(port)).replace("examples/data/flights.ndjson", str(flights))
        with Shell(folder, environment) as shell:
            shell.run(
                text, ["stompy: sent 5000 messages to /queue/flights", f"address       localhost:{port}"], within=50
            )
    assert (folder / "flights.ndjson").read_bytes() == flights.read_bytes()


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_a_page_compiles(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block.text, page, "exec")


DEPLOYMENTS = ("docker-compose", "kubernetes", "systemd")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_commands_in_a_deployment_are_commands_of_stompy(name: str) -> None:
    found = []
    for block in blocks(f"docs/recipes/{name}.md"):
        if block.language in ("yaml", "ini", "dockerfile"):
            for line in re.findall(r"\bstompy\"?,? .*", block.text.replace('", "', " ").replace(", ", " ")):
                found.append(shlex.split(re.sub(r"[\[\]\"]", "", line))[1:])
    assert found
    for arguments in found:
        assert build_parser().parse_args(arguments).run is not None


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    (block,) = blocks("docs/recipes/systemd.md", "ini")
    (tmp_path / "stompy").touch(mode=0o755)
    unit = tmp_path / "orders-worker.service"
    unit.write_text(block.text.replace("/opt/orders/.venv/bin", str(tmp_path)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
