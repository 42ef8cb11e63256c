from __future__ import annotations

import itertools

import pytest

from stompy.errors import LocalProtocolError, RemoteProtocolError, VersionMismatchError
from stompy.frames.grammar import NEGOTIABLE, Version
from stompy.protocol.client import ClientProtocol
from stompy.protocol.heartbeat import HeartbeatOffer
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
    server_of,
    splits,
    wire,
)

MESSAGE = {"destination": "/q", "message-id": "1", "subscription": "0", "ack": "a1"}


# ------------------------------------------------------------------------------------------------------- CONNECT


@pytest.mark.requirement("CON-01", "CON-06", "CON-07", "CON-08", "CON-09", "A-26")
def test_connect_offers_every_version_in_order_and_names_the_host() -> None:
    assert ClientProtocol().connect(host="h") == b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:h\n\n\0"


@pytest.mark.requirement("CON-07", "CON-08", "CON-09", "CON-20")
@pytest.mark.parametrize("versions", [(V1_2,), (V1_0,), (V1_2, V1_1), (V1_2, V1_0, V1_1)], ids=str)
def test_connect_offers_what_it_was_configured_to(versions: tuple[Version, ...]) -> None:
    data = ClientProtocol(versions=versions).connect(host="h")
    assert b"\naccept-version:" + ",".join(sorted(map(str, versions))).encode() + b"\n" in data
    assert b"\nhost:h\n" in data


@pytest.mark.requirement("CON-12", "CON-13", "A-25")
@pytest.mark.parametrize("versions", [(V1_0,), (V1_1,), (V1_2,), NEGOTIABLE], ids=str)
def test_login_and_passcode_are_sent_only_where_given(versions: tuple[Version, ...]) -> None:
    assert b"login" not in ClientProtocol(versions=versions).connect(host="h")
    assert b"\nlogin:\npasscode:\n" in ClientProtocol(versions=versions).connect(host="h", login="", passcode="")
    assert b"\nlogin:u\n\n" in ClientProtocol(versions=versions).connect(host="h", login="u")


@pytest.mark.requirement("ESC-07", "A-07")
def test_connect_is_not_escaped() -> None:
    data = ClientProtocol().connect(host="h", login="a:b", passcode="c\\d:é")
    assert "\nlogin:a:b\npasscode:c\\d:é\n\n".encode() in data


@pytest.mark.requirement("ESC-08", "A-04")
@pytest.mark.parametrize("value", ["a\nadmin:1", "a\r", "a\0"])
def test_a_credential_that_connect_cannot_say_is_refused_and_not_shown(value: str) -> None:
    client = ClientProtocol()
    with pytest.raises(LocalProtocolError) as caught:
        client.connect(host="h", passcode=value)
    assert "passcode" in str(caught.value)
    assert "admin" not in str(caught.value)
    assert client.state is State.NEW
    assert client.connect(host="h", passcode="fine")


@pytest.mark.requirement("CON-14", "HBT-01")
def test_heart_beat_is_sent_where_something_is_offered() -> None:
    assert b"heart-beat" not in ClientProtocol().connect(host="h")
    for offer in (HeartbeatOffer(10, 0), HeartbeatOffer(0, 10)):
        assert f"\nheart-beat:{offer}\n".encode() in ClientProtocol(heartbeat=offer).connect(host="h")


@pytest.mark.requirement("HBT-13")
def test_a_client_of_1_0_alone_sends_no_heart_beat_header() -> None:
    assert b"heart-beat" not in ClientProtocol(versions=(V1_0,), heartbeat=HeartbeatOffer(10, 10)).connect(host="h")


def test_further_headers_are_sent() -> None:
    assert b"\nclient-id:c\n" in ClientProtocol().connect(host="h", headers={"client-id": "c"})


