"""What a broker says cannot forge a line of a log, nor reach a terminal as an order."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Iterator

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.printable import printable
from stompy.transport.address import parse_addresses
from tests.support.answering import answering
from tests.support.peer import until, wire

EVIL = r"x\nCRITICAL:root:forged" + "\x1b]0;owned\x07\x9b2J\x7f\u202egnp\u2028\u2066\r"
"""In a header: the line end is escaped by STOMP's own rules, the rest may stand there as it is."""
CONNECTED = wire("CONNECTED", {"version": "1.1", "server": f"evil/{EVIL}", "session": EVIL})
"""Version 1.1, whose headers may end in a CR."""


HEADER = "x\nCRITICAL:root:forged\x1b[2J\x9b2J\u202egnp\u2028"
"""The same for a sender, whose library does the escaping."""


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger="stompy"):
        yield caplog
    form = logging.Formatter("%(levelname)s:%(name)s:%(message)s")
    for record in caplog.get_records("call"):
        assert_harmless(form.format(record), traceback=record.exc_info is not None)


def assert_harmless(text: str, *, traceback: bool = False) -> None:
    assert text == printable(text, keep="\n" * traceback)
    assert not any(line.startswith("CRITICAL") for line in text.splitlines())


def assert_error_harmless(error: BaseException) -> None:
    assert "CRITICAL" in str(error), "what the broker said should be there"
    for text in (str(error), repr(error), *map(str, error.args)):
        assert_harmless(text)
    assert_harmless("".join(traceback.format_exception(error)), traceback=True)


def test_a_refusal_of_the_session() -> None:
    with (
        answering(wire("ERROR", {"message": EVIL}, EVIL.encode())) as url,
        pytest.raises(stompy.ConnectError) as caught,
    ):
        stompy.connect(url, heartbeat=(0, 0))
    assert_error_harmless(caught.value)


def test_an_answer_that_is_no_frame() -> None:
    with answering(EVIL.encode() + b"\n\n\0") as url, pytest.raises(stompy.ConnectError) as caught:
        stompy.connect(url, heartbeat=(0, 0))
    assert_error_harmless(caught.value)


def test_frames_of_a_session(log: pytest.LogCaptureFixture) -> None:
    frames = (
        wire("MESSAGE", {"destination": EVIL, "message-id": EVIL, "subscription": "none" + EVIL}, EVIL.encode()),
        wire("RECEIPT", {"receipt-id": EVIL}),
        wire("ERROR", {"message": EVIL, "receipt-id": EVIL}, EVIL.encode()),
    )
    with answering(CONNECTED, b"".join(frames)) as url, stompy.connect(url, heartbeat=(0, 0)) as conn:
        conn.send("/queue/a", "x")
        until(lambda: not conn.connected)
        with pytest.raises(stompy.BrokerError) as caught:
            conn.send("/queue/a", "x")
    assert_error_harmless(caught.value)
    assert "CRITICAL" in log.text


def test_a_message_that_cannot_be_read(log: pytest.LogCaptureFixture) -> None:
    kind = f"text/plain;charset={HEADER}"
    errors: list[Exception] = []

    def handler(message: stompy.Message) -> None:
        try:
            message.text  # noqa: B018
        except stompy.BodyDecodeError as error:
            errors.append(error)
            raise

    with Broker() as broker, stompy.connect(broker.url, heartbeat=(0, 0)) as conn:
        conn.subscribe(f"/queue/{HEADER}", handler)
        conn.send(f"/queue/{HEADER}", HEADER.encode(), headers={"x": HEADER}, content_type=kind)
        until(lambda: "raised for message" in log.text)
    assert_error_harmless(errors[0])


@pytest.mark.parametrize(
    "frame",
    [
        wire("ACK", {"id": EVIL, "message-id": EVIL, "subscription": EVIL}),
        wire("UNSUBSCRIBE", {"id": EVIL}),
        wire("COMMIT", {"transaction": EVIL}),
        wire("SEND", {"destination": EVIL, "content-length": EVIL}),
        wire("SEND", {"destination": EVIL, "transaction": EVIL}),
        wire("SUBSCRIBE", {"destination": EVIL, "id": "1", "ack": EVIL}),
        wire("SEND", {EVIL: "\\x"}),
        wire(EVIL),
    ],
    ids=["ack", "unsubscribe", "commit", "length", "transaction", "mode", "header", "command"],
)
def test_what_a_client_says_to_the_embedded_broker(frame: bytes, log: pytest.LogCaptureFixture) -> None:
    with Broker() as broker, socket.create_connection(("127.0.0.1", parse_addresses(broker.url)[0].port)) as client:
        client.sendall(wire("CONNECT", {"accept-version": "1.1", "host": "h"}) + frame)
        while client.recv(65536):
            pass
    assert "ended with ERROR" in log.text


def test_a_login_that_is_refused() -> None:
    with (
        Broker(users={"ann": "x"}, limits=BrokerLimits(login_delay=0)) as broker,
        pytest.raises(stompy.ConnectRefusedError) as caught,
    ):
        stompy.connect(broker.url, login=EVIL[:-1], passcode="x", versions="1.1")
    assert_harmless(str(caught.value))
