from __future__ import annotations

import re

import pytest

from stompy.broker import Broker
from stompy.cli import ping
from tests.cli.conftest import Run


def rows(out: bytes) -> dict[str, str]:
    return {line[:13].strip(): line[14:] for line in out.decode().splitlines()}


def test_it_tells_what_the_broker_is(broker: Broker, run: Run) -> None:
    result = run("ping", "--url", broker.url, "--heartbeat", "1,0")
    printed = rows(result.out)
    assert (result.code, result.err) == (0, "")
    assert (printed["server"], printed["version"]) == ("stompy-broker", "STOMP 1.2")
    assert printed["heartbeats"] == "client every 1 s, broker none"
    assert printed["address"] == broker.url.removeprefix("stomp://")
    assert re.fullmatch(r"\d+\.\d ms", printed["receipt in"])
    assert "message in" not in printed
    assert broker.stats().messages_in == 0


@pytest.mark.parametrize("prefix", ["/queue/a", "/topic/a"])
def test_it_sends_through_a_destination_of_its_own(prefix: str, broker: Broker, run: Run) -> None:
    printed = rows(run("ping", "--url", broker.url, "--destination", prefix).out)
    assert re.fullmatch(rf"\d+\.\d ms, through {prefix}\.ping-[0-9a-f]{{8}}", printed["message in"])
    assert broker.stats().messages_in == 1
    assert broker.stats().queues == {}


def test_a_broker_that_says_little_is_no_trouble(run: Run) -> None:
    with Broker(versions=["1.0"]) as broker:
        result = run("ping", "--url", broker.url)
    assert result.code == 0
    assert rows(result.out)["version"] == "STOMP 1.0"
    assert rows(result.out)["heartbeats"] == "client none, broker none"


def test_text_of_the_broker_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    ping._row("server", "evil\x1b[2J\nname")
    assert capsys.readouterr().out == "server        evil\\x1b[2J\\nname\n"
