"""From what `connect` is told to a session, and what is done for connections that are left open at the end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import Recorder, Talking
from tests.support.peer import WITHIN


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://broker"},
        {"url": ""},
        {"url": "stomp://broker:0"},
        {"url": "stomp://broker?speed=fast"},
        {"url": "stomp://broker", "versions": "3.0"},
        {"url": "stomp://broker", "heartbeat": (-1, 0)},
        {"url": "stomp://broker", "connect_timeout": 0},
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
        assert [subscription.receive(WITHIN).body for _ in range(2000)] == [b"%d" % number for number in range(2000)]
        assert broker.stats().errors == 0


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)"])
def test_a_program_that_leaves_its_connection_open_ends_and_says_goodbye(ending: str) -> None:
    script = f"""
        import sys, threading, stompy
        class Heard(stompy.ConnectionListener):
            def on_disconnected(self, reason):
                print("disconnected", reason)
        conn = stompy.connect(sys.argv[1], listeners=[Heard()], heartbeat=(1, 1))
        subscription = conn.subscribe("/queue/a", print)
        {ending}
    """
    with Broker() as broker:
        assert run(script, broker.url) == "disconnected None\n"


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
        ("max_receipts", lambda conn: conn.send("/queue/a", "x", receipt=True)),
    ],
)
def test_a_limit_of_our_own_is_named_before_anything_leaves(name: str, act: Any, talking: Talking) -> None:
    limits: dict[str, Any] = {name: 1}
    with Broker() as broker, stompy.connect(broker.url, heartbeat=(0, 0), **limits) as conn:
        if name == "max_receipts":
            limited = talking(**limits)
            act(limited.conn)
            with pytest.raises(stompy.LimitExceeded, match="max_receipts=1"):
                act(limited.conn)
            return
        act(conn)
        sent = conn.stats().frames_sent
        with pytest.raises(stompy.LimitExceeded, match=f"{name}=1"):
            act(conn)
        assert conn.stats().frames_sent == sent
