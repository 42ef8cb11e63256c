"""From the arguments of `connect` to a session, and what is done for connections that are left open at the end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import QUICK, Recorder, Sessions, Talking
from tests.support.peer import WITHIN
from tests.transport.conftest import Calling


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://broker"},
        {"url": ""},
        {"url": "stomp://broker:0"},
        {"url": "stomp://broker?speed=fast"},
        {"url": "stomp://broker", "versions": "3.0"},
        {"url": "stomp://broker", "heartbeat": (-1, 0)},
        {"url": "stomp://broker", "reconnect": None},
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_dialed(wrong: dict[str, Any]) -> None:
    with pytest.raises(stompy.ConfigurationError):
        stompy.connect(**wrong)


def test_connect_says_what_it_was_told(talking: Talking) -> None:
    """CONNECT itself was read by the fixture; here is what the connection makes of it."""
    talk = talking(name="orders", versions="1.2", heartbeat=(0.5, 0.25), peer_heartbeat=(0.1, 0.1))
    assert talk.conn.heartbeat == (0.5, 0.25)
    assert repr(talk.conn).startswith("<Connection 127.0.0.1:")


def test_listeners_given_to_connect_hear_the_first_event(talking: Talking) -> None:
    listener = Recorder()
    talking(listeners=[listener])
    listener.await_event("connected")


def run(script: str, url: str) -> str:
    """Run a program of its own to its end and return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", textwrap.dedent(script), url],
        check=True,
        timeout=30,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    return done.stdout


def test_what_send_accepted_is_with_the_broker_when_the_program_ends() -> None:
    script = """
        import sys, stompy
        conn = stompy.connect(sys.argv[1])
        for number in range(2000):
            conn.send("/queue/a", b"%d" % number)
    """
    with Broker() as broker, stompy.connect(broker.url) as conn:
        run(script, broker.url)
        subscription = conn.subscribe("/queue/a")
        assert [subscription.receive(timeout=WITHIN).body for _ in range(2000)] == [
            b"%d" % number for number in range(2000)
        ]
        assert broker.stats().errors == 0


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)"])
def test_a_program_that_leaves_its_connection_open_disconnects_as_it_ends(ending: str) -> None:
    script = f"""
        import sys, threading, stompy
        class Heard(stompy.Listener):
            def on_disconnected(self, event):
                print("disconnected", event.reason)
        conn = stompy.connect(sys.argv[1], listeners=[Heard()], heartbeat=(1, 1))
        subscription = conn.subscribe("/queue/a", print)
        {ending}
    """
    with Broker() as broker:
        assert run(script, broker.url) == "disconnected None\n"


def test_a_listener_is_called_at_the_close_as_the_program_ends() -> None:
    program = """
        import stompy

        class Printing(stompy.Listener):
            def on_disconnected(self, event):
                print("disconnected", event.reason)
            def on_closed(self, event):
                print("closed", event.reason)

        conn = stompy.connect("{url}", listeners=[Printing()])
    """
    with Broker() as broker:
        source = textwrap.dedent(program).format(url=broker.url)
        ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "disconnected None\nclosed None\n", ended.stderr


def test_a_handler_that_never_returns_does_not_keep_the_program_from_ending() -> None:
    script = """
        import sys, threading, stompy
        conn = stompy.connect(sys.argv[1])
        running = threading.Event()
        def handler(message):
            running.set()
            threading.Event().wait()
        conn.subscribe("/queue/a", handler)
        conn.send("/queue/a", "x")
        running.wait(10)
        print("end of the program")
    """
    with Broker() as broker:
        assert run(script, broker.url) == "end of the program\n"


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("max_subscriptions", lambda conn: conn.subscribe("/queue/a")),
        ("max_transactions", lambda conn: conn.transaction().__enter__()),
        ("max_receipts", lambda conn: conn.send_async("/queue/a", "x")),
    ],
)
def test_a_limit_of_our_own_is_named_before_anything_leaves(name: str, act: Any, talking: Talking) -> None:
    settings: dict[str, Any] = {name: 1}
    limits = stompy.Limits(**settings)
    with Broker() as broker, stompy.connect(broker.url, heartbeat=(0, 0), limits=limits) as conn:
        if name == "max_receipts":
            limited = talking(limits=limits)
            act(limited.conn)
            with pytest.raises(stompy.LimitExceededError, match="max_receipts=1"):
                act(limited.conn)
            return
        act(conn)
        sent = conn.stats().frames_sent
        with pytest.raises(stompy.LimitExceededError, match=f"{name}=1"):
            act(conn)
        assert conn.stats().frames_sent == sent


