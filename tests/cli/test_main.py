from __future__ import annotations

import base64
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli.main import main
from tests.cli.conftest import FLIGHTS, Run, Start, environment


def test_the_version_is_that_of_the_package(run: Run) -> None:
    result = run("--version")
    assert (result.code, result.out.decode()) == (0, f"stompy {stompy.__version__}\n")


def test_the_help_tells_commands_and_exit_codes(run: Run) -> None:
    out = run("--help").out.decode()
    assert all(f"\n    {command}" in out for command in ("demo", "broker", "send", "subscribe", "ping"))
    assert "exit codes:" in out


@pytest.mark.parametrize("command", ["demo", "broker", "send", "subscribe", "ping"])
def test_each_command_has_its_help(command: str, run: Run) -> None:
    result = run(command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: stompy {command}".encode())
    assert run("help", command).out == result.out


def test_help_without_a_command_is_that_of_all(run: Run) -> None:
    assert run("help").out == run("--help").out


def test_a_command_imports_no_broker_unless_it_runs_one() -> None:
    program = (
        "import sys\n"
        "from stompy.cli.main import main\n"
        "main(['ping', '--url', 'stomp://127.0.0.1:1'])\n"
        "others = ('stompy.broker', 'stompy.spark', 'stompy.worker')\n"
        "assert not [name for name in sys.modules if name.startswith(others)]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_refused_connection_says_how_to_get_a_broker(run: Run) -> None:
    for command in (["ping"], ["send", "/queue/a", "x"], ["subscribe", "/queue/a"]):
        result = run(*command, "--url", "stomp://127.0.0.1:1")
        assert result.code == 3
        assert "127.0.0.1:1: connection refused; 'stompy broker' starts one" in result.error
        assert "STOMPY_URL" in result.error


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: COMMAND"),
        (["fly"], "there is no command 'fly'"),
        (["snd"], "there is no command 'snd'; did you mean 'send'?"),
        (["help", "sned"], "did you mean 'send'?"),
        (["send", "--headr", "a:b", "/queue/a"], "unknown option --headr; did you mean '--header'?"),
        (["--versoin"], "unknown option --versoin; did you mean '--version'?"),
        (["send", "--headr=a:b"], "unknown option --headr; did you mean '--header'?"),
        (["send"], "required: DESTINATION"),
        (["send", "/queue/a", "x", "--bogus", "value"], "unknown option --bogus"),
        (["ping", "extra"], "1 argument too many"),
        (["send", "/queue/a", "x", "--header", "a"], "NAME:VALUE"),
        (["send", "/queue/a", "x", "--header", "a:1", "--header", "a:2"], "'a' is given twice"),
        (["subscribe", "/queue/a", "--ack", "maybe"], "invalid choice: 'maybe'"),
        (["subscribe", "/queue/a", "--count", "0"], "1 or more"),
        (["subscribe", "/queue/a", "--timeout", "x"], "not a number of seconds"),
        (["ping", "--url", "http://broker"], "unknown scheme"),
        (["ping", "--url", "localhost:61613"], "begins with its scheme"),
        (["ping", "--url", "stomp://ann:sesame@broker:port"], "the port of a broker address is a number"),
        (["ping", "--url", "stomp://broker?speed=high"], "unknown option 'speed'"),
        (["ping", "--versions", "3.0"], "unknown STOMP version"),
        (["ping", "--passcode", "sesame"], "unknown option --passcode"),
        (["ping", "--passcode-file", "a", "--ask-passcode"], "not allowed with"),
    ],
)
def test_a_wrong_command_line_ends_with_2(argv: list[str], message: str, run: Run) -> None:
    result = run(*argv)
    assert (result.code, result.out) == (2, b"")
    assert message in result.error
    assert "sesame" not in result.err


def test_every_address_that_was_tried_is_named(run: Run) -> None:
    result = run("send", "/queue/a", "x", "--url", "stomp://127.0.0.1:1,stomp://127.0.0.1:2")
    assert result.code == 3
    assert "127.0.0.1:1: connection refused" in result.error
    assert "127.0.0.1:2: connection refused" in result.error


def test_a_wrong_login_gets_the_brokers_own_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPY_PASSCODE", "sesame")
    with Broker(users={"ann": "other"}) as broker:
        result = run("ping", "--url", broker.url, "--login", "ann", "-vv")
    assert result.code == 4
    assert "stompy: error: " in result.err.splitlines()[-1]
    assert "access refused: wrong login or passcode" in result.err
    assert "sesame" not in result.err
    assert "other" not in result.err


