from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading

import pytest

import stompy
from stompy.broker import Broker
from stompy.transport.diagnosis import GREETING_SIZE, describe_lookup_error, describe_os_error, detect_protocol
from tests.support.answering import answering
from tests.support.peer import WITHIN

GREETINGS = [
    ("OpenWire", b"\0\0\x01\x2f\x01ActiveMQ\0\0\0\x0c\x01\0\0"),
    ("OpenWire", b"\x01ActiveMQ\0\0\0\x0c"),
    ("AMQP", b"AMQP\0\0\x09\x01"),
    ("AMQP", b"AMQP\x03\x01\0\0"),
    ("HTTP", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
    ("MQTT", b"\x20\x02\x00\x01"),
    ("MQTT", b"\xe0\x01\x81"),
]
"""What a peer of each protocol answers to bytes that it cannot read."""


@pytest.mark.parametrize(("protocol", "answer"), [*GREETINGS, ("TLS", b"\x15\x03\x03\x00\x02\x02\x46"), ("TLS", b"\x16\x03\x01")])  # fmt: skip # noqa: E501
def test_a_protocol_is_known_by_how_its_peers_begin(protocol: str, answer: bytes) -> None:
    assert detect_protocol(answer[:GREETING_SIZE]) == protocol


@pytest.mark.parametrize("start", [b"ERROR\nmessage:x", b"ERROR\r\nmessage:x"])
def test_an_answer_of_stomp_is_stomp(start: bytes) -> None:
    assert detect_protocol(start) == "STOMP"


@pytest.mark.parametrize(
    "start", [b"", b"\n", b"\n\n\n\n", b"CONNECTED\nversion:", b" ", b"AM", b"\x20\x20abc", b"220 "]
)
def test_the_rest_is_not_guessed_at(start: bytes) -> None:
    assert detect_protocol(start) is None


@pytest.mark.parametrize("scheme", ["stomp", "stomp+ssl"])
@pytest.mark.parametrize(("protocol", "answer"), GREETINGS)
def test_a_wrong_port_is_reported_by_the_protocol_that_answered(scheme: str, protocol: str, answer: bytes) -> None:
    wanted = "STOMP" if scheme == "stomp" else "TLS"
    with (
        answering(answer) as url,
        pytest.raises(OSError, match=rf"speaks {protocol} on this port, not {wanted}") as caught,
    ):
        stompy.connect(url.replace("stomp", scheme), timeouts=stompy.Timeouts(connect=5))
    assert isinstance(caught.value, stompy.ConnectError)
    assert caught.value.errno is None


def test_a_greeting_that_comes_byte_by_byte_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WITHIN)

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(ConnectionError):
                    for byte in b"HTTP/1.1 400 Bad Request":
                        peer.sendall(bytes([byte]))
                    while peer.recv(65536):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(stompy.ConnectError, match="speaks HTTP on this port"):
            stompy.connect(f"stomp://127.0.0.1:{server.getsockname()[1]}", timeouts=stompy.Timeouts(connect=5))
        thread.join()


def test_a_tls_client_at_a_plain_broker_gets_the_reason() -> None:
    wanted = r"speaks STOMP on this port, not TLS \(stomp://"
    with Broker() as broker, pytest.raises(stompy.TlsError, match=wanted) as caught:
        stompy.connect(broker.url.replace("stomp://", "stomp+ssl://"), timeouts=stompy.Timeouts(connect=5))
    assert caught.value.reason == "not-tls"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ECONNREFUSED, "connection refused"),
        (errno.ECONNRESET, "connection reset by the peer"),
        (errno.EHOSTUNREACH, "no route to the host"),
        (errno.EADDRINUSE, "the address is already in use"),
    ],
)
def test_common_faults_are_in_plain_language(code: int, message: str) -> None:
    assert describe_os_error(OSError(code, os.strerror(code))) == message


def test_other_faults_keep_the_systems_message() -> None:
    assert describe_os_error(OSError(errno.ENOTDIR, "Not a directory")) == "Not a directory"
    assert describe_os_error(OSError("odd")) == "odd"
    assert describe_os_error(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (socket.EAI_NONAME, "host name not found: h.example"),
        (socket.EAI_AGAIN, "the name service gave no answer for h.example; it may do so later"),
        (socket.EAI_FAIL, "host name lookup failed for h.example: broken"),
    ],
)
def test_lookup_faults_name_the_host(code: int, message: str) -> None:
    assert describe_lookup_error(socket.gaierror(code, "broken"), host="h.example") == message


def test_lookup_faults_that_are_not_the_name_services_keep_their_message() -> None:
    assert describe_lookup_error(OSError(errno.EMFILE, "x"), host="h") == (
        "host name lookup failed for h: too many open files in this process"
    )
