"""A session whose owner decides which frame is sent when."""

from __future__ import annotations

import pytest

from stompy.errors import LocalProtocolError
from stompy.frames.grammar import Version
from stompy.protocol.heartbeat import Heartbeats
from stompy.protocol.unchecked import UncheckedClient

CONNECT = [("accept-version", "1.1"), ("heart-beat", "100,200")]


def connected(version: str = "1.1", *lines: str) -> UncheckedClient:
    client = UncheckedClient()
    client.encode("STOMP", CONNECT)
    client.receive("\n".join(["CONNECTED", f"version:{version}", *lines, "", "\0"]).encode())
    assert client.negotiated
    return client


def test_frames_before_connected_are_written_in_the_offered_version() -> None:
    client = UncheckedClient()
    assert client.encode("STOMP", CONNECT) == b"STOMP\naccept-version:1.1\nheart-beat:100,200\n\n\0"
    assert client.encode("SEND", [("a", "\r:")], b"x") == b"SEND\na:\r\\c\ncontent-length:1\n\nx\0"


def test_frames_after_connected_are_written_in_the_version_of_the_broker() -> None:
    assert connected("1.2").encode("SEND", [("a", "\r")]) == b"SEND\na:\\r\n\n\0"
    assert connected("1.0").encode("SEND", [("a", ":")]) == b"SEND\na::\n\n\0"


def test_any_ids_and_no_required_headers_are_allowed() -> None:
    client = connected()
    for _ in range(2):
        client.encode("SUBSCRIBE", [("id", "1")])
    client.encode("ACK", [])
    client.encode("COMMIT", [("transaction", "never begun")])
    client.encode("DISCONNECT", [])
    client.encode("ACK", [])
    (frame,) = client.receive(b"MESSAGE\n\nx\0")
    assert (frame.body, client.error) == (b"x", None)


def test_what_the_version_cannot_express_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        connected("1.0").encode("SEND", [("a", "b\nc:d")])


def test_heartbeats_are_negotiated_from_what_was_written() -> None:
    assert connected("1.1", "heart-beat:300,400").heartbeats == Heartbeats(0.4, 0.3)
    assert connected("1.1", "heart-beat:none").heartbeats == Heartbeats()


def test_a_server_that_names_no_version_speaks_1_0_unless_it_has_heartbeats() -> None:
    for lines, version in (("", Version.V1_0), ("heart-beat:0,0\n", Version.V1_1)):
        client = UncheckedClient()
        client.encode("STOMP", CONNECT)
        client.receive(f"CONNECTED\n{lines}\n\0".encode())
        assert client.version is version


def test_an_error_does_not_end_the_session() -> None:
    client = connected()
    assert [frame.command for frame in client.receive(b"ERROR\n\n\0RECEIPT\nreceipt-id:1\n\n\0")] == [
        "ERROR",
        "RECEIPT",
    ]


def test_frames_before_connected_are_read() -> None:
    client = UncheckedClient()
    frames = client.receive(b"MESSAGE\n\nx\0") + client.receive(b"CONNECTED\nversion:1.2\n\n\0MESSAGE\n\ny\0")
    assert [frame.command for frame in frames] == ["MESSAGE", "CONNECTED", "MESSAGE"]


def test_many_different_heads_are_forgotten() -> None:
    client = connected()
    for number in range(250):
        assert client.encode("SEND", [("n", str(number))]) == f"SEND\nn:{number}\n\n\0".encode()
    assert client.encode("SEND", [("n", "1" * 2000)]) == b"SEND\nn:" + b"1" * 2000 + b"\n\n\0"