def test_no_version_in_common_is_a_refusal(run: Run) -> None:
    with Broker(versions=["1.0"]) as broker:
        result = run("ping", "--url", broker.url, "--versions", "1.2")
    assert result.code == 4
    assert "1.0" in result.error


def test_it_can_run_beside_the_main_thread(broker: Broker, run: Run) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["send", "/queue/a", "x", "--url", broker.url])))
    thread.start()
    thread.join(20)
    assert codes == [0]


def test_python_m_stompy_is_the_same_command() -> None:
    command = [sys.executable, "-m", "stompy", "--version"]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.decode()) == (0, f"stompy {stompy.__version__}\n")


def test_an_error_of_a_process_is_one_line_without_a_traceback() -> None:
    command = [sys.executable, "-m", "stompy", "ping", "--url", "stomp://127.0.0.1:1"]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert done.stderr.startswith(b"stompy: error: 127.0.0.1:1: connection refused; ")


@pytest.mark.parametrize(("setting", "coloured"), [("", True), ("1", False)])
def test_an_error_is_red_on_a_terminal(setting: str, coloured: bool) -> None:
    ours, theirs = pty.openpty()
    try:
        env = environment(NO_COLOR=setting)
        ended = subprocess.run([sys.executable, "-m", "stompy", "snd"], env=env, stderr=theirs, timeout=30, check=False)
        shown = os.read(ours, 1000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.returncode == 2
    assert shown.startswith(b"\x1b[31mstompy: error: ") is coloured
    assert shown.endswith(b"\x1b[0m\r\n") is coloured


@pytest.mark.broker
def test_a_real_file_goes_through_a_broker_byte_for_byte_and_in_order(start: Start) -> None:
    broker = start("broker", "--port", "0")
    assert broker.stdout is not None
    env = {"STOMPY_URL": broker.stdout.readline().decode().strip()}
    sent = start("send", "/queue/flights", "--lines", str(FLIGHTS), env=env)
    assert sent.communicate(timeout=30) == (b"", b"stompy: sent 5000 messages to /queue/flights\n")
    came = start("subscribe", "/queue/flights", "--count", "5000", "--timeout", "10", "--format", "json", env=env)
    out, err = came.communicate(timeout=30)
    assert (sent.returncode, came.returncode, err) == (0, 0, b"")
    records = [json.loads(line) for line in out.splitlines()]
    bodies = [
        record["body"].encode() if "body" in record else base64.b64decode(record["body_base64"]) for record in records
    ]
    assert b"".join(body + b"\n" for body in bodies) == FLIGHTS.read_bytes()


IMPORTED = (b"stompy.exports", b"stompy.installed", b"argparse", b"stompy.cli.exits", b"stompy.cli.options")


SCRIPT = pytest.param(
    (str(Path(sys.executable).with_name("stompy")),), marks=pytest.mark.needs("installation"), id="script"
)


@pytest.mark.parametrize("form", [pytest.param(("-m", "stompy"), id="-m"), SCRIPT])
@pytest.mark.parametrize("imported", IMPORTED)
def test_ctrl_c_while_it_is_imported_prints_no_traceback(imported: bytes, form: tuple[str, ...]) -> None:
    """From our first module on; what comes earlier is the interpreter's."""
    arguments = ("subscribe", "/queue/a", "--url", "stomp://127.0.0.1:1")
    command = [sys.executable, "-X", "importtime", *form, *arguments]
    # Its output waits in a small pipe, so that it is not far ahead of what was read.
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, pipesize=4096)
    assert process.stderr is not None
    assert any(line.endswith(imported + b"\n") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=30)[1]
    assert b"Traceback" not in rest
    assert process.returncode in (-signal.SIGINT, 130, 3)  # the last if it was too late


@pytest.mark.parametrize("name", ["stompy", "stompy.cli.main", "stompy.exports"])
def test_another_program_gets_its_keyboard_interrupt(name: str) -> None:
    program = f"import signal, {name}; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_signal_that_is_sent_twice_ends_it_once(broker: Broker, start: Start) -> None:
    """GNU timeout signals the process, then its group, in which it is."""
    process = start("subscribe", "/queue/a", env={"STOMPY_URL": broker.url})
    fill = subprocess.run(
        [sys.executable, "-m", "stompy", "send", "/queue/a", "x", "--url", broker.url], env=environment(), check=True
    )
    assert fill.returncode == 0
    assert process.stdout is not None
    assert process.stdout.readline() == b"x\n"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[1] == b"stompy: interrupted; 1 received\n"
    assert process.returncode == 143
