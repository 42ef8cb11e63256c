"""Credentials: asked for at each connect, and shown by nothing, tracebacks with local variables included."""

from __future__ import annotations

import contextlib
import logging
import pickle
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.connection.config import credentials_now
from stompy.link.settings import Credentials
from stompy.secret import Secret
from tests.connection.conftest import Recorder
from tests.support.peer import until
from tests.support.ports import reserved_port
from tests.test_secret import MARK, shown_with_locals
from tests.transport.conftest import Calling

QUIET: dict[str, Any] = {"heartbeat": (0, 0), "timeouts": stompy.Timeouts(connect=5.0)}


@pytest.fixture
def guarded() -> Iterator[Broker]:
    with Broker(users={"ann": "token-1"}, limits=BrokerLimits(login_delay=0)) as broker:
        yield broker


def test_text_is_said_as_it_is() -> None:
    assert credentials_now("ann", MARK, address="") == Credentials("ann", Secret(MARK))
    assert credentials_now("ann", Secret(MARK), address="") == Credentials("ann", Secret(MARK))
    assert credentials_now(None, None, address="") == Credentials()


@pytest.mark.parametrize("passcode", [MARK, Secret(MARK)])
def test_functions_are_asked(passcode: str | Secret[str]) -> None:
    wanted = Credentials("ann", Secret(MARK))
    assert credentials_now(lambda: "ann", lambda: passcode, address="") == wanted
    assert credentials_now(lambda: ("ann", passcode), None, address="") == wanted
    assert credentials_now("ann", lambda: passcode, address="") == wanted


def test_a_function_that_raises_gives_a_connect_error_without_its_words() -> None:
    def fetch() -> str:
        raise KeyError(MARK)

    with pytest.raises(stompy.ConnectError, match="passcode function raised KeyError") as caught:
        credentials_now("ann", fetch, address="host:1")
    assert MARK not in str(caught.value)
    assert caught.value.safe_to_retry


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, stompy.ConnectError, stompy.ConfigurationError])
@pytest.mark.parametrize("which", ["login", "passcode"])
def test_what_a_function_raises_shows_nowhere(kind: type[Exception], which: str, guarded: Broker) -> None:
    def fetch() -> str:
        token = MARK
        try:
            raise OSError(token)
        except OSError:
            raise kind(token) from None

    options: dict[str, Any] = {"login": "ann", "passcode": "x", which: fetch}
    with pytest.raises(stompy.ConnectError, match=f"{which} function raised {kind.__name__}") as caught:
        stompy.connect(guarded.url, **options, **QUIET)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert MARK not in shown_with_locals(caught.value)


def test_a_function_that_exits_is_one_that_raises_but_in_the_main_thread(calling: Calling) -> None:
    with pytest.raises(stompy.ConnectError, match="login function raised SystemExit"):
        calling(lambda: credentials_now(sys.exit, None, address="host:1")).result()
    with pytest.raises(SystemExit):
        credentials_now(sys.exit, None, address="host:1")


@pytest.mark.parametrize(
    "wrong", [(5, MARK), ("ann", 5), (lambda: ("ann", b"x"), None), (lambda: ("a", "b", "c"), None)]
)
def test_what_is_no_text_is_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(stompy.ConfigurationError, match="must be text") as caught:
        credentials_now(*wrong, address="")
    assert MARK not in shown_of_ours(caught.value)


def test_a_passcode_from_two_places_is_refused() -> None:
    with pytest.raises(stompy.ConfigurationError, match="passcode= is set too") as caught:
        credentials_now(lambda: ("ann", MARK), Secret(MARK), address="")
    assert MARK not in shown_of_ours(caught.value)


def test_a_rotating_token_is_asked_for_at_each_connect(guarded: Broker) -> None:
    asked = count(1)
    tokens: list[str] = []

    def token() -> str:
        tokens.append(f"token-{next(asked)}")
        return tokens[-1]

    with stompy.connect(guarded.url, login="ann", passcode=token, **QUIET):
        assert tokens == ["token-1"]
    with pytest.raises(stompy.ConnectRefusedError):
        stompy.connect(guarded.url, login="ann", passcode=token, **QUIET)
    assert tokens == ["token-1", "token-2"]


def test_a_reconnect_asks_again() -> None:
    said: list[str] = []

    def who() -> tuple[str, str]:
        said.append("asked")
        return "ann", "token-1"

    recorder = Recorder()
    with Broker(users={"ann": "token-1"}) as broker:
        options = {**QUIET, "reconnect": stompy.Reconnect(backoff=stompy.Backoff(first=0.01)), "listeners": [recorder]}
        with stompy.connect(broker.url, login=who, **options):
            broker.restart()
            recorder.await_event("connected", 2)
            until(lambda: len(said) >= 2)


# What shows nothing


OURS = str(Path(stompy.__file__).parent)


def shown_of_ours(error: BaseException) -> str:
    """Return what a tool that prints local variables shows of the frames that are ours."""
    shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    parts = shown.split('  File "')
    return "".join(part for part in parts if OURS in part.split("\n", 1)[0] or '", line' not in part)


@contextlib.contextmanager
def hanging_up() -> Iterator[str]:
    """Return the address of somebody who accepts nobody."""
    with reserved_port() as port:
        yield f"127.0.0.1:{port}"


def url_with(broker: Broker, user_info: str) -> str:
    return broker.url.replace("://", f"://{user_info}@")


def as_bytes() -> Any:
    return MARK.encode()


