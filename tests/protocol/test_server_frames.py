"""The server's side after the handshake: the order of frames, answers and ERROR."""

from __future__ import annotations

import pytest

from stompy.errors import FrameTooLargeError, LocalProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import FrameLimits, Version
from stompy.protocol.client import ClientProtocol
from stompy.protocol.server import ServerProtocol
from stompy.protocol.state import State
from tests.protocol.exchange import (
    ALL,
    CONNECT_OF,
    DRAFT,
    MODERN,
    V1_0,
    V1_1,
    V1_2,
    client_of,
    commands,
    refused,
    server_of,
    wire,
)
from tests.protocol.test_server import MESSAGE, SEND


def parsed(data: bytes, version: Version) -> Frame:
    """Return the one frame in `data` as a client reads it; an ERROR may come before CONNECTED."""
    client = client_of(version)
    (frame,) = client.receive(data)
    return frame


# --------------------------------------------------------------------------------------------------- order of frames


@pytest.mark.requirement("CON-01", "CON-23", "D10-17")
@pytest.mark.parametrize("version", ALL, ids=str)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "DISCONNECT", "ACK"])
def test_the_first_frame_is_connect(version: Version, command: str) -> None:
    server = ServerProtocol(versions=(version,))
    why = refused(server, wire(command, {"destination": "/q", "id": "1"}))
    assert why == f"a {command} frame is not allowed: no CONNECT was sent yet (Connecting)"
    assert server.fail(why, offender=server.offender).startswith(b"ERROR\n")


@pytest.mark.requirement("CON-02")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_second_connect_is_refused(version: Version) -> None:
    why = refused(server_of(version), wire("CONNECT", CONNECT_OF[version]))
    assert why == "a CONNECT frame is not allowed: the session is open (Connecting)"


@pytest.mark.requirement("DIS-03", "DIS-07", "DIS-02")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_no_frame_may_come_after_disconnect_but_the_receipt_goes_out(version: Version) -> None:
    server = server_of(version)
    disconnect = wire("DISCONNECT", {"receipt": "77"})
    assert commands(server.receive(disconnect + b"\n" + wire("SEND", SEND))) == ["DISCONNECT"]
    assert str(server.error) == "a SEND frame is not allowed: DISCONNECT was sent (Connecting)"
    assert parsed(server.send("RECEIPT", {"receipt-id": "77"}), version).headers["receipt-id"] == "77"
    server.end()
    assert server.state is State.CLOSED


@pytest.mark.requirement("FRM-13", "SRV-10", "BNF-12", "ACK-14", "FRM-07", "A-01")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_an_unknown_command_is_refused(version: Version) -> None:
    names = ["FOO", "MESSAGE", "CONNECTED", "RECEIPT", "ERROR"]
    names += ["send"] if version is not DRAFT else []
    names += [] if version in MODERN else ["NACK"]
    for command in names:
        server = server_of(version)
        why = refused(server, wire(command, {"destination": "/q"}) + wire("SEND", SEND))
        assert why == f"unknown command {command!r} in STOMP {version} (Client Frames)"
        assert server.offender is not None
        assert server.offender.command == command


def test_after_an_error_nothing_is_accepted_and_the_error_stays() -> None:
    server = server_of(V1_2)
    assert commands(server.receive(wire("SEND", SEND) + wire("SEND") + wire("SEND", SEND))) == ["SEND"]
    first = server.error
    assert server.receive(wire("FOO")) == []
    assert server.error is first is not None
    assert server.accept([Frame("SEND", SEND)]) == []


def test_after_fail_whatever_the_client_says_is_ignored() -> None:
    server = server_of(V1_2)
    server.fail("shutting down")
    assert server.receive(wire("SEND", SEND) + b"garbage\0") == []
    assert server.accept([Frame("SEND", SEND)]) == []
    assert server.error is None


def test_parser_and_accept_apart_do_what_receive_does() -> None:
    server = server_of(V1_2)
    frames = server.parser.feed(wire("SEND", SEND) + b"GET / HTTP/1.1\n\n\0")
    assert commands(server.accept(frames)) == ["SEND"]
    assert server.error is server.parser.error is not None
    assert server.offender is None


# ------------------------------------------------------------------------------------------------- what is answered


@pytest.mark.requirement("RCP-02", "SRV-08", "SRV-09", "D10-19")
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_a_receipt_id_comes_back_as_it_was(version: Version) -> None:
    server = server_of(version)
    (frame,) = server.receive(b"SEND\ndestination:/q\nreceipt:m\\c1\n\n\0")
    assert server.send("RECEIPT", {"receipt-id": frame.headers["receipt"]}) == b"RECEIPT\nreceipt-id:m\\c1\n\n\0"


@pytest.mark.requirement("SRV-09", "BDY-01")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_receipt_has_no_body(version: Version) -> None:
    with pytest.raises(LocalProtocolError, match="must not have a body"):
        server_of(version).send("RECEIPT", {"receipt-id": "1"}, b"x")