@pytest.mark.requirement("RCP-06", "A-22")
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@pytest.mark.parametrize("name", ["receipt", "Receipt", "accept-version", "host", "login", "passcode", "heart-beat"])
def test_the_protocols_own_headers_of_connect_cannot_be_given(name: str, command: str) -> None:
    client = ClientProtocol()
    with pytest.raises(LocalProtocolError, match=f"header '{name}' of a {command} frame is set by stompy itself"):
        client.connect(host="h", login="u", passcode="p", headers={name: "secret"}, command=command)
    assert client.state is State.NEW


@pytest.mark.requirement("CON-06")
def test_stomp_is_sent_only_when_asked_for() -> None:
    assert ClientProtocol().connect(host="h").startswith(b"CONNECT\n")
    assert (
        ClientProtocol().connect(host="a:b", command="STOMP").startswith(b"STOMP\naccept-version:1.0,1.1,1.2\nhost:a:b")
    )


@pytest.mark.requirement("CON-06", "D10-18")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_1_0_has_no_stomp_frame(version: Version) -> None:
    with pytest.raises(LocalProtocolError, match="has no STOMP frame"):
        ClientProtocol(versions=(version,)).connect(host="h", command="STOMP")


@pytest.mark.requirement("CON-01")
@pytest.mark.parametrize("command", ["SEND", "ERROR", "connect", "FOO"])
def test_only_connect_and_stomp_open_a_session(command: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"'{command}' cannot be sent: no CONNECT was sent yet"):
        ClientProtocol().connect(host="h", command=command)


@pytest.mark.requirement("CON-01", "CON-02")
def test_connect_is_sent_once() -> None:
    client = asking()
    with pytest.raises(LocalProtocolError, match="cannot be sent: CONNECT was sent"):
        client.connect(host="h")
    with pytest.raises(LocalProtocolError):
        client_of(V1_2).connect(host="h")


# ---------------------------------------------------------------------------------------------------- negotiation


@pytest.mark.requirement("CON-15", "CON-19", "CON-20", "CON-22", "CON-24", "A-29")
def test_the_client_takes_a_version_that_it_offered_and_no_other() -> None:
    subsets = [s for size in (1, 2, 3) for s in itertools.combinations(NEGOTIABLE, size)]
    for offered, chosen in itertools.product(subsets, (None, "1.0", "1.1", "1.2", "1.3", "2.0", "", "1", "1.0,1.1")):
        client = asking(*offered)
        frames = client.receive(wire("CONNECTED", {} if chosen is None else {"version": chosen}))
        version = next((version for version in offered if version.value == (chosen or "1.0")), None)
        if version is None or chosen == "":
            assert (frames, client.state, client.version) == ([], State.FAILED, None)
            assert isinstance(client.error, VersionMismatchError if chosen is None else RemoteProtocolError)
        else:
            assert (commands(frames), client.state, client.version) == (["CONNECTED"], State.CONNECTED, version)
            assert client.error is None


@pytest.mark.requirement("CON-22", "A-29")
def test_a_broker_of_1_0_alone_is_a_mismatch_where_1_0_was_not_offered() -> None:
    client = asking(V1_1, V1_2)
    client.receive(b"CONNECTED\nsession: s1\n\n\0")
    assert isinstance(client.error, VersionMismatchError)
    assert (client.error.offered, client.error.supported) == (("1.1", "1.2"), ("1.0",))


@pytest.mark.requirement("A-29")
def test_a_version_that_was_not_offered_is_named() -> None:
    client = asking(V1_1, V1_2)
    client.receive(wire("CONNECTED", {"version": "1.0"}))
    assert str(client.error) == "the broker chose version '1.0', offered were 1.1, 1.2 (Protocol Negotiation)"


@pytest.mark.requirement("CON-22", "FRM-11", "A-02", "A-14", "A-24", "CON-16")
def test_a_padded_connected_of_a_1_0_broker_is_understood() -> None:
    client = asking()
    (frame,) = client.receive(b"CONNECTED\nsession: s1 \nserver: old/1 \n\n\0")
    assert (client.version, client.session, client.server) == (V1_0, "s1", "old/1")
    assert frame.headers["session"] == "s1"
    client = asking()
    client.receive(b"CONNECTED\nversion: 1.0\n\n\0")
    assert client.version is V1_0


