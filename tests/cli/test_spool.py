from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli import spark
from stompy.deadline import Deadline
from stompy.spark.option_tables import SpoolOptions
from stompy.spark.options import table_of
from tests.cli.conftest import Run, Start

QUEUE = "/queue/a"


def fill(broker: Broker, numbers: Iterable[int]) -> None:
    with stompy.connect(broker.url) as connection, connection.batch():
        for number in numbers:
            connection.send(QUEUE, str(number).encode())


def test_it_says_what_it_needs(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run("spool", "fill", QUEUE, str(tmp_path))
    assert result.code == 2
    assert result.error == "a spool needs pyarrow: pip install 'stompy-client[spool]'"


def test_every_option_of_the_source_is_one_here(run: Run) -> None:
    printed = run("spool", "fill", "--help").out.decode()
    for option in table_of(SpoolOptions):
        if option.name not in ("destination", "spoolDir"):
            assert f"{spark._flag(option)} " in printed


@pytest.mark.needs("pyarrow")
def test_it_receives_until_nothing_comes(run: Run, broker: Broker, tmp_path: Path) -> None:
    fill(broker, range(300))
    arguments = ("--url", broker.url, "--idle-timeout", "1", "--receivers", "2")
    result = run("spool", "fill", QUEUE, str(tmp_path / "s"), *arguments)
    assert result.code == 0
    assert result.err.endswith(f"stompy: 300 messages in {tmp_path}/s so far\n")
    assert broker.depth(QUEUE) == 0
    names = {path.name for path in (tmp_path / "s").iterdir() if not path.name.startswith("seg-")}
    assert names == {"counts", "epoch", "lock", "low", "settled", "spool.json", "suspects"}
    assert json.loads((tmp_path / "s" / "spool.json").read_bytes().splitlines()[0])["destination"] == QUEUE


@pytest.mark.needs("pyarrow")
def test_a_signal_ends_it_and_what_was_received_is_acknowledged(start: Start, broker: Broker, tmp_path: Path) -> None:
    process = start("spool", "fill", QUEUE, str(tmp_path / "s"), env={"STOMPY_URL": broker.url})
    fill(broker, range(100))
    deadline = Deadline(20)
    while broker.stats().queues[QUEUE].total and not deadline.expired:
        pass
    process.send_signal(signal.SIGTERM)
    _, printed = process.communicate(timeout=20)
    assert process.returncode == 143
    assert printed.decode().endswith(f"100 messages in {tmp_path}/s so far\n")
    assert broker.depth(QUEUE) == 0


@pytest.mark.needs("pyarrow")
def test_the_passcode_comes_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = ("spool", "fill", QUEUE, str(tmp_path / "s"), "--idle-timeout", "0.2")
    monkeypatch.setenv("STOMPY_PASSCODE", "sesame")
    with Broker(users={"me": "sesame"}) as broker:
        url = broker.url.replace("://", "://me@")
        done = run(*command, "--url", url)
        assert done.code == 0
        monkeypatch.setenv("STOMPY_PASSCODE", "barley")
        done = run(*command, "--url", url)
        assert done.code == 4
        assert "barley" not in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prefetch", "many"), "option prefetch must be a whole number of 1 or more"),
        (("--receivers", "0"), "--receivers must be 1 or more here"),
        (("--url", "stomp://me:sesame@localhost"), "must not contain a passcode"),
    ],
)
@pytest.mark.needs("pyarrow")
def test_a_wrong_option_is_reported(run: Run, tmp_path: Path, arguments: tuple[str, str], message: str) -> None:
    result = run("spool", "fill", QUEUE, str(tmp_path / "s"), *arguments)
    assert result.code == 2
    assert message in result.error
    assert "sesame" not in result.error


@pytest.mark.needs("pyarrow")
def test_a_folder_with_other_things_in_it_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    result = run("spool", "fill", QUEUE, str(tmp_path))
    assert result.code == 5
    assert "neither empty nor a spool" in result.error


def test_the_status_has_a_help_of_its_own(run: Run) -> None:
    printed = run("spool", "status", "--help").out.decode()
    assert "usage: stompy spool status [-h] [--verbose] FOLDER" in printed
    assert "--receivers" not in printed


@pytest.mark.needs("pyarrow")
def test_the_status_of_a_spool_is_reported_and_nothing_is_changed(run: Run, broker: Broker, tmp_path: Path) -> None:
    fill(broker, range(30))
    run("spool", "fill", QUEUE, str(tmp_path / "s"), "--url", broker.url, "--idle-timeout", "1")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")}
    printed = run("spool", "status", str(tmp_path / "s"))
    assert printed.code == 0
    lines = dict(line.split(maxsplit=1) for line in printed.out.decode().splitlines())
    assert lines["destination"] == QUEUE
    assert lines["messages"] == "0 to 29, 0 more a second"
    assert lines["backlog"] == "30 that no query has planned yet"
    assert lines["oldest"].endswith(" s ago")
    assert lines["filled"].startswith("by    process ")
    assert re.fullmatch(
        r"0   30 messages, 0 duplicates dropped, 0 possible duplicates kept, last \d+ s ago", lines["receiver"]
    )
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")} == before
    assert run("spool", "status", str(tmp_path / "none")).code == 5