# The first session, as long as it takes


class Patient(Recorder):
    """Keeps the attempts, too."""

    def on_reconnecting(self, event: stompy.ReconnectingEvent) -> None:
        self._note("reconnecting", event.attempt)


@pytest.mark.parametrize(
    "reconnect", [False, QUICK, stompy.Reconnect(attempts=1, backoff=stompy.Backoff(first=0.001, longest=0.01))]
)
def test_a_broker_that_is_not_there_yet_is_waited_for(
    sessions: Sessions, calling: Calling, reconnect: bool | stompy.Reconnect
) -> None:
    """With the delays of the policy, or of the usual one; its number of attempts is about lost links."""
    listener = Patient()
    sessions.shut()
    call = calling(
        lambda: stompy.connect(
            sessions.url,
            timeouts=stompy.Timeouts(start=WITHIN),
            reconnect=reconnect,
            heartbeat=(0, 0),
            listeners=[listener],
        )
    )
    listener.await_event("reconnecting", 3)
    sessions.reopen()
    sessions.next()
    conn = call.result()
    assert conn.connected
    listener.await_event("connected")
    assert listener.events[:3] == [("reconnecting", 2), ("reconnecting", 3), ("reconnecting", 4)]
    conn.close(timeout=0)


def test_a_session_that_dies_at_once_is_followed_by_another(sessions: Sessions, calling: Calling) -> None:
    """As when a container's port is forwarded before the broker listens behind it."""
    call = calling(
        lambda: stompy.connect(sessions.url, timeouts=stompy.Timeouts(start=WITHIN), reconnect=QUICK, heartbeat=(0, 0))
    )
    for _ in range(3):
        sessions.accept().close()
    sessions.next()
    conn = call.result()
    assert conn.connected
    conn.close(timeout=0)


def test_the_time_bounds_an_attempt_too(sessions: Sessions, calling: Calling) -> None:
    """Somebody takes the connection and says nothing: the connect timeout alone would be an hour."""
    call = calling(
        lambda: stompy.connect(sessions.url, timeouts=stompy.Timeouts(start=1, connect=3600.0), heartbeat=(0, 0))
    )
    sessions.accept()
    with pytest.raises(stompy.ConnectTimeoutError):
        call.result()


def test_the_first_session_may_be_waited_for_without_a_limit(sessions: Sessions, calling: Calling) -> None:
    sessions.shut()
    listener = Patient()
    call = calling(
        lambda: stompy.connect(
            sessions.url, timeouts=stompy.Timeouts(start=None), reconnect=QUICK, heartbeat=(0, 0), listeners=[listener]
        )
    )
    listener.await_event("reconnecting", 5)
    sessions.reopen()
    sessions.next()
    with call.result() as conn:
        assert conn.connected


@pytest.mark.parametrize("timeouts", [stompy.Timeouts(), stompy.Timeouts(start=0), stompy.Timeouts(start=0.0, send=1)])
def test_by_default_one_attempt_is_made(sessions: Sessions, timeouts: stompy.Timeouts) -> None:
    sessions.shut()
    listener = Patient()
    with pytest.raises(stompy.ConnectError):
        stompy.connect(sessions.url, timeouts=timeouts, listeners=[listener])
    assert listener.names == []


