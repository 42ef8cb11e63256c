from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli import demo
from stompy.cli.demo import Tour
from stompy.connection.message import Message
from stompy.errors import ConnectionLostError
from tests.cli.conftest import Run, Start


@pytest.mark.broker
def test_the_demo_shows_everything_and_passes(start: Start) -> None:
    process = start("demo")
    out, err = process.communicate(timeout=50)
    text = out.decode()
    assert (process.returncode, err) == (0, b"")
    assert max(map(len, text.splitlines())) <= demo.WIDTH
    for shown in ("A handler", "Receipts", "aborted", "Redelivery", "durable", "Heartbeats", "5,000 messages"):
        assert shown in text
    assert "FAILED" not in text
    assert "checks passed" in text


def test_without_the_file_of_the_checkout_lines_are_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STEPS", ())
    monkeypatch.setattr(demo, "FLIGHTS", Path("examples/data/missing.ndjson"))
    result = run("demo")
    assert (result.code, result.err) == (0, "")
    assert b"5,000 messages" in result.out


def test_a_file_of_ones_own_is_sent(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STEPS", ())
    file = tmp_path / "mine"
    file.write_bytes(b"1\n\n2\n")
    result = run("demo", "--file", str(file))
    assert (result.code, result.err) == (0, "")
    assert b"3 messages" in result.out


def test_a_check_that_fails_fails_the_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tour: Tour, broker: object, conn: object) -> None:
        tour.check("water runs uphill", holds=False)

    monkeypatch.setattr(demo, "STEPS", (broken,))
    file = tmp_path / "mine"
    file.write_bytes(b"1\n")
    result = run("demo", "--file", str(file))
    assert result.code == 1
    assert b"1 of 2 checks FAILED:\n   water runs uphill\n" in result.out


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), (b"", "is empty")])
def test_a_file_without_lines_is_refused_before_the_demo(
    run: Run, content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    if content is not None:
        file.write_bytes(content)
    result = run("demo", "--file", str(file))
    assert (result.code, result.out) == (5, b"")
    assert message in result.error


def test_an_error_fails_its_step_and_not_the_demo() -> None:
    def lose() -> None:
        raise ConnectionLostError("gone")

    tour = Tour()
    with tour.step("A step", "it means"):
        lose()
    assert tour.failed == ["A step: gone"]


@pytest.fixture
def conn(broker: Broker) -> Iterator[stompy.Connection]:
    with stompy.connect(broker.url, heartbeat=demo.HEARTBEAT) as conn:
        yield conn


@pytest.mark.parametrize("step", demo.STEPS, ids=lambda step: step.__name__)
def test_each_step_holds_by_itself(step: object, broker: Broker, conn: stompy.Connection) -> None:
    assert callable(step)
    tour = Tour()
    step(tour, broker, conn)
    assert tour.failed == []
    assert tour.passed >= 1


def test_a_broker_that_does_not_mark_redelivery_is_found(
    broker: Broker, conn: stompy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Message, "redelivered", False)
    tour = Tour()
    demo.nack(tour, broker, conn)
    assert tour.failed == ["7 deliveries, all but the first marked"]


def test_missing_heartbeats_are_found(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_TIMEOUT", 0.3)
    tour = Tour()
    with stompy.connect(broker.url, heartbeat=(0, 0)) as conn:
        demo.heartbeats(tour, broker, conn)
    assert tour.failed == ["0 from the broker, 0 from the client"]


def test_lines_in_another_order_are_found(broker: Broker, conn: stompy.Connection) -> None:
    tour = Tour()
    with stompy.connect(broker.url) as other:
        other.send("/queue/lines", b"2", confirm=True)
    demo.send_lines(tour, conn, [b"1", b"2"])
    assert len(tour.failed) == 1
