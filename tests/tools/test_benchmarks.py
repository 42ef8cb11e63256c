"""The benchmarks: that they run and what is made of their figures; never how fast anything is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from benchmarks import instructions, results, run
from benchmarks.clients.stomp_py_client import ACTIONS as STOMP_PY_ACTIONS
from benchmarks.clients.stompy_client import ACTIONS
from benchmarks.instructions import ROWS, above, counted
from benchmarks.rows import BY_NAME, Row
from benchmarks.run import main, summary
from stompy.deadline import Deadline
from stompy.transport.tcp import TcpDialer
from stompy.transport.websocket.endpoints import WebSocketDialer
from tests.support.peer import WITHIN


def figures(*values: float) -> list[run.Figures]:
    return [{"value": value, "rate": 1000.0, "peak": 2**20} for value in values]


def test_rows_are_measured_end_to_end(capfd: pytest.CaptureFixture[str]) -> None:
    command = ["--rows", "receive-ack,send", "--clients", "stompy,raw socket", "--rounds", "1", "--part", "200"]
    assert main(command) == 0
    shown = capfd.readouterr().out
    assert re.search(r"^receive-ack: .*\n +stompy +[\d.,]+ µs ", shown, re.MULTILINE)
    assert re.search(r"^send: .*\n +stompy +[\d.,]+ µs .*\n +raw socket +[\d.,]+ µs ", shown, re.MULTILINE)


def test_the_server_ends_a_websocket_that_its_client_closes() -> None:
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        tcp = TcpDialer("127.0.0.1", int(server.stdout.readline()))
        client = WebSocketDialer(tcp, host="h", subprotocols=["v12.stomp"]).dial(Deadline(WITHIN))
        client.shutdown_write()
        assert client.recv(Deadline(WITHIN)) == b""
        client.close()


@pytest.mark.parametrize("row", BY_NAME.values(), ids=lambda row: row.name)
def test_stompy_has_what_each_row_needs(row: Row) -> None:
    assert {entry.action for entry in row.entries().values() if entry.client == "stompy"} <= set(ACTIONS)


def test_an_unknown_row_is_named() -> None:
    with pytest.raises(SystemExit, match="no such row: sent; there are receive"):
        main(["--rows", "send,sent"])


def test_a_row_whose_client_ends_is_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "program", lambda client: [sys.executable, "-c", "pass"])
    assert main(["--rows", "send", "--clients", "raw socket", "--rounds", "1"]) == 1
    assert "send: left out, as a client ended" in capfd.readouterr().out


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    slow_round_for_both = summary(figures(1, 10, 4), figures(2, 20, 2))
    assert slow_round_for_both["ratio"] == 0.5
    assert slow_round_for_both["ratio_spread"] == [0.5, 2]
    assert slow_round_for_both["value"] == 4


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.action)
def test_stompy_and_stomp_py_have_what_each_counted_row_needs(row: instructions.Row) -> None:
    assert row.action in ACTIONS.keys() & STOMP_PY_ACTIONS.keys()


def test_only_3_percent_above_the_recorded_instructions_is_too_much() -> None:
    limits = {"send": 1000.0, "latency": 1000.0}
    assert list(above({"send": 1029.0, "latency": 5000.0, "receive": 9.0}, limits)) == []
    assert list(above({"send": 1031.0}, limits)) == ["send: 1,031 instructions, 3.1 % above the recorded 1,000"]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="without valgrind")
def test_instructions_are_counted_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "SHORT", 10)
    monkeypatch.setattr(instructions, "LONG", 60)
    ((name, figures),) = counted({"send": ROWS["send"]}, ["stompy"])
    assert name == "send"
    assert 1_000 < figures["stompy"] < 1_000_000


def test_a_run_is_kept_by_time_and_commit(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert results.last() == {"rows": {}}
    first = {"date": "2026-01-03 09:05", "commit": "ff23456789", "rows": {"send": {}}}
    second = {"date": "2026-01-03 11:00", "commit": "00aa456789+", "rows": {}}
    assert results.keep(second).name == "2026-01-03-1100-00aa456789.json"
    results.keep(first)
    assert results.last() == second
