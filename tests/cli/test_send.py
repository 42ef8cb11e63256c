from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.dialects.brokers import dialect_named
from tests.cli.conftest import Run, Start

Stdin = Callable[[bytes], None]


@pytest.fixture(autouse=True)
def address(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPY_URL", broker.url)


def bodies(broker: Broker, count: int, queue: str = "/queue/a") -> list[bytes]:
    assert broker.depth(queue) == count
    with stompy.connect(broker.url) as conn:
        subscription = conn.subscribe(queue)
        return [subscription.receive(timeout=5).body for _ in range(count)]


def test_a_body_is_sent_as_text(broker: Broker, run: Run) -> None:
    result = run("send", "/queue/a", "grüezi", "--header", "a:b:c", "--header", "n:1")
    assert (result.code, result.out, result.err) == (0, b"", "stompy: sent 1 message to /queue/a\n")
    with stompy.connect(broker.url) as conn:
        message = conn.subscribe("/queue/a").receive(timeout=5)
    assert message.body == "grüezi".encode()
    assert {name: message.headers[name] for name in ("a", "n", "content-type")} == {
        "a": "b:c",
        "n": "1",
        "content-type": "text/plain;charset=utf-8",
    }


def test_a_content_type_is_written_as_given(broker: Broker, run: Run) -> None:
    assert run("send", "/queue/a", '{"n": 1}', "--content-type", "application/json").code == 0
    with stompy.connect(broker.url) as conn:
        message = conn.subscribe("/queue/a").receive(timeout=5)
    assert (message.headers["content-type"], message.json()) == ("application/json", {"n": 1})


@pytest.mark.parametrize("argv", [[], ["-"], ["--file", "-"]])
def test_standard_input_is_one_message(argv: list[str], broker: Broker, run: Run, stdin: Stdin) -> None:
    stdin(b"one\ntwo\n\x00\xff\r\n")
    assert run("send", "/queue/a", *argv).code == 0
    assert bodies(broker, 1) == [b"one\ntwo\n\x00\xff\r\n"]


def test_a_file_is_one_message(broker: Broker, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\x00one\n\xfftwo")
    assert run("send", "/queue/a", "--file", str(file)).code == 0
    assert bodies(broker, 1) == [b"\x00one\n\xfftwo"]


@pytest.mark.parametrize("through_stdin", [True, False])
@pytest.mark.parametrize("receipt", [[], ["--confirm"]])
def test_each_line_is_a_message_without_its_line_end(
    receipt: list[str], broker: Broker, run: Run, stdin: Stdin, tmp_path: Path, *, through_stdin: bool
) -> None:
    data = b"one\n\ntwo\r\n\x00\xff \nlast"
    file = tmp_path / "lines"
    file.write_bytes(data)
    stdin(data)
    result = run("send", "/queue/a", "--lines", "-" if through_stdin else str(file), *receipt)
    assert (result.code, result.err) == (0, "stompy: sent 5 messages to /queue/a\n")
    assert bodies(broker, 5) == [b"one", b"", b"two\r", b"\x00\xff ", b"last"]


def test_lines_of_nothing_send_nothing(broker: Broker, run: Run, stdin: Stdin) -> None:
    stdin(b"")
    assert run("send", "/queue/a", "--lines", "-").err == "stompy: sent 0 messages to /queue/a\n"
    assert broker.stats().messages_in == 0


def test_a_line_in_a_pipe_does_not_wait_for_the_next(broker: Broker, start: Start) -> None:
    process = start("send", "/queue/a", "--lines", "-", env={"STOMPY_URL": broker.url}, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"early\n")
    process.stdin.flush()
    with stompy.connect(broker.url) as conn:
        assert conn.subscribe("/queue/a").receive(timeout=20).body == b"early"
    assert process.communicate(b"late", timeout=20)[1] == b"stompy: sent 2 messages to /queue/a\n"
    assert process.returncode == 0


@pytest.mark.parametrize("option", ["--file", "--lines"])
def test_an_unreadable_file_sends_nothing(option: str, broker: Broker, run: Run, tmp_path: Path) -> None:
    missing, folder = tmp_path / "missing", tmp_path
    result = run("send", "/queue/a", option, str(missing))
    assert (result.code, result.error) == (5, f"cannot read {str(missing)!r}: No such file or directory")
    result = run("send", "/queue/a", option, str(folder))
    assert (result.code, result.error) == (5, f"cannot read {str(folder)!r}: Is a directory")
    assert broker.stats().sessions_total == 0


class Terminal:
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_not_read_by_surprise(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    result = run("send", "/queue/a")
    assert (result.code, result.error[:8]) == (2, "no body:")


@pytest.mark.parametrize("argv", [["x", "--file", "f"], ["--lines", "f", "x"], ["--file", "f", "--lines", "f"]])
def test_two_sources_of_a_body_are_refused(argv: list[str], run: Run, broker: Broker) -> None:
    result = run("send", "/queue/a", *argv)
    assert result.code == 2
    assert "not" in result.error
    assert broker.stats().sessions_total == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--header", "a:b\nc", "--versions", "1.0"], "line end"),
        (["--content-type", "text"], "not a MIME type"),
    ],
)
def test_what_stomp_cannot_write_is_not_sent(argv: list[str], message: str, run: Run, broker: Broker) -> None:
    result = run("send", "/queue/a", "x", *argv)
    assert result.code == 5
    assert message in result.error
    assert broker.stats().messages_in == 0


@pytest.mark.parametrize(
    ("command", "header", "instead"),
    [
        ("send", "content-type:x", "give it by --content-type"),
        ("send", "destination:/queue/b", "give it by DESTINATION"),
        ("send", "receipt:1", "give it by --confirm"),
        ("send", "content-length:1", "stompy sets it"),
        ("subscribe", "ack:auto", "give it by --ack"),
        ("subscribe", "id:7", "stompy sets it"),
    ],
)
def test_a_header_with_an_option_of_its_own_is_a_usage_error(
    command: str, header: str, instead: str, broker: Broker, run: Run
) -> None:
    result = run(command, "/queue/a", *(["x"] if command == "send" else []), "--header", header)
    assert result.code == 2
    assert f"{header.partition(':')[0]!r} cannot be given by --header: {instead}" in result.error
    assert broker.stats().sessions_total == 0


def test_the_options_of_a_message_go_out_as_the_broker_knows_them(broker: Broker, run: Run) -> None:
    options = ("--persistent", "--priority", "7", "--expires", "60", "--delay", "1.5")
    assert run("send", "/queue/a", "x", *options).code == 0
    assert run("send", "/queue/a", "x", "--no-persistent").code == 0
    broker.clock.advance(2)
    out = run("subscribe", "/queue/a", "--count", "2", "--format", "json").out
    first, second = (json.loads(line)["headers"] for line in out.splitlines())
    assert (first["persistent"], first["priority"], first["AMQ_SCHEDULED_DELAY"]) == ("true", "7", "1500")
    assert "expires" in first
    assert second["persistent"] == "false"


def test_an_option_that_the_broker_does_not_know_is_a_usage_error(
    broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.connection.config.dialect_of", lambda server: dialect_named("generic"))
    result = run("send", "/queue/a", "x", "--priority", "7")
    assert result.code == 2
    assert "priority" in result.error
    assert broker.stats().messages_in == 0


def test_a_line_end_in_a_header_travels_where_the_version_has_an_escape(broker: Broker, run: Run) -> None:
    assert run("send", "/queue/a", "x", "--header", "a:b\nc").code == 0
    with stompy.connect(broker.url) as conn:
        assert conn.subscribe("/queue/a").receive(timeout=5).headers["a"] == "b\nc"


@pytest.mark.parametrize("receipt", [[], ["--confirm"]])
def test_a_refusal_of_the_broker_is_reported_with_its_message(
    receipt: list[str], run: Run, stdin: Stdin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(b"1\n2\n3\n")
    with Broker(limits=BrokerLimits(max_queue_messages=1)) as full:
        monkeypatch.setenv("STOMPY_URL", full.url)
        result = run("send", "/queue/a", "--lines", "-", *receipt)
        assert full.depth("/queue/a") == 1
    assert result.code == 4
    assert "full" in result.error
    assert "not all confirmed" in result.error


class Interrupted(io.BytesIO):
    """Standard input on which somebody presses Ctrl-C after two lines."""

    @property
    def buffer(self) -> Interrupted:
        return self

    def __iter__(self) -> Iterator[bytes]:
        yield b"1\n"
        yield b"2\n"
        raise KeyboardInterrupt


def test_an_interruption_tells_how_far_it_got(broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Interrupted())
    result = run("send", "/queue/a", "--lines", "-")
    assert (result.code, result.error) == (130, "interrupted; 2 messages had been sent, not all confirmed")
    assert bodies(broker, 2) == [b"1", b"2"]


def test_a_receipt_that_does_not_come_has_its_own_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(self: stompy.Connection) -> None:
        raise stompy.ReceiptTimeoutError("no receipt 'cli-1' within 30 s", receipt_id="cli-1")

    monkeypatch.setattr(stompy.Connection, "flush", flush)
    assert run("send", "/queue/a", "x").code == 0
    result = run("send", "/queue/a", "x", "--confirm")
    assert (result.code, result.error[:10]) == (6, "no receipt")
