from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker, hash_passcode
from tests.cli.conftest import Run, Start


def address_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_comes(number: int, start: Start) -> None:
    process = start("broker", "--port", "0")
    url = address_of(process)
    assert url.startswith("stomp://127.0.0.1:")
    with stompy.connect(url) as conn:
        conn.send("/queue/a", b"x", confirm=True)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"")
    first, last = err.decode().splitlines()
    assert "development" in first
    assert "in memory" in first
    assert last == "stompy: stopped"


def test_a_login_is_asked_for(start: Start) -> None:
    process = start("broker", "--port", "0", "--user", "ann", env={"STOMPY_BROKER_PASSCODE": "sesame"})
    url = address_of(process)
    stompy.connect(url, login="ann", passcode="sesame").disconnect()
    with pytest.raises(stompy.ConnectRefused, match="wrong login or passcode"):
        stompy.connect(url, login="ann", passcode="guess")
    with pytest.raises(stompy.ConnectRefused):
        stompy.connect(url)


def test_the_passcode_may_be_in_a_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "passcode"
    file.write_text("sesame\n", encoding="utf-8")
    process = start("broker", "--port", "0", "--user", "ann", "--passcode-file", str(file))
    stompy.connect(address_of(process), login="ann", passcode="sesame").disconnect()


def test_a_port_that_is_taken_is_told(broker: Broker, run: Run) -> None:
    port = broker.url.rpartition(":")[2]
    result = run("broker", "--port", port)
    assert (result.code, result.out) == (3, b"")
    assert result.error == f"cannot listen on 127.0.0.1:{port}: the address is already in use"


def test_a_host_that_is_not_ours_is_told(run: Run) -> None:
    result = run("broker", "--port", "0", "--host", "203.0.113.7")
    assert result.code == 3
    assert "203.0.113.7" in result.error


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--user", "ann"], "--user needs a passcode"),
        (["--passcode-file", "f"], "needs --user"),
        (["--port", "99999"], "not a port"),
        (["--user", "ann", "--users-file", "f"], "do not go together"),
        (["--max-sessions", "0"], "not a whole number"),
    ],
)
def test_a_wrong_command_line_starts_nothing(
    argv: list[str], words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("sesame", encoding="utf-8")
    result = run("broker", *argv)
    assert result.code == 2
    assert words in result.error


def test_the_handlers_of_signals_are_put_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run("broker", "--port", str(taken.getsockname()[1])).code == 3
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_broker_that_others_can_reach_says_so(start: Start) -> None:
    process = start("broker", "--host", "0.0.0.0", "--port", "0")
    assert address_of(process).startswith("stomp://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    assert b"can be reached from other machines" in process.communicate(timeout=20)[1]


def test_users_and_limits_are_those_of_the_command_line(start: Start, tmp_path: Path) -> None:
    hashed = hash_passcode("sesame")
    file = tmp_path / "users.json"
    file.write_text(json.dumps({"ann": {"passcode_hash": hashed, "write": ["/queue/a"]}}), encoding="utf-8")
    process = start(
        "broker", "--port", "0", "--users-file", str(file), "--max-sessions", "1", "--max-body", "3",
        "--login-delay", "0.01",
    )  # fmt: skip
    url = address_of(process)
    with stompy.connect(url, login="ann", passcode="sesame") as conn:
        conn.send("/queue/a", b"abc", confirm=True)
        with pytest.raises(stompy.ConnectRefused, match="max_sessions=1"):
            stompy.connect(url, login="ann", passcode="sesame")
        with pytest.raises(stompy.BrokerError, match="max_body=3"):
            conn.send("/queue/a", b"abcd", confirm=True)
    with pytest.raises(stompy.ConnectRefused, match="wrong login or passcode"):
        stompy.connect(url, login="ann", passcode="guess")
    conn = stompy.connect(url, login="ann", passcode="sesame")
    with conn, pytest.raises(stompy.BrokerError, match="no right to write"):
        conn.send("/queue/b", b"x", confirm=True)
