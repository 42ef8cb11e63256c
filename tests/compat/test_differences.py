"""What works differently than with stomp.py on purpose, as `docs/reference/compat.md` lists it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import stompy.compat as stomp
import stompy.compat.waiting as waiting
from stompy.broker import Broker
from tests.compat.conftest import Connect, Recorder, host_of, within
from tests.support.peer import until


@pytest.mark.parametrize("wait", ["wait_on_receipt", "wait_on_disconnected", "wait_for_message", "wait_for_heartbeat"])
def test_a_wait_ends(monkeypatch: pytest.MonkeyPatch, wait: str) -> None:
    monkeypatch.setattr(waiting, "limit", 0.01)
    with pytest.raises(stomp.exception.StompException, match=r"within 0\.01 s"):
        getattr(stomp.listener.TestListener("7"), wait)()


def test_the_other_listeners_are_called_after_one_that_raised(connect: Connect) -> None:
    class Raising(stomp.ConnectionListener):
        def on_message(self, frame: stomp.utils.Frame) -> None:
            raise KeyError("a")

    recorder = Recorder()
    connection = connect(listener=recorder)
    connection.set_listener("first", Raising())
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "x")
    until(lambda: recorder.named("message"))
    assert connection.is_connected()


def test_sending_after_a_loss_raises_all_that_programs_catch(connect: Connect, broker: Broker) -> None:
    recorder = Recorder()
    connection = connect(listener=recorder)
    broker.close()
    within(recorder.over)
    with pytest.raises(stomp.exception.NotConnectedException) as raised:
        connection.send("/queue/a", "x")
    assert isinstance(raised.value, stomp.exception.ConnectionClosedException)
    assert isinstance(raised.value, OSError)


def test_headers_of_the_caller_are_not_changed(connect: Connect) -> None:
    recorder = Recorder()
    connection = connect(stomp.Connection12, recorder)
    connection.subscribe("/queue/a", id=1)
    headers = {"destination": "/queue/a", "colour": "red:\n"}
    for _ in range(2):
        connection.send_frame("SEND", headers, "x")
    until(lambda: len(recorder.named("message")) == 2)
    assert headers == {"destination": "/queue/a", "colour": "red:\n"}
    assert [frame.headers["colour"] for frame in recorder.named("message")] == ["red:\n"] * 2


def test_the_encoding_is_used_in_both_directions(connect: Connect) -> None:
    text, raw = Recorder(), Recorder()
    connection = connect(listener=text, encoding="latin-1")
    connection.subscribe("/topic/a", id=1)
    connect(listener=raw, auto_decode=False).subscribe("/topic/a", id=1, receipt="1")
    until(lambda: raw.named("receipt"))
    connection.send("/topic/a", "grün")
    until(lambda: text.named("message") and raw.named("message"))
    assert (text.named("message")[0].body, raw.named("message")[0].body) == ("grün", b"gr\xfcn")


def test_an_unknown_encoding_is_refused_at_once() -> None:
    with pytest.raises(LookupError, match="utf-nine"):
        stomp.Connection(encoding="utf-nine")


def test_connect_in_a_session_sends_its_frame_only(connect: Connect) -> None:
    recorder = Recorder()
    connection = connect(listener=recorder)
    connection.connect("guest", "guest")
    assert len(recorder.named("connecting")) == 1
    assert [frame.cmd for frame in recorder.named("send")] == ["STOMP", "STOMP"]


def test_callbacks_of_a_heartbeat_are_on_the_thread_of_the_others(connect: Connect) -> None:
    threads: dict[str, set[int]] = {"message": set(), "heartbeat": set(), "sent": set(), "own": set()}

    class Noting(stomp.ConnectionListener):
        def on_message(self, frame: stomp.utils.Frame) -> None:
            threads["message"].add(threading.get_ident())

        def on_heartbeat(self) -> None:
            threads["heartbeat"].add(threading.get_ident())

        def on_send(self, frame: stomp.utils.Frame) -> None:
            threads["own" if frame.cmd else "sent"].add(threading.get_ident())

    connection = connect(listener=Noting(), heartbeats=(50, 50))
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "x")
    until(lambda: all(threads.values()))
    assert threads["own"] == {threading.get_ident()}
    assert threads["heartbeat"] == threads["sent"] == threads["message"] != threads["own"]


def test_an_error_before_connected_closes_the_connection() -> None:
    recorder = Recorder()
    with Broker(users={"guest": "guest"}) as broker:
        connection = stomp.Connection([host_of(broker)])
        connection.set_listener("recorder", recorder)
        connection.connect("guest", "wrong")
        within(recorder.over)
    assert [name for name, _ in recorder.events if name in ("error", "disconnected")] == ["error", "disconnected"]
    assert not connection.is_connected()


def test_importing_looks_up_no_names() -> None:
    program = (
        "import socket\n"
        "def refuse(*arguments): raise AssertionError(arguments)\n"
        "for name in ('getaddrinfo', 'gethostbyname', 'gethostbyname_ex', 'gethostbyaddr', 'getfqdn'):\n"
        "    setattr(socket, name, refuse)\n"
        "import stompy.compat\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