@pytest.mark.requirement("FRM-10", "CON-17")
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_values_of_connected_are_not_trimmed_from_1_1_on(version: Version) -> None:
    client = client_of(version, extra={"session": " s ", "server": " a/1"})
    assert (client.session, client.server) == (" s ", " a/1")


@pytest.mark.requirement("CON-17", "A-48", "CON-16")
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_session_and_server_are_shown_and_not_needed(version: Version) -> None:
    client = asking()
    client.receive(wire("CONNECTED", {"version": version.value}))
    assert (client.state, client.session, client.server) == (State.CONNECTED, None, None)
    client = client_of(version, extra={"session": "s", "server": "Apache/1.3.9 (comment) more"})
    assert (client.session, client.server) == ("s", "Apache/1.3.9 (comment) more")


@pytest.mark.requirement("ESC-07", "A-07")
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_connected_is_not_unescaped(version: Version) -> None:
    assert client_of(version, extra={"session": "a\\cb:c\\t"}).session == "a\\cb:c\\t"


@pytest.mark.requirement("BDY-01", "A-11")
@pytest.mark.parametrize("version", [V1_1, V1_2], ids=str)
def test_a_body_of_connected_is_refused_from_1_1_on(version: Version) -> None:
    client = asking()
    assert client.receive(wire("CONNECTED", CONNECTED_OF[version], b"x")) == []
    assert str(client.error) == "a CONNECTED frame must not have a body (Body)"


@pytest.mark.requirement("A-11")
def test_a_body_of_connected_is_dropped_in_1_0() -> None:
    client = asking()
    (frame,) = client.receive(wire("CONNECTED", {"session": "s"}, b"x"))
    assert (frame.body, client.version) == (b"", V1_0)


@pytest.mark.requirement("HBT-02")
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_a_broken_heart_beat_header_ends_the_handshake(version: Version) -> None:
    client = asking()
    assert client.receive(wire("CONNECTED", {**CONNECTED_OF[version], "heart-beat": "-1,-1"})) == []
    assert (client.state, client.version) == (State.FAILED, None)
    assert "'-1,-1'" in str(client.error)


@pytest.mark.requirement("A-14", "FRM-04", "BNF-01")
@pytest.mark.parametrize("data", [b"\n\nCONNECTED\nversion:1.2\n\n\0", b"CONNECTED\r\nversion:1.2\r\n\r\n\0"])
def test_the_first_frame_may_end_its_lines_with_cr_lf_and_follow_empty_lines(data: bytes) -> None:
    client = asking()
    assert commands(client.receive(data)) == ["CONNECTED"]
    assert client.version is V1_2


# ----------------------------------------------------------------------------------- the right rules after CONNECTED

ESCAPED = b"MESSAGE\ndestination:/q\nmessage-id:1\nsubscription:0\nk:a\\cb\n\n\0"
CR_LF = b"MESSAGE\r\ndestination:/q\r\nmessage-id:1\r\nsubscription:0\r\n\r\n\0"
PADDED = b"MESSAGE\ndestination: /q\nmessage-id:1\nsubscription:0\n\n\0"


@pytest.mark.requirement("CON-19", "CON-20", "CON-24", "A-14", "FRM-12")
@pytest.mark.parametrize(
    ("version", "escaped", "crlf", "destination"),
    [(V1_0, "a\\cb", True, "/q"), (V1_1, "a:b", False, " /q"), (V1_2, "a:b", True, " /q")],
    ids=str,
)
def test_frames_after_connected_are_read_by_its_version_however_they_are_cut(
    version: Version, escaped: str, crlf: bool, destination: str
) -> None:
    for chunks in splits(wire("CONNECTED", CONNECTED_OF[version]) + ESCAPED + b"\n" + PADDED + CR_LF):
        client = asking()
        frames = [frame for chunk in chunks for frame in client.receive(chunk)]
        assert frames[1].headers["k"] == escaped
        assert frames[2].headers["destination"] == destination
        assert commands(frames) == ["CONNECTED", "MESSAGE", "MESSAGE"] + ["MESSAGE"] * crlf
        assert (client.error is None) is crlf


