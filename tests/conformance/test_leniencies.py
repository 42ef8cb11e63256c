"""What each named leniency changes on both sides, and that none is on by itself."""

from __future__ import annotations

import pytest

from stompy.errors import LocalProtocolError
from stompy.frames.grammar import Leniency, Version
from stompy.protocol.client import ClientProtocol
from stompy.protocol.rules import Fault, fault_of
from stompy.protocol.server import ServerProtocol
from tests.protocol.exchange import CONNECT_OF, V1_0, V1_1, V1_2, asking, client_of, refused, server_of, wire

MESSAGE = {"destination": "/q", "message-id": "1", "subscription": "0", "ack": "a1"}
WRITTEN = (Leniency.ESCAPES_IN_1_0, Leniency.ESCAPED_CONNECT, Leniency.WRITE_CR_ESCAPE_IN_1_1)
CR_LF = b"MESSAGE\r\ndestination:/q\r\nmessage-id:1\r\nsubscription:0\r\n\r\n\0"


def test_a_client_is_strict_by_default() -> None:
    cases = [
        (V1_2, wire("MESSAGE", {**MESSAGE, "k": "\\t"})),
        (V1_1, wire("MESSAGE", {**MESSAGE, "k": "\\r"})),
        (V1_1, CR_LF),
        (V1_2, b"MESSAGE\ndestination:/q\nmessage-id:1\nsubscription:0\nk:\xff\n\n\0"),
        (V1_2, wire("RECEIPT", {"receipt-id": "1"}, b"x")),
    ]
    for version, data in cases:
        client = client_of(version)
        assert client.receive(data) == []
        assert client.error is not None


@pytest.mark.requirement("A-03", "A-05", "A-06", "A-11", "A-38")
@pytest.mark.parametrize(
    ("leniency", "version", "data", "value"),
    [
        (Leniency.UNDEFINED_ESCAPES, V1_2, wire("MESSAGE", {**MESSAGE, "k": "\\t"}), "\\t"),
        (Leniency.UNDEFINED_ESCAPES, V1_1, wire("MESSAGE", {**MESSAGE, "k": "\\r"}), "\\r"),
        (Leniency.CR_ESCAPE_IN_1_1, V1_1, wire("MESSAGE", {**MESSAGE, "k": "\\r"}), "\r"),
        (Leniency.WRITE_CR_ESCAPE_IN_1_1, V1_1, wire("MESSAGE", {**MESSAGE, "k": "\\r"}), "\r"),
        (Leniency.CRLF_IN_1_1, V1_1, CR_LF.replace(b"subscription:0\r", b"subscription:0\r\nk:v\r"), "v"),
        (Leniency.INVALID_UTF8, V1_2, wire("MESSAGE", MESSAGE)[:-2] + b"k:\xff\n\n\0", "\udcff"),
        (Leniency.UNEXPECTED_BODY, V1_2, wire("RECEIPT", {"receipt-id": "1", "k": "v"}, b"x"), "v"),
        (Leniency.ESCAPES_IN_1_0, V1_0, wire("MESSAGE", {**MESSAGE, "k": "a\\cb\\r"}), "a:b\r"),
        (Leniency.LINES_WITHOUT_COLON, V1_2, wire("MESSAGE", MESSAGE)[:-2] + b"none\nk:v\n:w\n\n\0", "v"),
    ],
    ids=str,
)
def test_a_leniency_tolerates_what_is_fatal_or_unknown_without_it_for_a_client(
    leniency: Leniency, version: Version, data: bytes, value: str
) -> None:
    client = client_of(version, leniency=leniency)
    (frame,) = client.receive(data)
    assert (client.error, frame.headers["k"], frame.body) == (None, value, b"")


@pytest.mark.requirement("A-11")
def test_unexpected_body_tolerates_a_body_of_connected() -> None:
    client = asking(leniency=Leniency.UNEXPECTED_BODY)
    (frame,) = client.receive(wire("CONNECTED", {"version": "1.2"}, b"x"))
    assert (client.version, frame.body) == (V1_2, b"")


@pytest.mark.requirement("A-07")
def test_escaped_connect_changes_both_frames_of_the_handshake() -> None:
    client = ClientProtocol(leniency=Leniency.ESCAPED_CONNECT)
    assert b"\npasscode:a\\cb\\\\\n" in client.connect(host="h", passcode="a:b\\")
    client.receive(wire("CONNECTED", {"version": "1.2", "session": "s\\c1", "server": "a\\tb"}))
    assert (client.session, client.server) == ("s:1", "a\\tb")


@pytest.mark.requirement("A-04")
def test_escapes_in_1_0_changes_what_is_written_too() -> None:
    client = client_of(V1_0, leniency=Leniency.ESCAPES_IN_1_0)
    assert client.send("SEND", {"destination": "a:b\n"}) == b"SEND\ndestination:a\\cb\\n\n\n\0"
    with pytest.raises(LocalProtocolError):
        client_of(V1_0).send("SEND", {"destination": "a:b\n"})


@pytest.mark.requirement("A-06")
def test_cr_is_written_escaped_in_1_1_for_a_peer_that_takes_no_raw_one() -> None:
    client = client_of(V1_1, leniency=Leniency.WRITE_CR_ESCAPE_IN_1_1)
    assert client.send("SEND", {"destination": "a\rb"}) == b"SEND\ndestination:a\\rb\n\n\0"
    reading = client_of(V1_1, leniency=Leniency.CR_ESCAPE_IN_1_1)
    assert reading.send("SEND", {"destination": "a\rb"}) == b"SEND\ndestination:a\rb\n\n\0"


