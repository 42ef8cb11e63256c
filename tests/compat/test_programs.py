"""What programs written for stomp.py do beyond plain sending and receiving."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import stompy.compat as stomp
from stompy.broker import Broker
from tests.compat.conftest import Connect, Recorder, host_of, within
from tests.support.peer import until

PROGRAM = """
import sys
import stomp
import stomp.connect, stomp.exception, stomp.listener, stomp.logging, stomp.utils

class Listener(stomp.ConnectionListener):
    def on_message(self, frame):
        print(frame.body, stomp.__version__, sys.argv[1:], flush=True)

conn = stomp.Connection([("127.0.0.1", int(sys.argv[1]))])
conn.set_listener("", Listener())
conn.connect("guest", "guest", wait=True)
waiting = stomp.listener.TestListener("7")
conn.set_listener("waiting", waiting)
conn.subscribe("/queue/a", id=1)
conn.send("/queue/a", "unchanged", receipt="7")
waiting.wait_on_receipt()
waiting.wait_for_message()
conn.disconnect(receipt="bye")
"""


def test_a_program_runs_unchanged(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    port = str(host_of(broker)[1])
    command = [sys.executable, "-m", "stompy.compat", str(tmp_path / "program.py"), port]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"unchanged 9.0.0 ['{port}']" in ran.stdout


def test_without_a_program_the_usage_is_shown() -> None:
    ran = subprocess.run([sys.executable, "-m", "stompy.compat"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "usage" in ran.stderr


def test_listeners_are_called_by_their_names(connect: Connect) -> None:
    calls: list[tuple[str, str]] = []
    connection = connect()
    for name in ("b", "c", "a"):
        connection.set_listener(name, Recorder(name, calls))
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "x")
    until(lambda: ("c", "message") in calls)
    got = [call for call in calls if call[1] in ("before_message", "message")]
    assert got == [*((name, "before_message") for name in "abc"), *((name, "message") for name in "abc")]


def test_a_listener_may_change_the_frame_for_the_others(connect: Connect) -> None:
    class Changing(stomp.ConnectionListener):
        def on_before_message(self, frame: stomp.utils.Frame) -> None:
            frame.headers["seen"], frame.body = "yes", frame.body.upper()

    recorder = Recorder()
    connection = connect(listener=recorder)
    connection.set_listener("changing", Changing())
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "x", headers={"seen": "no"})
    until(lambda: recorder.named("message"))
    (frame,) = recorder.named("message")
    assert (frame.body, frame.headers["seen"], frame.original_headers["seen"]) == ("X", "yes", "no")


def test_a_method_is_looked_up_at_each_event(connect: Connect) -> None:
    """As Mock objects, patched methods, `__getattr__` and functions set later need it."""

    class Answering:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("on_"):
                raise AttributeError(name)
            return lambda *arguments: self.calls.append(name)

    recorder, mock, answering, later = Recorder(), Mock(), Answering(), stomp.ConnectionListener()
    connection = connect(listener=recorder)
    for name, listener in (("mock", mock), ("answering", answering), ("later", later)):
        connection.set_listener(name, listener)
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "1")
    until(lambda: recorder.named("message"))

    bodies: list[object] = []
    later.on_message = lambda frame: bodies.append(frame.body)  # type: ignore[method-assign]
    mock.on_message = Mock()
    connection.send("/queue/a", "2")
    until(lambda: bool(bodies) and len(recorder.named("message")) == 2)
    assert bodies == ["2"]
    assert mock.on_message.call_args.args[0].body == "2"
    assert answering.calls.count("on_message") == 2

    connection.transport.listeners["direct"] = Recorder()
    connection.send("/queue/a", "3")
    until(lambda: len(recorder.named("message")) == 3)
    until(lambda: connection.get_listener("direct").named("message"))


def test_a_listener_of_a_second_connect_is_called(connect: Connect) -> None:
    connected: list[object] = []
    recorder = Recorder()
    connection = connect(listener=recorder)
    connection.disconnect(receipt="bye")
    recorder.on_connected = lambda frame: connected.append(frame.cmd)  # type: ignore[method-assign]
    connection.connect("guest", "guest", wait=True)
    until(lambda: bool(connected))


@pytest.mark.parametrize("event", ["message", "error", "receipt", "connected"])
def test_callbacks_with_the_arguments_of_no_release_are_refused(event: str) -> None:
    old = type("Old", (), {f"on_{event}": lambda self, headers, body, more: None})()
    with pytest.raises(TypeError, match=rf"Old.on_{event} takes one argument.*: def on_{event}\(self, frame\)"):
        stomp.Connection().set_listener("", old)


class Old(stomp.ConnectionListener):
    """As before stomp.py 7."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any, Any]] = []

    def on_connected(self, headers: Any, body: Any) -> None:  # type: ignore[override]
        self.events.append(("connected", headers, body))

    def on_before_message(self, headers: Any, body: Any) -> Any:  # type: ignore[override]
        return {**headers, "seen": "yes"}, body.upper()

    def on_message(self, headers: Any, body: Any) -> None:  # type: ignore[override]
        self.events.append(("message", headers, body))

    def on_receipt(self, headers: Any, body: Any) -> None:  # type: ignore[override]
        self.events.append(("receipt", headers, body))


