from __future__ import annotations

from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli.demo import flights
from stompy.cli.demo.printer import DemoPrinter
from stompy.cli.exits import Exit, Failure
from tests.cli.conftest import FLIGHTS


def test_the_file_of_the_checkout_is_taken() -> None:
    lines = flights.lines_of(None)
    assert lines.source == str(Path("examples/data/flights.ndjson"))
    assert b"".join(body + b"\n" for body in lines.bodies) == FLIGHTS.read_bytes()


def test_without_a_checkout_the_package_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "IN_CHECKOUT", Path("examples/data/missing.ndjson"))
    lines = flights.lines_of(None)
    assert len(lines.bodies) == 1200
    assert "in the package" in lines.source


def test_another_file_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\n\ntwo")
    assert flights.lines_of(str(file)) == flights.Lines([b"one", b"", b"two"], str(file))


@pytest.mark.parametrize(("content", "message"), [(None, "cannot read"), (b"", "is empty")])
def test_a_file_without_lines_is_a_failure(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Failure, match=message) as caught:
        flights.lines_of(str(file))
    assert caught.value.code is Exit.DATA


def test_lines_in_another_order_are_found_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shuffler(flights.Collector):
        def __call__(self, message: stompy.Message) -> None:
            self.bodies.reverse()
            super().__call__(message)

    printer = DemoPrinter()
    with stompy.connect(broker.url) as conn:
        flights.flights(printer, conn, flights.Lines([b"1", b"2", b"3"], "a list"))
    assert printer.failed == []
    monkeypatch.setattr(flights, "Collector", Shuffler)
    with stompy.connect(broker.url) as conn:
        flights.flights(printer, conn, flights.Lines([b"1", b"2", b"3"], "a list"))
    assert printer.failed == ["all of them arrived, byte for byte and in order"]


def test_the_flights_in_the_package_are_of_the_real_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "IN_CHECKOUT", Path("examples/data/missing.ndjson"))
    lines = set(flights.lines_of(None).bodies)
    assert len(lines) == 12
    assert lines <= set(FLIGHTS.read_bytes().split(b"\n"))
