"""`stompy top`."""

from __future__ import annotations

import os
import pty
import re
import select
from collections.abc import Callable, Iterator

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from tests.cli.conftest import Run, Start


@pytest.fixture
def watched() -> Iterator[Broker]:
    with Broker(console=True) as broker, connect(broker.url) as client:
        client.subscribe("/topic/prices")
        client.subscribe("/queue/orders", ack="client")
        for destination in ("/queue/orders", "/queue/mail", "/queue/mail", "/topic/prices", "/queue/\x1b[2J"):
            client.send(destination, "x", confirm=True)
        yield broker


def test_it_shows_queues_topics_and_totals(watched: Broker, run: Run) -> None:
    result = run("top", watched.console_url, "--count", "2", "--interval", "0.01")
    assert result.code == 0
    first, second = result.out.decode().split("\n\n")[:2]
    lines = second.splitlines()
    assert re.match(r"stompy-broker   in 0/s   out 0/s   connections 1   dead letters 0", lines[0])
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert rows["/queue/mail"] == ["2", "0", "0", "0.0", "0.0", "0.0"]
    assert rows["/queue/orders"] == ["0", "1", "1", "0.0", "0.0", "0.0"]
    assert rows["/topic/prices"] == ["0", "1", "1", "0.0", "0.0", "0.0"]
    assert r"/queue/\x1b[2J" in rows
    assert len(first.splitlines()) == len(lines)


def test_rates_are_those_between_two_looks(watched: Broker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish_meanwhile(seconds: float) -> None:
        with connect(watched.url) as client:
            client.send("/queue/mail", "x", confirm=True)

    monkeypatch.setattr("stompy.cli.top.time.sleep", publish_meanwhile)
    second = run("top", watched.console_url, "--count", "2").out.decode().split("\n\n")[1]
    (mail,) = [line.split() for line in second.splitlines() if line.startswith("/queue/mail")]
    assert float(mail[4]) > 0
    assert mail[5:] == ["0.0", "0.0"]
    assert second.splitlines()[2].startswith("/queue/mail"), "the busiest comes first"


def test_what_happened_between_two_looks_is_what_the_broker_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of NACKs brings nothing in, and what was sent and purged has come in."""
    with Broker(console=True, attempts=None) as broker, connect(broker.url) as client:
        again = client.subscribe("/queue/again", ack="client-individual")
        client.send("/queue/again", "x", confirm=True)

        def meanwhile(seconds: float) -> None:
            for _ in range(5):
                again.receive(timeout=20).nack(confirm=True)
            client.send("/queue/mail", "x", confirm=True)
            broker.purge("/queue/mail")

        monkeypatch.setattr("stompy.cli.top.time.sleep", meanwhile)
        second = run("top", broker.console_url, "--count", "2").out.decode().split("\n\n")[1]
    rows = {line.split()[0]: line.split()[1:] for line in second.splitlines()}
    assert (rows["/queue/again"][3], rows["/queue/again"][5]) == ("0.0", "0.0")
    assert rows["/queue/again"][4] != "0.0"
    assert rows["/queue/mail"][3] != "0.0"
    assert rows["/queue/mail"][4] == "0.0"


def test_dead_letters_are_those_that_wait(run: Run) -> None:
    with Broker(console=True, attempts=1) as broker, connect(broker.url) as client:
        subscription = client.subscribe("/queue/a", ack="client-individual")
        client.send("/queue/a", "x", confirm=True)
        subscription.receive(timeout=20).nack(confirm=True)
        assert b"dead letters 1" in run("top", broker.console_url, "--count", "1").out
        broker.purge("/queue/DLQ")
        assert b"dead letters 0" in run("top", broker.console_url, "--count", "1").out


def test_the_address_comes_from_the_environment(watched: Broker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPY_CONSOLE", watched.console_url)
    assert run("top", "--count", "1").code == 0


@pytest.mark.parametrize("address", [(), ("stomp://127.0.0.1:61613",), ("http://127.0.0.1:8161/",)])
def test_an_address_that_is_none_is_refused(run: Run, address: tuple[str, ...]) -> None:
    result = run("top", *address)
    assert result.code == 2
    assert "address of " in result.error


def test_a_wrong_token_is_refused(watched: Broker, run: Run) -> None:
    port = watched.console_url.split("/")[2]
    result = run("top", f"http://{port}/guessed/", "--count", "1")
    assert result.code == 3
    assert "token" in result.error
    assert "guessed" not in result.error


@pytest.mark.skipif(os.name != "posix", reason="a terminal is needed")
def test_on_a_terminal_the_numbers_stay_in_place(watched: Broker, start: Start) -> None:
    ours, theirs = pty.openpty()
    try:
        start("top", watched.console_url, "--count", "2", "--interval", "0.1", stdout=theirs, env={"TERM": "xterm"})
        os.close(theirs)
        shown = read_until(ours, lambda text: "/queue/mail" in text and "\x1b[?1049l" in text)
    finally:
        os.close(ours)
    assert shown.index("\x1b[?1049h") < shown.index("/queue/mail") < shown.rindex("\x1b[?1049l")
    assert "\x1b[2J" not in shown.replace("\x1b[2J\x1b[H", "")


@pytest.mark.skipif(os.name != "posix", reason="a terminal is needed")
def test_on_a_terminal_plain_text_fits_too(watched: Broker, start: Start) -> None:
    with connect(watched.url) as client:
        for number in range(30):
            client.send(f"/queue/{number}{'x' * 200}", "x", confirm=True)
    ours, theirs = pty.openpty()
    try:
        size = {"COLUMNS": "80", "LINES": "12"}
        start("top", watched.console_url, "--count", "1", "--plain", stdout=theirs, env=size)
        os.close(theirs)
        shown = read_until(ours, lambda text: "\r\n\r\n" in text)
    finally:
        os.close(ours)
    lines = shown.splitlines()
    assert len(lines) == 11
    assert max(map(len, lines)) == 80
    assert any("xx…  " in line for line in lines)


def read_until(descriptor: int, holds: Callable[[str], bool]) -> str:
    text = ""
    while not holds(text):
        assert select.select([descriptor], [], [], 50)[0], f"the terminal shows {text!r}"
        text += os.read(descriptor, 65536).decode("utf-8", "replace")
    return text