def test_what_cannot_pass_is_not_waited_for(sessions: Sessions, calling: Calling) -> None:
    call = calling(lambda: stompy.connect(sessions.url, timeouts=stompy.Timeouts(start=3600.0), heartbeat=(0, 0)))
    peer = sessions.accept()
    peer.take_connect()
    peer.raw(peer.encoded("ERROR", {"message": "wrong passcode"}))
    with pytest.raises(stompy.ConnectRefusedError, match="wrong passcode"):
        call.result()


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "30", True])
def test_a_time_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(stompy.ConfigurationError, match=r"timeouts\.start"):
        stompy.connect("stomp://127.0.0.1:1", timeouts=stompy.Timeouts(start=wrong))


def test_waiting_for_the_first_session_ends_by_ctrl_c_and_leaves_no_thread() -> None:
    program = """
        import os, signal, threading
        import stompy

        class Printing(stompy.Listener):
            def on_reconnecting(self, event):
                if event.attempt == 5:
                    os.kill(os.getpid(), signal.SIGINT)

        try:
            stompy.connect("stomp://127.0.0.1:1", timeouts=stompy.Timeouts(start=3600.0), listeners=[Printing()])
        except KeyboardInterrupt:
            print([thread.name for thread in threading.enumerate()])
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "['MainThread']\n", ended.stderr


def test_threads_are_named_after_their_connection(talking: Talking) -> None:
    talk = talking(name="orders", heartbeat=(1, 1), peer_heartbeat=(1, 1))
    name = talk.conn._links._name
    assert name.startswith("orders-")
    names = {thread.name for thread in threading.enumerate() if name in thread.name}
    assert names == {f"stompy-{name}-reader", f"stompy-{name}-heartbeat", f"stompy-{name}-dispatcher"}


def test_a_connect_that_fails_leaves_no_thread(talking: Talking) -> None:
    before = set(threading.enumerate())
    for _ in range(20):
        with pytest.raises(stompy.ConnectError):
            stompy.connect("stomp://127.0.0.1:1")
        assert {thread for thread in threading.enumerate() if thread.name.startswith("stompy-")} <= before


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("username", "did you mean 'login'"),
        ("user", "did you mean 'login'"),
        ("password", "did you mean 'passcode'"),
        ("pascode", "did you mean 'passcode'"),
        ("ssl", "did you mean 'tls'"),
        ("host", "part of the address, such as 'stomp://localhost:61613'"),
        ("port", "part of the address, such as 'stomp://localhost:61613'"),
        ("hearbeat", "did you mean 'heartbeat'"),
        ("virtual_host", "did you mean 'vhost'"),
    ],
)
@pytest.mark.parametrize("call", [stompy.connect, stompy.Worker])
def test_an_option_of_another_name_is_refused_with_the_right_one(call: Any, option: str, hint: str) -> None:
    with pytest.raises(stompy.ConfigurationError, match=rf"has no option '{option}'; .*{hint}") as caught:
        call("stomp://127.0.0.1:1", **{option: "sesame"})
    assert "sesame" not in str(caught.value)


def test_a_connection_is_not_made_by_its_class() -> None:
    with pytest.raises(stompy.ConfigurationError, match=r"made by stompy\.connect\('stomp://"):
        stompy.Connection([("localhost", 61613)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("disconnect", r"close\(\)"),
        ("ack", r"message\.ack\(\)"),
        ("is_connected", "'connected'"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_method_of_another_name_is_named(name: str, hint: str) -> None:
    with Broker() as broker, stompy.connect(broker.url) as conn:
        with pytest.raises(AttributeError, match=hint):
            getattr(conn, name)
        assert not hasattr(conn, name)
        assert name not in dir(conn)


@pytest.mark.parametrize("like", [None, "activemq", "activemq5", "rabbitmq"])
def test_a_body_in_the_place_of_the_destination_is_refused(like: Any) -> None:
    with Broker(like=like) as broker, stompy.connect(broker.url) as conn:
        for send in (conn.send, conn.send_async):
            with pytest.raises(stompy.ConfigurationError, match=r"destination first.*send\('/queue/NAME', 'hello'\)"):
                send("hello")
        conn.send("hello", "x", confirm=True)
        conn.send("/queue/a", confirm=True)


def test_artemis_has_destinations_without_a_slash() -> None:
    with Broker(like="artemis") as broker, stompy.connect(broker.url) as conn:
        conn.send("hello", confirm=True)
