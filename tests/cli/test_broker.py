from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import fields
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits, hash_passcode
from stompy.deadline import Deadline
from stompy.transport.tcp import TcpDialer
from tests.cli.conftest import TOP, Run, Start, environment
from tests.support.peer import until
from tests.support.rawclient import RawClient


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


def test_a_signal_that_another_thread_got_ends_it(start: Start) -> None:
    process = start("broker", "--port", "0", module="tests.support.signals_elsewhere")
    address_of(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_the_address_of_the_console_is_reported(start: Start) -> None:
    process = start("broker", "--port", "0", "--console")
    address_of(process)
    assert process.stderr is not None
    address = process.stderr.readline().decode().strip().removeprefix("stompy: console: ")
    with urllib.request.urlopen(address, timeout=20) as response:  # noqa: S310 - http
        assert b"<title>stompy console</title>" in response.read()


def test_a_login_is_asked_for(start: Start) -> None:
    process = start("broker", "--port", "0", "--user", "ann", env={"STOMPY_BROKER_PASSCODE": "sesame"})
    url = address_of(process)
    stompy.connect(url, login="ann", passcode="sesame").close()
    with pytest.raises(stompy.ConnectRefusedError, match="wrong login or passcode"):
        stompy.connect(url, login="ann", passcode="guess")
    with pytest.raises(stompy.ConnectRefusedError):
        stompy.connect(url)


def test_the_passcode_may_be_in_a_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "passcode"
    file.write_text("sesame\n", encoding="utf-8")
    process = start("broker", "--port", "0", "--user", "ann", "--passcode-file", str(file))
    stompy.connect(address_of(process), login="ann", passcode="sesame").close()


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
    ("argv", "message"),
    [
        (["--user", "ann"], "--user needs a passcode"),
        (["--passcode-file", "f"], "needs --user"),
        (["--port", "99999"], "not a port"),
        (["--user", "ann", "--users-file", "f"], "cannot be combined"),
        (["--max-sessions", "0"], "not a whole number"),
        (["--leniency", "invalid-utf8,anything"], "unknown leniency 'anything', only none, undefined-escapes,"),
        (["--leniency", ""], "unknown leniency ''"),
    ],
)
def test_a_wrong_command_line_starts_nothing(
    argv: list[str], message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("sesame", encoding="utf-8")
    result = run("broker", *argv)
    assert result.code == 2
    assert message in result.error


@pytest.mark.parametrize(
    ("argv", "tolerated"),
    [
        ([], [b"\0"]),
        (["--leniency", "none"], []),
        (["--leniency", "undefined-escapes,nul-between-frames"], [b"\0", b"x:\\t\n"]),
    ],
)
def test_leniencies_are_those_of_the_command_line(argv: list[str], tolerated: list[bytes], start: Start) -> None:
    process = start("broker", "--port", "0", *argv)
    host, port = address_of(process).removeprefix("stomp://").split(":")
    for deviation in (b"\0", b"x:\\t\n"):
        with RawClient(TcpDialer(host, int(port)).dial(Deadline(20))) as client:
            client.connect()
            before, inside = (deviation, b"") if deviation == b"\0" else (b"", deviation)
            client.raw(before + b"SEND\ndestination:/queue/a\nreceipt:1\n" + inside + b"\n\0")
            assert (client.frame().command == "RECEIPT") == (deviation in tolerated)


def test_it_behaves_as_another_broker(start: Start) -> None:
    process = start("broker", "--port", "0", "--like", "artemis")
    with stompy.connect(address_of(process)) as connection:
        assert connection.dialect == "artemis"


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


def connect_once_there_is_room(url: str, passcode: str) -> stompy.Connection:
    """Connect where one client may be there; the one before may still be on its way out."""
    give_up = Deadline(20)
    while True:
        try:
            return stompy.connect(url, login="ann", passcode=passcode)
        except stompy.ConnectRefusedError as refused:
            if "max_sessions" not in str(refused) or give_up.expired:
                raise
            time.sleep(0.01)


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
        with pytest.raises(stompy.ConnectRefusedError, match="max_sessions=1"):
            stompy.connect(url, login="ann", passcode="sesame")
        with pytest.raises(stompy.BrokerError, match="max_body=3"):
            conn.send("/queue/a", b"abcd", confirm=True)
    with pytest.raises(stompy.ConnectRefusedError, match="wrong login or passcode"):
        connect_once_there_is_room(url, "guess")
    conn = connect_once_there_is_room(url, "sesame")
    with conn, pytest.raises(stompy.BrokerError, match="no right to write"):
        conn.send("/queue/b", b"x", confirm=True)


def test_a_tolerance_that_makes_no_sense(run: Run) -> None:
    outcome = run("broker", "--port", "0", "--heartbeat-tolerance", "0.5")
    assert outcome.code == 2
    assert "heartbeat_tolerance must be at least 1, not 0.5" in outcome.err


def test_the_ready_file_holds_the_address_of_a_broker_that_can_be_connected_to(start: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("stomp://127.0.0.1:1\n", encoding="utf-8")  # of a broker that was killed
    process = start("broker", "--port", "0", "--ready-file", str(ready))
    seen: list[str] = []

    def logged() -> bool:
        with contextlib.suppress(FileNotFoundError):
            seen.append(ready.read_text(encoding="utf-8"))
        return bool(seen) and seen[-1] != "stomp://127.0.0.1:1\n"

    until(logged)
    url = seen[-1].removesuffix("\n")
    stompy.connect(url, reconnect=False).close()
    assert address_of(process) == url
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_cannot_start_leaves_no_ready_file(broker: Broker, run: Run, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("an older one", encoding="utf-8")
    assert run("broker", "--port", broker.url.rpartition(":")[2], "--ready-file", str(ready)).code == 3
    assert not ready.exists()


def test_a_ready_file_that_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    result = run("broker", "--port", "0", "--ready-file", str(tmp_path / "no" / "ready"))
    assert result.code == 5
    assert "cannot write the ready file" in result.error


def test_the_printed_example_sends_to_a_broker_that_is_there(tmp_path: Path) -> None:
    page = (TOP / "docs" / "how-to" / "command-line.md").read_text(encoding="utf-8")
    _, free_port, rest = page.split("## Run a development broker")[1].split("```shell\n", 2)[0:3]
    script = rest.split("```")[0] + "".join(free_port.split("```")[0].splitlines(keepends=True)[2:]) + "kill %1; wait\n"
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "stompy").write_text(f'#!/bin/sh\nexec {sys.executable} -m stompy "$@"\n', encoding="utf-8")
    (bin / "stompy").chmod(0o755)
    env = environment(PATH=f"{bin}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=env, capture_output=True, timeout=50, check=False)
    assert (done.returncode, done.stderr.count(b"error")) == (0, 0), done.stderr
    assert done.stdout.splitlines()[-1] == b"hello"


def test_websocket_clients_of_some_origins(start: Start) -> None:
    process = start("broker", "--port", "0", "--ws", "--origin", "http://a.example")
    url, web = address_of(process), address_of(process)
    assert web == url.replace("stomp:", "ws:") + "/"
    for origin in ("http://a.example", "http://b.example"):
        options = stompy.WebSocketOptions(headers={"Origin": origin})
        if origin == "http://a.example":
            stompy.connect(web, websocket=options).close()
        else:
            with pytest.raises(stompy.WebSocketRefusedError):
                stompy.connect(web, websocket=options)


def test_every_limit_has_a_flag(run: Run) -> None:
    described = run("broker", "--help").out.decode()
    for limit in fields(BrokerLimits):
        assert f"--{limit.name.replace('_', '-')} " in described
