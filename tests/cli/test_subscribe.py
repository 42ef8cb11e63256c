from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
import tty

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.connection import Connection
from stompy.deadline import Deadline
from stompy.printable import printable
from tests.cli.conftest import Run, Start, environment
from tests.support.peer import until

BODIES = [b"plain", b"", "grüezi\u2028\x85".encode(), b"two\nlines\n", b"\x00\xff", b'{"n": 1}']


@pytest.fixture(autouse=True)
def address(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPY_URL", broker.url)


def fill(broker: Broker, bodies: list[bytes], queue: str = "/queue/a", **headers: str) -> None:
    with stompy.connect(broker.url) as conn:
        for body in bodies:
            conn.send(queue, body, headers=headers, confirm=True)


def test_text_is_the_bytes_and_a_line_end(broker: Broker, run: Run) -> None:
    fill(broker, BODIES)
    result = run("subscribe", "/queue/a", "--count", str(len(BODIES)))
    assert (result.code, result.err) == (0, "")
    assert result.out == b"".join(body + b"\n" for body in BODIES)


def test_json_is_one_line_a_message_and_keeps_the_bytes(broker: Broker, run: Run) -> None:
    fill(broker, BODIES, color="grün", empty="")
    result = run("subscribe", "/queue/a", "--count", str(len(BODIES)), "--format", "json")
    assert result.out.isascii()
    records = [json.loads(line) for line in result.out.splitlines()]
    back = [
        record["body"].encode() if "body" in record else base64.b64decode(record["body_base64"]) for record in records
    ]
    assert back == BODIES
    assert [set(record) for record in records if "body_base64" in record] == [{"destination", "headers", "body_base64"}]
    assert {(record["destination"], record["headers"]["color"], record["headers"]["empty"]) for record in records} == {
        ("/queue/a", "grün", "")
    }


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_what_is_beyond_the_count_stays_in_the_queue(ack: str, version: str, broker: Broker, run: Run) -> None:
    fill(broker, [b"1", b"2", b"3"])
    result = run("subscribe", "/queue/a", "--count", "2", "--ack", ack, "--versions", version)
    assert (result.code, result.out) == (0, b"1\n2\n")
    assert broker.depth("/queue/a") == 1


def test_it_works_with_1_0(broker: Broker, run: Run) -> None:
    fill(broker, [b"1", b"2"])
    assert run("subscribe", "/queue/a", "--count", "2", "--versions", "1.0").out == b"1\n2\n"
    assert broker.depth("/queue/a") == 0


def test_auto_needs_no_acknowledgement(broker: Broker, run: Run) -> None:
    fill(broker, [b"1"])
    assert run("subscribe", "/queue/a", "--count", "1", "--ack", "auto").out == b"1\n"
    assert broker.depth("/queue/a") == 0


def test_a_timeout_has_its_own_code(broker: Broker, run: Run) -> None:
    fill(broker, [b"1"])
    result = run("subscribe", "/queue/a", "--count", "2", "--timeout", "0.1")
    assert (result.code, result.out) == (6, b"1\n")
    assert result.error == "nothing from /queue/a for 0.1 s; 1 received"
    assert broker.depth("/queue/a") == 0


def test_the_end_of_the_queue_is_a_success_for_who_asks_for_it(broker: Broker, run: Run) -> None:
    fill(broker, [b"1", b"2"])
    result = run("subscribe", "/queue/a", "--until-empty", "--timeout", "0.1")
    assert (result.code, result.out, result.err) == (0, b"1\n2\n", "stompy: 2 received from /queue/a\n")
    assert broker.depth("/queue/a") == 0


def test_headers_go_with_the_subscription(broker: Broker, run: Run) -> None:
    result = run("subscribe", "/queue/a", "--header", "selector:x >")
    assert result.code == 4
    assert "selector" in result.error


@pytest.mark.parametrize(
    ("argv", "prefetch"),
    [(["--count", "2"], "2"), (["--count", "2", "--header", "prefetch-count:1"], "1"), (["--count", "5000"], "1000")],
)
def test_the_broker_is_asked_for_no_more_than_is_wanted(
    argv: list[str], prefetch: str, broker: Broker, run: Run
) -> None:
    fill(broker, [b"1", b"2"])
    result = run("subscribe", "/queue/a", "--timeout", "0.1", "-vv", *argv)
    assert result.out == b"1\n2\n"
    assert f"'prefetch-count': '{prefetch}'" in result.err


def test_an_unknown_broker_is_not_asked_for_a_prefetch(
    broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "dialect", "generic")
    fill(broker, [b"1"])
    result = run("subscribe", "/queue/a", "--count", "1", "-vv")
    assert result.code == 0
    assert "prefetch" not in result.err


class Gone(io.BytesIO):
    """Standard output whose reader went away."""

    @property
    def buffer(self) -> Gone:
        return self

    def flush(self) -> None:
        raise BrokenPipeError


class Full(Gone):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("stdout", "code"), [(Gone, 141), (Full, 5)])
def test_what_was_not_written_goes_back(
    stdout: type[Gone], code: int, broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, [b"1", b"2"])
    monkeypatch.setattr(sys, "stdout", stdout())
    assert run("subscribe", "/queue/a", "--count", "2").code == code
    assert broker.depth("/queue/a") == 2