def test_callbacks_with_headers_and_body_are_called_so(broker: Broker) -> None:
    connection, old = stomp.Connection([host_of(broker)]), Old()
    with pytest.warns(
        DeprecationWarning, match=r"Old\.on_\w+ takes headers and body.*def on_\w+\(self, frame\)"
    ) as warned:
        connection.set_listener("old", old)
    assert warned[0].filename == __file__
    assert connection.get_listener("old") is old
    connection.connect("guest", "guest", wait=True)
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "x", receipt="7")
    until(lambda: len(old.events) == 3)
    connection.disconnect(receipt="bye")
    found = {event: (headers, body) for event, headers, body in old.events if headers.get("receipt-id") != "bye"}
    assert found["connected"][0]["version"] == "1.1"
    assert (found["message"][0]["seen"], found["message"][1]) == ("yes", "X")
    assert found["receipt"][0]["receipt-id"] == "7"


def test_use_ssl_is_taken_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"set_ssl\(\[\(host, port\)\], ca_certs=\.\.\.\)") as warned:
        connection = stomp.Connection12([("a", 1), ("b", 2)], use_ssl=True, ssl_ca_certs="ca.pem")
    assert warned[0].filename == __file__
    for host in (("a", 1), ("b", 2)):
        options = connection.get_ssl(host) or {}
        assert (options["ca_certs"], options["verify"]) == ("ca.pem", True)
    with pytest.warns(DeprecationWarning, match="use_ssl= is of stomp.py before 8"):
        assert stomp.Connection10([("a", 1)], use_ssl=False).get_ssl(("a", 1)) is None
    with pytest.raises(TypeError, match="'use_sll'"):
        stomp.Connection(use_sll=True)


def test_the_release_has_both_shapes() -> None:
    release: Any = stomp.__version__
    assert (4, 1, 20) < release < (9, 1)
    assert release == "9.0.0"
    assert release == (9, 0, 0)
    assert release != (8, 2, 0)
    assert release.split(".")[0] == "9"
    assert {release: 1}["9.0.0"] == 1


def test_headers_are_rendered_as_text(connect: Connect) -> None:
    recorder, key = Recorder(), uuid.uuid4()
    connection = connect(listener=recorder)
    connection.subscribe("/queue/a", id=key)
    connection.send("/queue/a", "x", headers={"number": 7, "none": None, "several": ("a", "b")}, receipt=key)
    until(lambda: recorder.named("message") and recorder.named("receipt"))
    headers = recorder.named("message")[0].headers
    assert (headers["number"], headers["several"], headers["subscription"]) == ("7", "a", str(key))
    assert "none" not in headers
    assert recorder.named("receipt")[0].headers["receipt-id"] == str(key)


def test_a_program_may_have_the_lines_printed_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    listener, lines = stomp.PrintingListener(), list[tuple[str, ...]]()
    mangled = "_PrintingListener__print"
    setattr(listener, mangled, lambda *args: lines.append(args))
    listener.on_connecting(("a", 1))
    listener.on_disconnected()
    assert [line[0] % line[1:] for line in lines] == ["on_connecting a 1", "on_disconnected"]
    assert capsys.readouterr().out == ""


def test_bodies_stay_bytes_without_auto_decode(connect: Connect) -> None:
    recorder = Recorder()
    connection = connect(listener=recorder, auto_decode=False)
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", b"\x00\xff")
    until(lambda: recorder.named("message"))
    assert recorder.named("message")[0].body == b"\x00\xff"