@pytest.mark.parametrize("leniency", [flag for flag in Leniency if flag not in WRITTEN], ids=str)
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_no_other_leniency_changes_what_is_written(leniency: Leniency, version: Version) -> None:
    headers = {"destination": "a:b\\c\x0bd", "é": "é"}
    strict, lenient = client_of(version), client_of(version, leniency=leniency)
    assert lenient.send("SEND", headers, b"x") == strict.send("SEND", headers, b"x")
    connects = {ClientProtocol(leniency=one).connect(host="a:b\\") for one in (Leniency.NONE, leniency)}
    assert len(connects) == 1


def test_a_broker_is_strict_by_default() -> None:
    cases = [
        (V1_2, b"SEND\ndestination:/q\nk:\\t\n\n\0"),
        (V1_1, b"SEND\ndestination:/q\nk:\\r\n\n\0"),
        (V1_1, b"SEND\r\ndestination:/q\r\n\r\n\0"),
        (V1_2, b"SEND\ndestination:/q\nk:\xff\n\n\0"),
        (V1_2, b"SUBSCRIBE\ndestination:/q\nid:1\n\nx\0"),
        (V1_2, b"\0SEND\ndestination:/q\n\n\0"),
    ]
    for version, data in cases:
        refused(server_of(version), data)


@pytest.mark.requirement("A-03", "A-05", "A-06", "A-11", "A-38", "BDY-02")
@pytest.mark.parametrize(
    ("leniency", "version", "data", "value"),
    [
        (Leniency.UNDEFINED_ESCAPES, V1_2, b"SEND\ndestination:/q\nk:\\t\n\n\0", "\\t"),
        (Leniency.CR_ESCAPE_IN_1_1, V1_1, b"SEND\ndestination:/q\nk:\\r\n\n\0", "\r"),
        (Leniency.CRLF_IN_1_1, V1_1, b"SEND\r\ndestination:/q\r\nk:v\r\n\r\n\0", "v"),
        (Leniency.INVALID_UTF8, V1_2, b"SEND\ndestination:/q\nk:\xff\n\n\0", "\udcff"),
        (Leniency.UNEXPECTED_BODY, V1_2, b"SUBSCRIBE\ndestination:/q\nid:1\nk:v\n\nx\0", "v"),
        (Leniency.ESCAPES_IN_1_0, V1_0, b"SEND\ndestination:/q\nk:a\\cb\n\n\0", "a:b"),
        (Leniency.UNESCAPES_IN_1_0, V1_0, b"SEND\ndestination:/q\nk:a\\cb\\\\n\n\n\0", "a:b\\n"),
        (Leniency.NAMES_ALONE, V1_2, b"SEND\ndestination:/q\nnone\nk:v\n\n\0", "v"),
        (Leniency.PADDED_COMMANDS, V1_2, b"SEND \ndestination:/q\nk:v\n\n\0", "v"),
        (Leniency.LENGTH_OF_SEND_ALONE, V1_0, b"BEGIN\ntransaction:t\nk:v\ncontent-length:x\n\n\0", "v"),
        (Leniency.LINES_WITHOUT_COLON, V1_2, b"SEND\ndestination:/q\nnone\nk:v\nnor here\n\n\0", "v"),
        (Leniency.NUL_BETWEEN_FRAMES, V1_2, b"\0\r\n\0SEND\ndestination:/q\nk:v\n\n\0\0\n", "v"),
        (Leniency.NUL_BETWEEN_FRAMES, V1_1, b"\n\0\0SEND\ndestination:/q\nk:v\n\n\0\n\0", "v"),
        (Leniency.NUL_BETWEEN_FRAMES, V1_0, b"\0SEND\ndestination:/q\nk:v\n\n\0\0", "v"),
        (Leniency.NONE, V1_0, b"SUBSCRIBE\ndestination:/q\nk:v\n\njunk\0", "v"),
        (Leniency.NONE, V1_0, b"SEND\ndestination:/q\nk:a\\cb\n\n\0", "a\\cb"),
    ],
    ids=str,
)
def test_a_leniency_tolerates_what_is_fatal_or_unknown_without_it_for_a_broker(
    leniency: Leniency, version: Version, data: bytes, value: str
) -> None:
    server = server_of(version, leniency=leniency)
    (frame,) = server.receive(data)
    assert (server.error, frame.headers["k"], frame.body) == (None, value, b"")


def test_any_first_line_can_be_a_command_that_is_unknown() -> None:
    server = server_of(V1_2, leniency=Leniency.ANY_COMMAND_LINE)
    assert server.receive(b"SEND \ndestination:/q\n\n\0") == []
    assert fault_of(server.error or OSError()) is Fault.UNKNOWN_COMMAND


@pytest.mark.parametrize("line", [b"SE\rND", b"SEND\r\r"])
def test_a_first_line_with_a_cr_in_it_is_no_command(line: bytes) -> None:
    server = server_of(V1_2, leniency=Leniency.ANY_COMMAND_LINE)
    assert server.receive(line + b"\ndestination:/q\n\n\0") == []
    assert fault_of(server.error or OSError()) is None


@pytest.mark.requirement("A-07", "A-08")
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_escaped_connect_unescapes_the_credentials(command: str) -> None:
    data = wire(command, {**CONNECT_OF[V1_2], "passcode": "a\\cb\\\\"})
    assert ServerProtocol().receive(data)[0].headers["passcode"] == "a\\cb\\\\"
    assert ServerProtocol(leniency=Leniency.ESCAPED_CONNECT).receive(data)[0].headers["passcode"] == "a:b\\"