def test_a_lost_broker_is_told(broker: Broker, start: Start) -> None:
    fill(broker, [b"1"])
    process = start("subscribe", "/queue/a", env={"STOMPY_URL": broker.url})
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    broker.close()
    assert process.communicate(timeout=20)[1].startswith(b"stompy: error: 127.0.0.1:")
    assert process.returncode == 3


def wait_until_acknowledged(broker: Broker) -> None:
    deadline = Deadline(20)
    while broker.stats().queues["/queue/a"].total:
        assert not deadline.expired
        time.sleep(0.01)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly(number: int, code: int, unbuffered: str, broker: Broker, start: Start) -> None:
    fill(broker, [b"1"])
    process = start("subscribe", "/queue/a", env={"STOMPY_URL": broker.url, "PYTHONUNBUFFERED": unbuffered})
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    wait_until_acknowledged(broker)
    process.send_signal(number)
    assert process.communicate(timeout=20)[1] == b"stompy: interrupted; 1 received\n"
    assert process.returncode == code
    assert broker.depth("/queue/a") == 0
    assert broker.stats().sessions == 0


HEAD = ["client", "client-individual"]


@pytest.mark.parametrize("ack", HEAD)
@pytest.mark.parametrize("lines", [1, 3])
def test_what_head_did_not_take_goes_back(ack: str, lines: int, broker: Broker) -> None:
    fill(broker, [str(number).encode() for number in range(500)])
    command = f"{sys.executable} -m stompy subscribe /queue/a --ack {ack} | head -{lines}"
    done = subprocess.run(
        ["sh", "-c", command], env=environment(STOMPY_URL=broker.url), capture_output=True, timeout=50, check=True
    )
    assert done.stdout == b"".join(b"%d\n" % number for number in range(lines))
    assert done.stderr == b""
    until(lambda: broker.stats().sessions == 0)
    assert broker.depth("/queue/a") == 500 - lines


def test_a_reader_that_takes_its_time_gets_everything_in_order(broker: Broker, start: Start) -> None:
    bodies = [b"%d" % number for number in range(1000)]
    fill(broker, bodies)
    process = start("subscribe", "/queue/a", env={"STOMPY_URL": broker.url})
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(3)]
    assert broker.stats().queues["/queue/a"].total >= 1000 - 4
    rest = [process.stdout.readline() for _ in range(997)]
    assert first + rest == [body + b"\n" for body in bodies]
    wait_until_acknowledged(broker)


