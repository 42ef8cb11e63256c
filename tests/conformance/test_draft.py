"""The 1.0-draft, a profile of its own: both sides must be set to it."""

from __future__ import annotations

import pytest

from stompy.errors import LocalProtocolError
from stompy.protocol.client import ClientProtocol
from stompy.protocol.server import ServerProtocol
from stompy.protocol.state import subscription_key
from tests.protocol.exchange import DRAFT, client_of, commands, pair_of, refused, server_of, wire


@pytest.mark.requirement("D10-13", "D10-14", "A-25", "D10-07", "D10-03", "CON-01")
def test_the_draft_connects_with_username_and_passcode() -> None:
    client = ClientProtocol(versions=(DRAFT,))
    data = client.connect(host="h", login="fred", passcode="xyzzy")
    assert data == b"CONNECT\nusername:fred\npasscode:xyzzy\ncontent-length:0\n\n\0"
    assert ClientProtocol(versions=(DRAFT,)).connect(host="h").startswith(b"CONNECT\nusername:\npasscode:\n")


@pytest.mark.requirement("D10-07")
def test_the_drafts_own_headers_are_not_given_by_hand_in_any_case() -> None:
    with pytest.raises(LocalProtocolError, match="'UserName'"):
        ClientProtocol(versions=(DRAFT,)).connect(host="h", headers={"UserName": "x"})


@pytest.mark.requirement("D10-15", "CON-16")
def test_the_draft_needs_a_session_in_connected() -> None:
    client = ClientProtocol(versions=(DRAFT,))
    client.connect(host="h")
    assert client.receive(b"CONNECTED\n\n\0") == []
    assert str(client.error) == "a CONNECTED frame needs a 'session' header in STOMP 1.0-draft (CONNECTED)"
    client = client_of(DRAFT)
    assert (client.version, client.session) == (DRAFT, "s")


@pytest.mark.requirement("D10-01", "D10-02", "D10-03", "D10-05", "D10-07", "D10-19", "D10-20")
def test_the_draft_folds_case_and_strips_for_a_client() -> None:
    client = client_of(DRAFT)
    data = b"\n\nreceipt\nReceipt-ID: foo9876 \r\n \nignored\0\nReceipt\nreceipt-id: b\n\n\0"
    frames = client.receive(data)
    assert client.error is None
    assert [(frame.command, frame.headers["receipt-id"], frame.body) for frame in frames] == [
        ("RECEIPT", "foo9876", b""),
        ("RECEIPT", "b", b""),
    ]


@pytest.mark.requirement("D10-21", "D10-10", "D10-07", "D10-22", "D10-12")
def test_the_draft_counts_every_body() -> None:
    client = client_of(DRAFT)
    assert client.send("SEND", {"destination": "/q"}) == b"SEND\ndestination:/q\ncontent-length:0\n\n\0"
    assert client.send("SEND", {"destination": "/q", "X-Id": "7"}, "é".encode()) == (
        "SEND\ndestination:/q\nx-id:7\ncontent-length:2\n\né\0".encode()
    )


@pytest.mark.requirement("D10-08")
def test_a_control_character_is_no_header_of_the_draft() -> None:
    client = client_of(DRAFT)
    with pytest.raises(LocalProtocolError, match=r"1\.0-draft"):
        client.send("SEND", {"destination": "a\tb"})
    assert client.receive(wire("RECEIPT", {"receipt-id": "a\tb"})) == []
    assert "control character" in str(client.error)


@pytest.mark.requirement("D10-13", "D10-14", "D10-05", "A-25", "D10-15")
def test_the_draft_wants_username_and_passcode() -> None:
    server = ServerProtocol(versions=(DRAFT,))
    (frame,) = server.receive(b"\n\nconnect\nUserName: fred\nPassCode: xyzzy \r\n\nignored\0")
    assert (frame.command, dict(frame.headers), frame.body) == (
        "CONNECT",
        {"username": "fred", "passcode": "xyzzy"},
        b"",
    )
    assert server.connected("s-1") == b"CONNECTED\nsession:s-1\ncontent-length:0\n\n\0"
    for missing, data in [("username", {"passcode": "x", "login": "u"}), ("passcode", {"username": "u"})]:
        why = refused(ServerProtocol(versions=(DRAFT,)), wire("CONNECT", data))
        assert why == f"a CONNECT frame needs a {missing!r} header in STOMP 1.0-draft (CONNECT)"


@pytest.mark.requirement("D10-03", "D10-07", "D10-01", "A-01", "A-02")
def test_the_draft_folds_case_and_strips_for_a_broker() -> None:
    server = server_of(DRAFT)
    (frame,) = server.receive(b"send\nDestination:/q \r\n\r\nx\0")
    assert (frame.command, frame.headers["destination"], frame.body) == ("SEND", "/q", b"x")


@pytest.mark.requirement("D10-04")
def test_the_draft_allows_nothing_behind_the_command() -> None:
    assert "not a STOMP command line" in refused(server_of(DRAFT), b"SEND x\ndestination:/q\n\n\0")


@pytest.mark.requirement("D10-18")
@pytest.mark.parametrize("command", ["NACK", "STOMP", "nack"])
def test_the_draft_has_neither_nack_nor_stomp(command: str) -> None:
    why = refused(server_of(DRAFT), wire(command, {"message-id": "1"}))
    assert why == f"unknown command {command.upper()!r} in STOMP 1.0-draft (Client Frames)"


@pytest.mark.requirement("D10-17", "D10-16", "D10-22")
def test_the_draft_from_connect_to_disconnect() -> None:
    client, server = pair_of(DRAFT)
    assert server.heartbeats.send is None
    (frame,) = server.receive(client.send("SUBSCRIBE", {"destination": "/q"}))
    assert subscription_key(frame.headers.get) == "@/q"
    (message,) = client.receive(server.send("MESSAGE", {"destination": "/q", "message-id": "1"}, b"hello, world!"))
    assert message.body == b"hello, world!"
    assert commands(server.receive(client.send("ACK", {"message-id": "1"}))) == ["ACK"]
    assert commands(server.receive(client.send("DISCONNECT", {"receipt": "r"}))) == ["DISCONNECT"]
    assert commands(client.receive(server.send("RECEIPT", {"receipt-id": "r"}))) == ["RECEIPT"]
