"""The client's side after the handshake: the order of frames, ERROR, offences and limits."""

from __future__ import annotations

import pytest

from stompy.errors import FrameTooLargeError, NotConnectedError, RemoteProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import NEGOTIABLE, FrameLimits, Version
from stompy.frames.heads import frames_of
from stompy.protocol.client import ClientProtocol, error_message, explain_refusal
from stompy.protocol.state import State
from tests.protocol.exchange import (
    ALL,
    CONNECTED_OF,
    DRAFT,
    MODERN,
    V1_0,
    V1_1,
    V1_2,
    asking,
    client_of,
    commands,
    read,
    splits,
    wire,
)
from tests.protocol.test_client import MESSAGE

# --------------------------------------------------------------------------------------------------- order of frames


@pytest.mark.requirement("CON-01", "CON-23", "D10-17")
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "DISCONNECT", "ACK"])
def test_nothing_is_sent_before_connected(command: str) -> None:
    client = ClientProtocol()
    with pytest.raises(NotConnectedError, match="there is no session: no CONNECT was sent yet"):
        client.send(command, {"destination": "/q"})
    client.connect(host="h")
    with pytest.raises(NotConnectedError, match="there is no session: CONNECT was sent"):
        client.send(command, {"destination": "/q"})


@pytest.mark.requirement("DIS-03", "DIS-07", "DIS-04", "D10-16")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_nothing_is_sent_after_disconnect(version: Version) -> None:
    client = client_of(version)
    assert client.send("DISCONNECT", {}).startswith(b"DISCONNECT\n")
    assert client.state is State.DISCONNECTING
    for command in ("SEND", "ACK", "DISCONNECT"):
        with pytest.raises(NotConnectedError, match="DISCONNECT was sent"):
            client.send(command, {"destination": "/q", "message-id": "1"})


@pytest.mark.requirement("DIS-02", "DIS-06")
def test_messages_and_the_receipt_may_still_come_after_disconnect() -> None:
    client = client_of(V1_2)
    assert client.send("DISCONNECT", {"receipt": "77"}) == b"DISCONNECT\nreceipt:77\n\n\0"
    frames = client.receive(wire("MESSAGE", MESSAGE) + wire("RECEIPT", {"receipt-id": "77"}))
    assert (commands(frames), client.error) == (["MESSAGE", "RECEIPT"], None)
    client.end()
    assert client.state is State.CLOSED


@pytest.mark.requirement("DIS-06")
def test_the_stream_may_end_without_the_receipt() -> None:
    client = client_of(V1_2)
    client.send("DISCONNECT", {"receipt": "77"})
    client.end()
    assert (client.state, client.error) == (State.CLOSED, None)
    with pytest.raises(NotConnectedError, match="the stream ended"):
        client.send("SEND", {"destination": "/q"})


@pytest.mark.requirement("CON-02", "SRV-01", "BNF-12")
@pytest.mark.parametrize(
    ("command", "headers"),
    [("MESSAGE", MESSAGE), ("RECEIPT", {"receipt-id": "1"}), ("SEND", {"destination": "/q"}), ("FOO", {})],
)
def test_only_connected_or_error_may_answer_connect(command: str, headers: dict[str, str]) -> None:
    client = asking()
    assert client.receive(wire(command, headers) + wire("CONNECTED", {"version": "1.2"})) == []
    assert isinstance(client.error, RemoteProtocolError)
    assert client.receive(wire("CONNECTED", {"version": "1.2"})) == []
    assert (client.state, client.version) == (State.FAILED, None)


@pytest.mark.requirement("CON-02")
def test_a_connected_that_was_not_asked_for_is_refused() -> None:
    client = ClientProtocol()
    assert client.receive(wire("CONNECTED", {"version": "1.2"})) == []
    assert str(client.error) == "a CONNECTED frame is not allowed: no CONNECT was sent yet (Connecting)"


@pytest.mark.requirement("CON-02")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_second_connected_is_refused(version: Version) -> None:
    connected = wire("CONNECTED", CONNECTED_OF[version])
    for chunks in ([connected + connected], [connected, connected]):
        client = ClientProtocol(versions=(DRAFT,) if version is DRAFT else NEGOTIABLE)
        client.connect(host="h")
        assert commands([frame for chunk in chunks for frame in client.receive(chunk)]) == ["CONNECTED"]
        assert str(client.error) == "a CONNECTED frame is not allowed: the session is open (Connecting)"


