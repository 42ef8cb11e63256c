"""The benchmarks: that they run and what is made of their figures; never how fast anything is."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from benchmarks import results, run
from benchmarks.clients.stompy_client import ACTIONS
from benchmarks.rows import BY_NAME, Row
from benchmarks.run import main, slower, summary
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


def test_only_twice_the_recorded_ratio_is_too_slow() -> None:
    def ratio(value: float) -> dict[str, object]:
        return {"send": {"reference": "stomp.py", "clients": {"stompy": {"ratio": value}}}}

    assert list(slower(ratio(0.5), ratio(0.99))) == []
    assert list(slower(ratio(0.5), ratio(1.01))) == ["send: 1.01 of stomp.py, which was 0.50"]
    assert list(slower({}, ratio(9))) == []


def test_a_run_is_kept_by_time_and_commit(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert results.last() == {"rows": {}}
    first = {"date": "2026-01-03 09:05", "commit": "ff23456789", "rows": {"send": {}}}
    second = {"date": "2026-01-03 11:00", "commit": "00aa456789+", "rows": {}}
    assert results.keep(second).name == "2026-01-03-1100-00aa456789.json"
    results.keep(first)
    assert results.last() == second
