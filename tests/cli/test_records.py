"""What `subscribe` prints and `send` reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from tests.cli.conftest import Run
from tests.support.seed import SEED_SETTING, chance


def test_messages_that_are_printed_as_json_are_sent_again_as_they_were(
    broker: Broker, run: Run, tmp_path: Path
) -> None:
    random = chance("records")
    print(SEED_SETTING)
    texts = ["", "x", "ü\n\t:\\", "\x7f\x00", '{"a": 1}']
    wanted = []
    with stompy.connect(broker.url) as conn:
        for _ in range(50):
            body = random.choice([random.choice(texts).encode(), random.randbytes(random.randrange(20))])
            headers = {f"h{n}": random.choice(["a", "b: c", "ü"]) for n in range(random.randrange(3))}
            kind = random.choice([None, "text/plain", "application/json"])
            conn.send("/queue/a", body, headers=headers, content_type=kind, confirm=True)
            wanted.append((body, headers, kind))
    file = tmp_path / "messages"
    file.write_bytes(run("subscribe", "/queue/a", "--url", broker.url, "--count", "50", "--format", "json").out)
    sent = run("send", "/queue/b", "--url", broker.url, "--json", str(file), "--header", "extra:1")
    assert (sent.code, sent.err) == (0, "stompy: sent 50 messages to /queue/b\n")
    for message, (body, headers, kind) in zip(broker.browse("/queue/b"), wanted, strict=True):
        assert message.body == body
        assert message.headers.get("content-type") == kind
        got = {name: value for name, value in message.headers.items() if name.startswith("h") or name == "extra"}
        assert got == {**headers, "extra": "1"}


@pytest.mark.parametrize(("option", "kept"), [([], "true"), (["--no-persistent"], "false")])
def test_a_persistent_message_stays_one_unless_an_option_says_otherwise(
    option: list[str], kept: str, broker: Broker, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    with stompy.connect(broker.url) as conn:
        conn.send("/queue/a", "x", persistent=True, confirm=True)
        file.write_bytes(run("subscribe", "/queue/a", "--url", broker.url, "--count", "1", "--format", "json").out)
        assert run("send", "/queue/b", "--url", broker.url, "--json", str(file), *option).code == 0
        assert conn.subscribe("/queue/b").receive(timeout=5).headers["persistent"] == kept


def test_json_that_somebody_wrote_is_sent(broker: Broker, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "messages"
    file.write_text('{"body": "x"}\n{"body": {"n": 1}, "headers": {"a": 1}}\n')
    assert run("send", "/queue/b", "--url", broker.url, "--json", str(file)).code == 0
    first, second = broker.browse("/queue/b")
    assert first.body == b"x"
    assert json.loads(second.body) == {"n": 1}
    assert (second.headers["content-type"], second.headers["a"]) == ("application/json", "1")


@pytest.mark.parametrize("line", ["x", "1", "{}", '{"body_base64": "?"}', '{"body": "x", "headers": 1}', "[]"])
def test_what_is_no_message_is_named_by_its_line(broker: Broker, run: Run, tmp_path: Path, line: str) -> None:
    file = tmp_path / "messages"
    file.write_text(f'{{"body": "x"}}\n{line}\n')
    result = run("send", "/queue/b", "--url", broker.url, "--json", str(file))
    assert result.code == 5
    assert "line 2 is no JSON object" in result.error


def test_a_template_prints_headers_and_body(broker: Broker, run: Run) -> None:
    with stompy.connect(broker.url) as conn:
        conn.send("/queue/a", "x", headers={"customer": "c {body}"}, confirm=True)
    template = "{destination} {customer}{missing}: {body}"
    result = run("subscribe", "/queue/a", "--url", broker.url, "--count", "1", "--format", template)
    assert result.out == b"/queue/a c {body}: x\n"


def test_a_format_that_is_none_is_refused(run: Run) -> None:
    result = run("subscribe", "/queue/a", "--format", "jsn")
    assert result.code == 2
    assert "neither text, json nor a template" in result.error