@pytest.mark.requirement("BDY-06", "BDY-07", "SRV-02")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_message_with_a_body_counts_it(version: Version) -> None:
    data = server_of(version).send("MESSAGE", MESSAGE, b"a\0b")
    assert b"\ncontent-length:3\n" in data
    assert parsed(data, version).body == b"a\0b"


@pytest.mark.requirement("SRV-06", "A-44")
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_a_message_that_waits_for_an_ack_says_so_in_1_2(version: Version, mode: str) -> None:
    server = server_of(version)
    server.receive(wire("SUBSCRIBE", {"destination": "/q", "id": "0", "ack": mode}))
    without = {name: value for name, value in MESSAGE.items() if name != "ack"}
    if version is V1_2 and mode != "auto":
        with pytest.raises(LocalProtocolError, match="needs an 'ack' header"):
            server.send("MESSAGE", without)
    else:
        assert server.send("MESSAGE", without)
    assert server.send("MESSAGE", MESSAGE)
    assert server.send("MESSAGE", {**without, "subscription": "gone"})


@pytest.mark.requirement("SUB-04")
def test_a_message_of_1_0_names_its_subscription_only_where_it_has_an_id() -> None:
    without = {"destination": "/q", "message-id": "1"}
    assert b"subscription" not in server_of(V1_0).send("MESSAGE", without)
    assert b"\nsubscription:0\n" in server_of(V1_0).send("MESSAGE", {**without, "subscription": "0"})


@pytest.mark.requirement("SRV-01", "BNF-12")
@pytest.mark.parametrize("command", ["CONNECTED", "ERROR", "SEND", "FOO", "DISCONNECT"])
def test_send_writes_message_and_receipt_only(command: str) -> None:
    connecting = ServerProtocol()
    connecting.receive(wire("CONNECT", CONNECT_OF[V1_2]))
    for server in (server_of(V1_2), connecting):
        with pytest.raises(LocalProtocolError, match=f"'{command}' is neither MESSAGE nor RECEIPT"):
            server.send(command, {"destination": "/q"})


@pytest.mark.requirement("CON-02", "SRV-11")
def test_nothing_is_sent_before_connected_or_after_error_or_the_end() -> None:
    connecting, failed, ended = ServerProtocol(), server_of(V1_2), server_of(V1_2)
    connecting.receive(wire("CONNECT", CONNECT_OF[V1_2]))
    failed.fail("no")
    ended.end()
    for server in (ServerProtocol(), connecting, failed, ended):
        for command in ("MESSAGE", "RECEIPT"):
            with pytest.raises(LocalProtocolError, match=f"{command} cannot be sent:"):
                server.send(command, {**MESSAGE, "receipt-id": "1"})


# ----------------------------------------------------------------------------------------------------------- ERROR


@pytest.mark.requirement("SRV-11", "A-15", "SRV-12")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_error_is_sent_once_and_last(version: Version) -> None:
    server = server_of(version)
    server.fail("no")
    with pytest.raises(LocalProtocolError, match="ERROR cannot be sent: the session failed"):
        server.fail("no")
    server.end()
    with pytest.raises(LocalProtocolError, match="ERROR cannot be sent: the stream ended"):
        server.fail("no")


@pytest.mark.requirement("SRV-13", "SRV-14", "SRV-15", "SRV-16", "BDY-07", "BDY-11", "SND-07", "SUB-10", "SRV-10")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_an_error_says_what_about_which_frame_and_whose_receipt(version: Version) -> None:
    server = server_of(version)
    refused(server, wire("SEND", {"receipt": "m1"}))
    frame = parsed(server.fail(str(server.error), offender=server.offender, detail="more"), version)
    assert frame.headers["message"] == f"a SEND frame needs a 'destination' header in STOMP {version} (SEND)"
    assert frame.headers["receipt-id"] == "m1"
    assert frame.headers["content-type"] == "text/plain"
    assert frame.headers["content-length"] == str(len(frame.body))
    assert frame.body.decode() == f"{server.error}\nThe frame was SEND.\nmore"
    assert "version" not in frame.headers


@pytest.mark.requirement("SRV-14", "SRV-16")
def test_an_error_about_no_frame_names_none() -> None:
    frame = parsed(server_of(V1_2).fail("shutting down"), V1_2)
    assert ("receipt-id" in frame.headers, frame.body) == (False, b"shutting down\n")
    frame = parsed(server_of(V1_2).fail("no", offender=Frame("SEND")), V1_2)
    assert "receipt-id" not in frame.headers


@pytest.mark.requirement("SRV-16", "ESC-04")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_receipt_id_of_an_error_comes_back_as_it_was(version: Version) -> None:
    frame = Frame("SEND", {"receipt": "a:b\\c"})
    assert parsed(server_of(version).fail("m:n\\o", offender=frame), version).headers["receipt-id"] == "a:b\\c"
    assert parsed(server_of(version).fail("m:n\\o"), version).headers["message"] == "m:n\\o"


