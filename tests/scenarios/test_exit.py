"""What keeps a program from ending, and what is said of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap

import pytest

import stompy
from stompy.broker import Broker
from stompy.transport.tcp import TcpListener
from tests.support.peer import WITHIN, Peer, until

PROGRAM = """
import sys, threading, stompy

connection = stompy.connect(sys.argv[1], heartbeat=(0, 0))
subscription = connection.subscribe("/queue/a")

def loop():
    for message in subscription:
        print(message.text, flush=True)
        if message.text == "over":
            connection.close()

threading.Thread(target=loop, name="consumer", daemon=sys.argv[2] == "daemon").start()
print("main is over", flush=True)
"""


@pytest.mark.parametrize("kind", ["daemon", "thread"])
def test_a_loop_in_a_thread_that_is_no_daemon_runs_on_with_a_warning_that_names_it(kind: str) -> None:
    with Broker() as broker:
        program = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), broker.url, kind],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert program.stdout is not None
            assert program.stderr is not None
            assert program.stdout.readline() == "main is over\n"
            if kind == "thread":
                assert "in thread consumer keeps the program running: close the connection" in program.stderr.readline()
                with stompy.connect(broker.url) as connection:
                    connection.send("/queue/a", "still there", confirm=True)
                    connection.send("/queue/a", "over", confirm=True)
                assert program.stdout.readline() == "still there\n"
            assert program.wait(WITHIN) == 0
            assert program.stderr.read() == ""
            until(lambda: broker.stats().sessions == 0)
        finally:
            program.kill()
            program.communicate()


SEVERAL = """
import sys, stompy

connections = [stompy.connect(sys.argv[1], heartbeat=(0, 0)) for _ in range(60)]
"""


def test_connections_to_a_silent_broker_share_the_time_at_exit() -> None:
    listener = TcpListener()
    host, port = listener.address
    command = [sys.executable, "-c", SEVERAL, f"stomp://{host}:{port}"]
    with subprocess.Popen(command) as program, contextlib.ExitStack() as stack:
        stack.callback(program.kill)
        stack.callback(listener.close)
        peers = []
        for _ in range(60):
            transport = listener.accept()
            assert transport is not None
            stack.callback(transport.close)
            peers.append(Peer(transport))
            peers[-1].greet()
        assert program.wait(WITHIN) == 0  # with two seconds for each connection it would take longer
        for peer in peers:
            peer.expect("DISCONNECT")
