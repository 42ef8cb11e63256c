from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path

import pytest

from stompy.cli import options
from stompy.cli.exits import Exit, Failure


def passcode_arguments(*, file: str | None = None, ask: bool = False) -> argparse.Namespace:
    return argparse.Namespace(passcode_file=file, ask_passcode=ask)


@pytest.mark.parametrize(
    ("text", "pair"), [("a:b", ("a", "b")), ("a:", ("a", "")), ("a:b:c", ("a", "b:c")), ("a: b ", ("a", " b "))]
)
def test_a_header_is_split_at_its_first_colon(text: str, pair: tuple[str, str]) -> None:
    assert options.header(text) == pair


@pytest.mark.parametrize("text", ["", "a", ":b"])
def test_a_header_without_name_or_colon_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.header(text)


def test_a_header_given_twice_is_refused() -> None:
    with pytest.raises(Failure, match="'a' is given twice") as caught:
        options.headers_of([("a", "1"), ("b", "2"), ("a", "3")])
    assert caught.value.code is Exit.USAGE


def test_headers_keep_their_order() -> None:
    assert list(options.headers_of([("b", "1"), ("a", "2")]).items()) == [("b", "1"), ("a", "2")]


@pytest.mark.parametrize(("text", "pair"), [("1,2", (1.0, 2.0)), ("0.5", (0.5, 0.5)), ("0,10", (0.0, 10.0))])
def test_heartbeats_are_one_or_two_numbers(text: str, pair: tuple[float, float]) -> None:
    assert options.heartbeat(text) == pair


@pytest.mark.parametrize("text", ["", "1,2,3", "x", "1,", "-1", "nan", "inf"])
def test_other_heartbeats_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.heartbeat(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan"])
def test_a_time_that_is_not_positive_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.seconds(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "²"])
def test_a_count_that_is_not_positive_and_whole_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.count(text)


@pytest.mark.parametrize("text", ["-1", "65536", "x", "²"])
def test_a_number_that_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.port(text)


def test_numbers_are_read() -> None:
    assert (options.seconds("0.5"), options.count("12"), options.port("0"), options.port("65535")) == (
        0.5,
        12,
        0,
        65535,
    )


def test_the_passcode_of_a_file_is_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "passcode"
    file.write_bytes(" sesam é \nmore\n".encode())
    assert options.passcode_from(passcode_arguments(file=str(file)), "UNSET") == " sesam é "


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), (b"\xff\n", "not UTF-8")])
def test_a_passcode_file_that_cannot_be_read_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "passcode"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Failure, match=message) as caught:
        options.passcode_from(passcode_arguments(file=str(file)), "UNSET")
    assert str(file) in str(caught.value)
    assert caught.value.code is Exit.DATA


def test_the_passcode_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "sesame")
    assert options.passcode_from(passcode_arguments(), "SECRET_OF_MINE") == "sesame"
    assert options.passcode_from(passcode_arguments(), "UNSET") is None


class Terminal:
    def isatty(self) -> bool:
        return True


def test_the_passcode_is_asked_for_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda prompt: "typed")
    assert options.passcode_from(passcode_arguments(ask=True), "UNSET") == "typed"


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(Failure, match="needs a terminal"):
        options.passcode_from(passcode_arguments(ask=True), "UNSET")


@pytest.mark.parametrize(
    "argv",
    [
        ["--passcode", "sesame"],
        ["--passcode=sesame"],
        ["stomp://ann:sesame@broker"],
        ["--url", "x", "--port", "stomp://ann:sesame@broker"],
    ],
)
def test_a_wrong_command_line_shows_no_secret(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = options.CommandParser(prog="stompy")
    options.add_connection_options(parser)
    parser.add_argument("--port", type=options.port)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(argv)
    assert caught.value.code == Exit.USAGE
    err = capsys.readouterr().err
    assert "sesame" not in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "argv", [["q", "--port", "1", "text"], ["--port", "1", "q", "text"], ["q", "text", "--port", "1"]]
)
def test_an_optional_word_may_stand_behind_options(argv: list[str]) -> None:
    parser = options.CommandParser(prog="stompy")
    parser.add_argument("queue")
    parser.add_argument("text", nargs="?")
    parser.add_argument("--port", type=options.port)
    parser.set_defaults(late="text")
    known = parser.parse_args(argv)
    assert (known.queue, known.text, known.port) == ("q", "text", 1)


@pytest.mark.parametrize(("text", "bits"), [("600", 0o600), ("0660", 0o660), ("777", 0o777)])
def test_permissions_are_octal(text: str, bits: int) -> None:
    assert options.mode(text) == bits


@pytest.mark.parametrize("text", ["", "6", "8", "rw", "0o600", "1777", "-60"])
def test_what_are_no_permissions_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="three octal digits"):
        options.mode(text)