@pytest.mark.parametrize(("automatic", "length"), [(True, "4"), (False, None)])
def test_content_length_can_be_switched_off(connect: Connect, automatic: bool, length: str | None) -> None:
    recorder = Recorder()
    connection = connect(listener=recorder, auto_content_length=automatic)
    connection.send("/queue/a", "häh")
    sent = recorder.named("send")[-1]
    assert ("content-length" in sent.headers) is automatic
    connection.subscribe("/queue/a", id=1)
    until(lambda: recorder.named("message"))
    assert recorder.named("message")[0].body == "häh"


def test_a_reconnect_in_on_disconnected(connect: Connect, broker: Broker) -> None:
    class Reconnecting(Recorder):
        def on_disconnected(self) -> None:
            super().on_disconnected()
            if len(self.named("disconnected")) == 1:
                connection.connect("guest", "guest", wait=True)

    recorder = Reconnecting()
    connection = connect(listener=recorder)
    connection.disconnect()
    until(lambda: len(recorder.named("connected")) == 2)
    until(connection.is_connected)
    connection.send("/queue/a", "x")


def test_system_exit_in_a_callback_ends_the_session(connect: Connect) -> None:
    class Leaving(Recorder):
        def on_message(self, frame: stomp.utils.Frame) -> None:
            sys.exit()

    recorder = Leaving()
    connection = connect(listener=recorder)
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "x")
    within(recorder.over)
    assert not connection.is_connected()


def test_a_program_may_create_the_thread_of_the_callbacks(connect: Connect, broker: Broker) -> None:
    made: list[threading.Thread] = []

    def create(callback: Any) -> threading.Thread:
        made.append(threading.Thread(target=callback, daemon=True))
        made[-1].start()
        return made[-1]

    connection = stomp.Connection([host_of(broker)])
    connection.transport.override_threading(create)
    connection.connect("guest", "guest", wait=True)
    connection.disconnect(receipt="bye")
    (thread,) = made
    thread.join()


def test_a_subclass_may_override_send(connect: Connect) -> None:
    class Marking(stomp.Connection11):
        def send(self, destination: str, body: Any, *args: Any, **kwargs: Any) -> None:
            super().send(destination, f"marked {body}", *args, **kwargs)

    recorder = Recorder()
    connection = connect(Marking, recorder)
    connection.subscribe("/queue/a", id=1)
    connection.send("/queue/a", "x")
    until(lambda: recorder.named("message"))
    assert recorder.named("message")[0].body == "marked x"


def test_hosts_are_tried_in_turn(broker: Broker) -> None:
    hosts = [("127.0.0.1", 1), host_of(broker)]
    connection = stomp.Connection(hosts)
    assert connection.transport._Transport__host_and_ports == hosts  # type: ignore[attr-defined]
    connection.connect(wait=True)
    assert connection.transport.current_host_and_port == host_of(broker)
    connection.disconnect(receipt="bye")


def test_the_with_statement_disconnects(broker: Broker) -> None:
    with stomp.Connection([host_of(broker)]) as connection:
        connection.connect(wait=True)
    assert not connection.is_connected()


@pytest.mark.parametrize("keyword", ["password", "login", "user"])
def test_a_keyword_that_is_no_argument_warns(broker: Broker, keyword: str) -> None:
    connection = stomp.Connection([host_of(broker)])
    with pytest.warns(UserWarning, match=f"{keyword}= is sent as a header"):
        connection.connect(**{keyword: "x"}, wait=True)
    connection.disconnect(receipt="bye")


def test_heartbeats_are_offered_sent_and_heard(broker: Broker, connect: Connect) -> None:
    recorder = Recorder()
    connection = connect(listener=recorder, heartbeats=(50, 50))
    until(lambda: recorder.named("heartbeat"))
    until(lambda: [frame for frame in recorder.named("send") if frame.cmd is None])
    assert connection.heartbeats == (50, 50)


def test_an_unsafe_header_is_not_written(connect: Connect) -> None:
    connection = connect(stomp.Connection10)
    with pytest.raises(stomp.exception.StompException, match="line end"):
        connection.send("/queue/a", "x", headers={"a": "b\nreceipt:injected"})


@pytest.mark.parametrize(("heartbeats", "warned"), [((0, 0), True), ((10_000, 10_000), False)])
def test_a_broker_that_ends_idle_sessions_is_warned_of(
    heartbeats: tuple[int, int], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(like="artemis") as broker:
        connection = stomp.Connection([host_of(broker)], heartbeats=heartbeats)
        connection.connect(wait=True)
        connection.disconnect(receipt="bye")
    assert ("set heartbeats=(ms, ms)" in caplog.text) is warned