@pytest.mark.requirement("ESC-01", "ESC-04", "CON-19", "CON-24")
@pytest.mark.parametrize(
    ("version", "data"),
    [
        (V1_0, b"SEND\ndestination:a:b\\c\n\n\0"),
        (V1_1, b"SEND\ndestination:a\\cb\\\\c\n\n\0"),
        (V1_2, b"SEND\ndestination:a\\cb\\\\c\n\n\0"),
    ],
    ids=str,
)
def test_frames_after_connected_are_written_by_its_version(version: Version, data: bytes) -> None:
    assert client_of(version).send("SEND", {"destination": "a:b\\c"}) == data


@pytest.mark.requirement("FRM-05")
def test_cr_lf_is_written_in_1_2_only() -> None:
    assert client_of(V1_2, crlf=True).send("DISCONNECT", {}) == b"DISCONNECT\r\n\r\n\0"
    for version in (V1_0, V1_1):
        assert client_of(version, crlf=True).send("DISCONNECT", {}) == b"DISCONNECT\n\n\0"
    assert ClientProtocol(crlf=True).connect(host="h").count(b"\r") == 0


@pytest.mark.requirement("BDY-06", "BDY-07", "BDY-09", "SND-02")
def test_send_counts_its_body_unless_configured_otherwise() -> None:
    client = client_of(V1_2)
    headers = {"destination": "/q"}
    assert client.send("SEND", headers, b"hi") == b"SEND\ndestination:/q\ncontent-length:2\n\nhi\0"
    assert client.send("SEND", headers, b"hi", content_length=False) == b"SEND\ndestination:/q\n\nhi\0"
    assert b"content-length:3" in client.send("SEND", headers, b"a\0b", content_length=False)


@pytest.mark.requirement("BDY-01")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_only_send_has_a_body(version: Version) -> None:
    with pytest.raises(LocalProtocolError, match="must not have a body"):
        client_of(version).send("SUBSCRIBE", {"destination": "/q", "id": "1"}, b"x")


@pytest.mark.requirement("RCP-01")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_every_frame_of_a_session_may_ask_for_a_receipt(version: Version) -> None:
    client, server = client_of(version), server_of(version)
    ack = {"id": "1", "message-id": "1", "subscription": "1"}
    frames = [
        ("SEND", {"destination": "/q"}),
        ("SUBSCRIBE", {"destination": "/q", "id": "1"}),
        ("UNSUBSCRIBE", {"id": "1"}),
        ("ACK", ack),
        *([("NACK", ack)] if version in MODERN else []),
        ("BEGIN", {"transaction": "t"}),
        ("COMMIT", {"transaction": "t"}),
        ("BEGIN", {"transaction": "u"}),
        ("ABORT", {"transaction": "u"}),
        ("DISCONNECT", {}),
    ]
    for number, (command, headers) in enumerate(frames):
        (frame,) = server.receive(client.send(command, {**headers, "receipt": f"r-{number}"}))
        assert frame.headers["receipt"] == f"r-{number}"
        answer = server.send("RECEIPT", {"receipt-id": f"r-{number}"})
        assert [receipt.headers["receipt-id"] for receipt in client.receive(answer)] == [f"r-{number}"]


@pytest.mark.requirement("FRM-13", "BNF-11", "ACK-14", "CON-01")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_session_has_no_other_commands(version: Version) -> None:
    client = client_of(version)
    for command in ("FOO", "send", "MESSAGE", "CONNECT", "CONNECTED", "") + (
        () if version in MODERN else ("NACK", "STOMP")
    ):
        with pytest.raises(
            LocalProtocolError, match=f"^'{command}' is not a client frame of a STOMP {version} session"
        ):
            client.send(command, {"destination": "/q", "message-id": "1"})
    assert client.state is State.CONNECTED