@pytest.mark.requirement("SRV-01", "BNF-12")
@pytest.mark.parametrize("version", ALL, ids=str)
@pytest.mark.parametrize("command", ["FOO", "SEND", "CONNECT", "DISCONNECT", "STOMP"])
def test_a_command_that_is_not_a_servers_is_a_protocol_error(version: Version, command: str) -> None:
    client = client_of(version)
    message = wire("MESSAGE", MESSAGE)
    assert commands(client.receive(message + wire(command, {"destination": "/q"}) + message)) == ["MESSAGE"]
    assert str(client.error) == f"'{command}' is not a server command (Server Frames)"
    assert client.state is State.FAILED


@pytest.mark.requirement("FRM-07", "A-01")
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_commands_are_case_sensitive(version: Version) -> None:
    client = client_of(version)
    assert client.receive(wire("message", MESSAGE)) == []
    assert "'message'" in str(client.error)


@pytest.mark.requirement("FRM-07")
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_header_names_are_case_sensitive(version: Version) -> None:
    client = client_of(version)
    assert client.receive(wire("MESSAGE", {**MESSAGE, "destination": ""} | {"Message-Id": "1"})) != []
    assert client.receive(wire("RECEIPT", {"Receipt-Id": "1"})) == []
    assert "needs a 'receipt-id' header" in str(client.error)


# ----------------------------------------------------------------------------------------------------------- ERROR


@pytest.mark.requirement("SRV-10", "SRV-11", "SRV-12", "SRV-18", "A-15", "SRV-13", "SRV-14")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_an_error_ends_the_session_and_what_follows_it_is_ignored(version: Version) -> None:
    error = wire("ERROR", {"message": "not_found"}, b"details")
    receipt = wire("RECEIPT", {"receipt-id": "1"})
    for chunks in ([error + receipt + b"garbage\0"], [error, receipt, b"garbage\0"]):
        client = client_of(version)
        frames = [frame for chunk in chunks for frame in client.receive(chunk)]
        assert commands(frames) == ["ERROR"]
        assert (client.state, client.error) == (State.FAILED, None)
        with pytest.raises(NotConnectedError, match="the session failed"):
            client.send("SEND", {"destination": "/q"})


@pytest.mark.requirement("SRV-17", "SRV-13", "SRV-14")
def test_an_error_needs_no_header_and_no_body() -> None:
    (frame,) = read(b"ERROR\n\n\0", version=V1_0)
    assert error_message(frame) == "the broker sent an ERROR without an error message"


RABBIT_REFUSED = (
    b"ERROR\nmessage:Bad CONNECT\ncontent-type:text/plain\nversion:1.0,1.1,1.2\ncontent-length:32\n\n"
    b"Access refused for user 'guest'\n\0\n"
)
RABBIT_MISMATCH = (
    b"ERROR\nmessage:Version mismatch\ncontent-type:text/plain\nversion:1.0,1.1,1.2\ncontent-length:43\n\n"
    b"Supported versions are 1.0,1.1,1.2 only. :(\0\n"
)
ACTIVE_REFUSED = (
    b"ERROR\ncontent-type:text/plain\nmessage:User name [admin] or password is invalid.\n\n"
    b"java.lang.SecurityException: User name [admin] or password is invalid.\n\tat org.apache.Foo\n\0\n"
)
ACTIVE_MISMATCH = (
    b"ERROR\ncontent-type:text/plain\n"
    b"message:Invalid Protocol version[9.9], supported versions are: [1.2, 1.1, 1.0]\n\nstack\ttrace\n\0\n"
)
ACTIVE_DUPLICATE = (
    b"ERROR\nmessage:Broker: stompy - Client: dup already connected from tcp://127.0.0.1:53048\n\ntrace\0\n"
)


@pytest.mark.requirement("CON-03", "CON-04", "A-14", "A-23")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (RABBIT_REFUSED, "Bad CONNECT: Access refused for user 'guest'"),
        (
            ACTIVE_REFUSED,
            "User name [admin] or password is invalid.",
        ),
        (ACTIVE_MISMATCH, "Invalid Protocol version[9.9], supported versions are: [1.2, 1.1, 1.0]: stack\ttrace"),
        (
            ACTIVE_DUPLICATE,
            "Broker: stompy - Client: dup already connected from tcp://127.0.0.1:53048: trace",
        ),
        (b"ERROR\nmessage: padded \n\n\0", "padded"),
        (b"ERROR\nmessage:odd\\tescape\\cyes\n\n\0", "odd\\tescape:yes"),
        (b"ERROR\r\nmessage:m\r\n\r\nm\nmore\0", "m"),
        (b"ERROR\nmessage:who  a b\n\nwho: a\\b\n\0", "who: a\\b"),
        (b"ERROR\nmessage:\n\nwhy\0", "why"),
        (b"ERROR\n\nonly a body \nmore\0", "only a body"),
        (b"ERROR\n\n\xff\xfe\0", "\ufffd\ufffd"),
    ],
)
def test_an_error_instead_of_connected_is_read_with_its_message(data: bytes, words: str) -> None:
    for chunks in splits(data):
        client = asking()
        frames = [frame for chunk in chunks for frame in client.receive(chunk)]
        assert commands(frames) == ["ERROR"]
        assert (client.state, client.error, client.version) == (State.FAILED, None, None)
    assert explain_refusal(frames[0], NEGOTIABLE) == (words, None)
    with pytest.raises(NotConnectedError):
        client.send("SEND", {"destination": "/q"})