def test_a_large_message_that_was_read_in_part_goes_back(broker: Broker, start: Start) -> None:
    fill(broker, [b"a", b"x" * 300_000, b"b"])
    process = start("subscribe", "/queue/a", env={"STOMPY_URL": broker.url})
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 2) == b"a\n"
    assert os.read(process.stdout.fileno(), 100_000)
    process.stdout.close()
    assert process.wait(20) == 141
    assert broker.depth("/queue/a") == 2


def test_a_reader_that_does_not_read_ends_it_by_the_timeout(broker: Broker, start: Start) -> None:
    fill(broker, [b"1", b"2"])
    process = start("subscribe", "/queue/a", "--timeout", "0.2", env={"STOMPY_URL": broker.url})
    assert process.wait(20) == 6
    assert process.stderr is not None
    assert process.stderr.read() == b"stompy: error: nobody read the output for 0.2 s; 0 received\n"
    assert broker.depth("/queue/a") == 2


def test_with_a_count_nobody_has_to_read_before_the_end(broker: Broker, start: Start) -> None:
    fill(broker, [b"1", b"2", b"3"])
    process = start("subscribe", "/queue/a", "--count", "2", env={"STOMPY_URL": broker.url})
    assert process.wait(20) == 0
    assert process.stdout is not None
    assert process.stdout.read() == b"1\n2\n"
    assert broker.depth("/queue/a") == 1


EVIL = b"caf\xc3\xa9\tx\r\n\x1b]0;owned\x07\x1b[2J\x9b2J\xff\xe2\x80\xae\x7f"


@pytest.mark.parametrize("more", [[], ["--raw"], ["--format", "json"]], ids=["text", "raw", "json"])
def test_a_terminal_gets_no_orders_from_a_message(more: list[str], broker: Broker, start: Start) -> None:
    fill(broker, [EVIL], evil="\x1b[2J\x7f")
    terminal, stdout = pty.openpty()
    tty.setraw(stdout)  # so that the terminal itself changes no byte
    env = {"STOMPY_URL": broker.url, "PYTHONIOENCODING": "utf-8"}
    process = start("subscribe", "/queue/a", "--count", "1", *more, env=env, stdout=stdout)
    os.close(stdout)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux tells the end of a terminal
        while data := os.read(terminal, 65536):
            shown += data
    os.close(terminal)
    assert process.wait(20) == 0
    if more == ["--raw"]:
        assert shown == EVIL + b"\n"
        return
    assert shown.decode() == printable(shown.decode(), keep="\n\t")
    if not more:
        wanted = "café\tx\\r\n\\x1b]0;owned\\x07\\x1b[2J\\x9b2J\\xff\\u202e\\x7f\n"
        assert shown.decode() == wanted
    else:
        record = json.loads(shown)
        assert record["headers"]["evil"] == "\x1b[2J\x7f"
        assert base64.b64decode(record["body_base64"]) == EVIL


@pytest.mark.parametrize("more", [[], ["--raw"]])
def test_what_is_no_terminal_gets_the_bytes(more: list[str], broker: Broker, run: Run) -> None:
    fill(broker, [EVIL])
    assert run("subscribe", "/queue/a", "--count", "1", *more).out == EVIL + b"\n"


def test_the_options_of_a_subscription_go_out_as_the_broker_knows_them(
    broker: Broker, run: Run, peer_name: None
) -> None:
    options = ("--selector", "a = 1", "--prefetch", "5", "--durable", "mine", "--client-id", "me")
    result = run("subscribe", "/topic/a", *options, "--timeout", "0.1", "-vv")
    assert "'activemq.prefetchSize': '5'" in result.err
    assert "'selector': 'a = 1'" in result.err
    assert "'activemq.subscriptionName': 'mine'" in result.err
    assert run("subscribe", "/topic/a", *options[:-2]).code == 2  # a durable subscription needs a client id


def test_a_reader_that_goes_away_ends_it_cleanly(broker: Broker, start: Start) -> None:
    fill(broker, [b"1"])
    process = start("subscribe", "/queue/a", env={"STOMPY_URL": broker.url})
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"1\n"
    process.stdout.close()
    assert process.wait(20) == 141
    assert process.stderr.read() == b""