@pytest.mark.requirement("SRV-16")
def test_a_receipt_id_that_1_0_cannot_write_back_is_left_out() -> None:
    server = server_of(V1_0)
    refused(server, b"SEND\nreceipt:a\r\r\n\n\0")
    assert server.offender is not None
    assert server.offender.headers["receipt"] == "a\r"
    assert "receipt-id" not in parsed(server.fail("no", offender=server.offender), V1_0).headers
    assert parsed(server_of(V1_1).fail("no", offender=server.offender), V1_1).headers["receipt-id"] == "a\r"


@pytest.mark.requirement("SRV-13")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_any_message_can_be_sent(version: Version) -> None:
    words = " line\r\nbreak \0 tab\t\x1b[0m \udcff é "
    for server in (ServerProtocol(versions=(version,)), server_of(version)):
        data = server.fail(words)
        client = ClientProtocol(versions=(version,))
        if server.version is not None:
            client = client_of(version)
        (frame,) = client.receive(data)
        assert frame.headers["message"] == "line  break   tab  [0m ? é"
        assert frame.body.decode().startswith(" line\r\nbreak \0 tab")


@pytest.mark.requirement("A-14", "CON-04", "A-23")
def test_an_error_before_a_version_is_known_keeps_its_headers_free_of_what_could_be_misread() -> None:
    server = ServerProtocol()
    data = server.fail("who: a\\b\r\nc", offender=Frame("SEND", {"receipt": "1"}))
    head, _, body = data.partition(b"\n\n")
    assert head.split(b"\n")[:4] == [
        b"ERROR",
        b"message:who  a b  c",
        b"version:1.0,1.1,1.2",
        b"content-type:text/plain",
    ]
    assert body.startswith(b"who: a\\b\r\nc\n")


@pytest.mark.requirement("A-14", "CON-04", "A-23", "ESC-01")
@pytest.mark.parametrize(
    ("version", "line"),
    [(V1_0, b"message:who: a b  c"), (V1_1, rb"message:who\c a\\b  c"), (V1_2, rb"message:who\c a\\b  c")],
    ids=str,
)
def test_an_error_instead_of_connected_is_written_in_the_version_that_connect_settled(
    version: Version, line: bytes
) -> None:
    server, client = ServerProtocol(), ClientProtocol(versions=(version,))
    (frame,) = server.receive(client.connect(host="h"))
    data = server.fail("who: a\\b\r\nc", offender=frame)
    assert data.split(b"\n")[1:3] == [line, b"version:1.0,1.1,1.2"]
    (error,) = client.receive(data)
    assert error.headers["message"].startswith("who: a")


@pytest.mark.requirement("LIM-01", "LIM-02")
@pytest.mark.parametrize("version", ALL, ids=str)
@pytest.mark.parametrize(
    ("limits", "fine", "too_much", "name"),
    [
        (
            FrameLimits(max_headers=10),
            wire("SEND", [("destination", "/q")] * 10),
            wire("SEND", [("destination", "/q")] * 11),
            "max_headers",
        ),
        (
            FrameLimits(max_header_line=20),
            wire("SEND", {"destination": "/q" * 4}),
            b"SEND\ndestination:" + b"x" * 20,
            "max_header_line",
        ),
        (
            FrameLimits(max_body=3),
            wire("SEND", SEND, b"abc"),
            b"SEND\ndestination:/q\ncontent-length:4\n\n",
            "max_body",
        ),
        (FrameLimits(max_body=3), wire("SEND", SEND, b"abc"), b"SEND\ndestination:/q\n\nabcd", "max_body"),
    ],
    ids=["headers", "line", "counted body", "uncounted body"],
)
def test_past_a_limit_an_error_names_it(
    version: Version, limits: FrameLimits, fine: bytes, too_much: bytes, name: str
) -> None:
    connect = {"username": "fred", "passcode": "x"} if version is DRAFT else {"accept-version": version.value}
    server = ServerProtocol(versions=(version,), limits=limits)
    server.receive(wire("CONNECT", connect))
    server.connected("s-1")
    assert commands(server.receive(fine)) == ["SEND"]
    why = refused(server, too_much)
    assert isinstance(server.error, FrameTooLargeError)
    assert why.endswith(f"(limit {name}={getattr(limits, name)})")
    assert parsed(server.fail(why), version).headers["message"] == why


@pytest.mark.requirement("LIM-01", "LIM-02", "CON-04")
def test_a_connect_past_a_limit_is_refused_too() -> None:
    server = ServerProtocol(limits=FrameLimits(max_header_line=100))
    assert "max_header_line=100" in refused(server, b"CONNECT\nlogin:" + b"x" * 101)
    assert server.fail(str(server.error)).startswith(
        b"ERROR\nmessage:a header line is too long (limit max_header_line=100)\n"
    )