@pytest.mark.requirement("CON-21", "A-28")
@pytest.mark.parametrize(
    ("offered", "header", "supported"),
    [
        ((V1_2,), "1.0,1.1", ("1.0", "1.1")),
        ((V1_0,), "1.2,2.1", ("1.2", "2.1")),
        ((V1_1, V1_2), " 1.0 ", ("1.0",)),
        (NEGOTIABLE, "9.9", ("9.9",)),
        ((DRAFT,), "1.0,1.1,1.2", ("1.0", "1.1", "1.2")),
    ],
    ids=str,
)
def test_no_common_version_is_reported_with_both_lists(
    offered: tuple[Version, ...], header: str, supported: tuple[str, ...]
) -> None:
    frame = Frame("ERROR", {"message": "no", "version": header}, b"why")
    words, mismatch = explain_refusal(frame, offered)
    assert words == "no: why"
    assert mismatch is not None
    assert mismatch.offered == tuple(map(str, offered))
    assert mismatch.supported == supported
    assert "no: why" in str(mismatch)


@pytest.mark.requirement("CON-21")
def test_a_list_with_a_version_that_was_offered_is_no_mismatch() -> None:
    (frame,) = asking().receive(RABBIT_MISMATCH)
    assert explain_refusal(frame, NEGOTIABLE)[1] is None
    assert explain_refusal(frame, (V1_2,))[1] is None


def test_the_message_of_an_error_is_truncated() -> None:
    assert len(error_message(Frame("ERROR", {"message": "x" * 1000}, b"y" * 1000))) == 400


# ------------------------------------------------------------------------------------------------- offences, limits


@pytest.mark.requirement("LIM-03")
@pytest.mark.parametrize(
    ("limits", "data", "name"),
    [
        (FrameLimits(max_body=4), wire("MESSAGE", {**MESSAGE, "content-length": "5"}), "max_body"),
        (FrameLimits(max_body=4), wire("MESSAGE", MESSAGE, b"12345"), "max_body"),
        (FrameLimits(max_headers=4), wire("MESSAGE", {**MESSAGE, "fifth": "x"}), "max_headers"),
        (FrameLimits(max_header_line=20), wire("MESSAGE", {**MESSAGE, "k": "x" * 20}), "max_header_line"),
    ],
)
def test_a_frame_past_a_limit_ends_the_session(limits: FrameLimits, data: bytes, name: str) -> None:
    client = client_of(V1_2, limits=limits)
    fine = wire("MESSAGE", MESSAGE, b"1234")
    assert commands(client.receive(fine + data)) == ["MESSAGE"]
    assert isinstance(client.error, FrameTooLargeError)
    assert client.error.limit_name == name
    assert f"limit {name}=" in str(client.error)
    assert client.state is State.FAILED


@pytest.mark.requirement("A-05", "ESC-06")
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_an_error_of_the_codec_ends_the_session_after_the_frames_before_it(version: Version) -> None:
    client = client_of(version)
    bad = wire("MESSAGE", {**MESSAGE, "k": "\\t"})
    assert commands(client.receive(wire("MESSAGE", MESSAGE) + bad + wire("MESSAGE", MESSAGE))) == ["MESSAGE"]
    assert "undefined escape" in str(client.error)
    assert client.state is State.FAILED
    first = client.error
    assert client.receive(wire("FOO")) == []
    assert client.error is first
    with pytest.raises(NotConnectedError):
        client.send("SEND", {"destination": "/q"})


def test_parser_and_accept_apart_do_what_receive_does() -> None:
    client = client_of(V1_2)
    frames = client.parser.feed(wire("MESSAGE", MESSAGE) + b"GET / HTTP/1.1\n\n\0")
    assert commands(frames_of(client.accept(frames))) == ["MESSAGE"]
    assert client.error is client.parser.error is not None
    assert client.accept([Frame("MESSAGE", MESSAGE)]) == []