FAILURES: dict[str, Callable[[Broker, str], object]] = {
    "refused login": lambda broker, nobody: stompy.connect(broker.url, login="ann", passcode=MARK, **QUIET),
    "refused login of the address": lambda broker, nobody: stompy.connect(url_with(broker, f"ann:{MARK}"), **QUIET),
    "a passcode with a line end": lambda broker, nobody: stompy.connect(broker.url, passcode=f"{MARK}\n", **QUIET),
    "a passcode with a NUL": lambda broker, nobody: stompy.connect(broker.url, login="a\0", passcode=MARK, **QUIET),
    "nobody there": lambda broker, nobody: stompy.connect(f"stomp://ann:{MARK}@{nobody}", **QUIET),
    "nobody at any address": lambda broker, nobody: stompy.connect(
        f"failover:(stomp://ann:{MARK}@{nobody},stomp://ann:{MARK}@{nobody})", **QUIET
    ),
    "a wrong address": lambda broker, nobody: stompy.connect(f"stomp://ann:{MARK}@host:port:1"),
    "a wrong scheme": lambda broker, nobody: stompy.connect(f"http://ann:{MARK}@host"),
    "a wrong failover address": lambda broker, nobody: stompy.connect(f"failover:(stomp://ann:{MARK}@h)?x=1"),
    "a wrong option": lambda broker, nobody: stompy.connect(f"stomp://ann:{MARK}@h?speed=fast"),
    "a wrong timeout": lambda broker, nobody: stompy.connect(
        broker.url, passcode=MARK, timeouts=stompy.Timeouts(send=-1)
    ),
    "a wrong header": lambda broker, nobody: stompy.connect(broker.url, headers={"x-token": MARK, "receipt": MARK}),
    "a header with a line end": lambda broker, nobody: stompy.connect(
        broker.url, passcode=MARK, headers={"x": "a\nb"}, **QUIET
    ),
    "a passcode in bytes": lambda broker, nobody: stompy.connect(broker.url, login="ann", passcode=as_bytes(), **QUIET),
    "a passcode in a list": lambda broker, nobody: stompy.connect(broker.url, passcode=[MARK], **QUIET),  # type: ignore[arg-type]
    "a passcode in a secret": lambda broker, nobody: stompy.connect(broker.url, passcode=Secret(as_bytes()), **QUIET),
    "a pair as the login": lambda broker, nobody: stompy.connect(broker.url, login=("ann", MARK), **QUIET),  # type: ignore[arg-type]
    "a function that gives bytes": lambda broker, nobody: stompy.connect(broker.url, passcode=as_bytes, **QUIET),
    "an address in bytes": lambda broker, nobody: stompy.connect(f"stomp://ann:{MARK}@h".encode()),  # type: ignore[arg-type]
    "a proxy in bytes": lambda broker, nobody: stompy.connect(broker.url, proxy=f"http://ann:{MARK}@h:1".encode()),  # type: ignore[arg-type]
    "a passcode of an outbox in bytes": lambda broker, nobody: stompy.Outbox(
        "outbox", broker.url, login="ann", passcode=as_bytes()
    ),
    "a pair as the login of an outbox": lambda broker, nobody: stompy.Outbox(
        "outbox",
        broker.url,
        login=("ann", MARK),  # type: ignore[arg-type]
    ),
    "an unknown argument of an outbox": lambda broker, nobody: stompy.Outbox(  # type: ignore[call-arg]
        "nowhere", f"stomp://ann:{MARK}@h", passcode=MARK, speed=1
    ),
    "an outbox in a folder that is not there": lambda broker, nobody: stompy.Outbox(
        "/nowhere/at/all/outbox", f"stomp://ann:{MARK}@h", passcode=MARK
    ),
}


@pytest.mark.parametrize("name", [name for name in FAILURES if " bytes" in name or "pair" in name or "list" in name])
def test_what_cannot_be_a_credential_is_refused_before_anything_happens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = Broker()
        monkeypatch.setattr(type(nobody), "url", f"stomp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(stompy.ConfigurationError, match="text"):
            FAILURES[name](nobody, "")
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FAILURES)
def test_no_failure_shows_the_passcode(
    name: str, guarded: Broker, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.DEBUG), hanging_up() as nobody, pytest.raises(stompy.StompError) as caught:
        FAILURES[name](guarded, nobody)
    assert MARK not in str(caught.value)
    assert MARK not in shown_of_ours(caught.value)
    assert MARK not in caplog.text
    with contextlib.suppress(TypeError, AttributeError):
        assert MARK.encode() not in pickle.dumps(caught.value)


def test_the_check_sees_a_frame_of_ours_that_holds_a_passcode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompy.secret.strip_tracebacks", lambda error: error)
    with pytest.raises(stompy.ConfigurationError) as caught:
        stompy.connect(f"stomp://ann:{MARK}@h?speed=fast")
    assert MARK in shown_of_ours(caught.value)


def test_a_stream_that_breaks_under_connect_shows_no_passcode(monkeypatch: pytest.MonkeyPatch, guarded: Broker) -> None:
    def broken(self: object, data: bytes, deadline: object) -> None:
        raise stompy.ConnectionLostError("the stream broke")

    monkeypatch.setattr("stompy.transport.tcp.TcpTransport.sendall", broken)
    with pytest.raises(stompy.ConnectError) as caught:
        stompy.connect(guarded.url, login="ann", passcode=MARK, **QUIET)
    assert MARK not in shown_with_locals(caught.value).replace(f"passcode={MARK!r}", "").split("stompy/link")[-1]
    assert MARK not in shown_of_ours(caught.value)


def test_a_live_connection_shows_no_passcode(guarded: Broker) -> None:
    with stompy.connect(guarded.url, login="ann", passcode="token-1", **QUIET) as conn:
        assert "token-1" not in f"{conn!r} {conn.stats()!r} {vars(conn)!r} {conn._config!r}"
