"""A log record, with what `extra` adds to it, has at most 1 kB, however large the frame is that it is about."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

import pytest

import stompy
from stompy.broker import Broker
from stompy.compat.connect import StompConnection12
from stompy.frames.frame import Frame
from stompy.transport.tcp import TcpListener
from tests.support.peer import WITHIN, Peer, until

MOST = 1024
LARGE = 200_000
CHARACTERS = ("x", "\\", "\N{GRINNING FACE}", "\x1b", "\ud800")


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.DEBUG, "stompy")

    def shown() -> list[str]:
        return [
            " ".join([record.getMessage(), *(str(value) for name, value in vars(record).items() if "stompy_" in name)])
            for record in caplog.records
        ]

    return shown


def check(lines: list[str]) -> None:
    longest = max(lines, key=len)
    assert len(longest) <= MOST, (len(longest), longest[:200])


@pytest.mark.parametrize("character", CHARACTERS)
def test_a_frame_is_shown_in_part_with_its_sizes(character: str) -> None:
    text = character * LARGE
    shown = repr(
        Frame(
            "MESSAGE",
            {"first": "1", "large": text, "secret": text, **dict.fromkeys(map(str, range(999)), text)},
            text.encode("utf-8", "surrogatepass"),
        )
    )
    assert len(shown) <= MOST
    assert "'first': '1'" in shown
    assert f"({LARGE} characters)" in shown
    assert "(1002 headers)" in shown
    assert f"({len(text.encode('utf-8', 'surrogatepass'))} bytes)" in shown


def test_a_frame_of_usual_size_is_shown_whole() -> None:
    assert repr(Frame("SEND", {"destination": "/queue/a", "passcode": "x"}, b"hello")) == (
        "<Frame SEND Headers({'destination': '/queue/a', 'passcode': '***'}) b'hello'>"
    )
    assert repr(Frame("SEND")) == "<Frame SEND Headers({}) b''>"


def test_what_client_and_broker_log_of_large_frames(records: Callable[[], list[str]]) -> None:
    large = "x" * 60_000
    with Broker() as broker, stompy.connect(broker.url) as connection:

        def handler(message: stompy.Message) -> None:
            raise ValueError

        destination = "/queue/" + large[:30_000]
        subscription = connection.subscribe(destination, handler, ack="client-individual", id=large)
        connection.send(destination, bytes(LARGE), headers={"large": large}, confirm=True)
        until(lambda: any("raised for message" in line for line in records()))
        old = StompConnection12([("127.0.0.1", int(broker.url.rpartition(":")[2]))])
        old.connect(wait=True)
        old.send(destination, large, headers={"large": large})
        old.disconnect("end")
        subscription.close()
        with contextlib.suppress(stompy.StompError):
            connection.send("/queue/a,/topic/*" + large, confirm=True)
    check(records())


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("RECEIPT", ["receipt-id"]),
        ("MESSAGE", ["destination", "message-id", "subscription"]),
        ("MESSAGE", ["destination", "message-id", "other"]),
        ("ERROR", ["message", "receipt-id"]),
    ],
)
def test_what_a_client_logs_of_a_peer_that_says_too_much(
    records: Callable[[], list[str]], command: str, names: list[str]
) -> None:
    listener = TcpListener()
    over = threading.Event()

    def serve() -> None:
        transport = listener.accept()
        assert transport is not None
        peer = Peer(transport)
        peer.greet()
        peer.say(command, dict.fromkeys(names, "x" * 60_000), bytes(LARGE) if command != "RECEIPT" else b"")
        peer.raw(b"BROKEN " + b"y" * 1000 + b"\n\n\0")
        over.wait(WITHIN)
        transport.close()

    server = threading.Thread(target=serve)
    server.start()
    with (
        contextlib.suppress(stompy.StompError),
        stompy.connect(f"stomp://127.0.0.1:{listener.address[1]}") as connection,
    ):
        until(lambda: not connection.connected)
        over.set()
    over.set()
    server.join(WITHIN)
    listener.close()
    check(records())
