from __future__ import annotations

import itertools
import re

import pytest

from stompy.errors import FrameTooLarge, LocalProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import NEGOTIABLE, Leniency, Limits, Version
from stompy.protocol.client import ClientProtocol, explain_refusal
from stompy.protocol.rules import Fault, fault_of
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
    splits,
    wire,
)

SEND = {"destination": "/q"}
MESSAGE = {"destination": "/q", "message-id": "1", "subscription": "0", "ack": "a1"}


def parsed(data: bytes, version: Version) -> Frame:
    """Return the one frame in `data` as a client reads it; an ERROR may come before CONNECTED."""
    client = client_of(version)
    (frame,) = client.receive(data)
    return frame


# -------------------------------------------------------------------------------------------------------- CONNECT


@pytest.mark.requirement("CON-02", "CON-15", "CON-16", "CON-17", "CON-18", "A-29", "A-24", "CON-14")
@pytest.mark.parametrize(
    ("version", "answer"),
    [
        (V1_0, b"CONNECTED\nsession:s-1\nversion:1.0\nserver:stompy/1\n\n\0"),
        (V1_1, b"CONNECTED\nsession:s-1\nversion:1.1\nserver:stompy/1\nheart-beat:0,0\n\n\0"),
        (V1_2, b"CONNECTED\nsession:s-1\nversion:1.2\nserver:stompy/1\nheart-beat:0,0\n\n\0"),
        (DRAFT, b"CONNECTED\nsession:s-1\ncontent-length:0\n\n\0"),
    ],
    ids=str,
)
def test_an_accepted_connect_is_answered_by_connected(version: Version, answer: bytes) -> None:
    server = ServerProtocol(versions=(DRAFT,) if version is DRAFT else NEGOTIABLE, server="stompy/1")
    assert commands(server.receive(wire("CONNECT", CONNECT_OF[version]))) == ["CONNECT"]
    assert server.connected("s-1") == answer
    assert server.state is State.CONNECTED
    with pytest.raises(LocalProtocolError, match="CONNECTED cannot be sent: the session is open"):
        server.connected("s-1")


@pytest.mark.requirement("CON-17")
def test_the_server_header_is_left_out_where_none_is_given() -> None:
    server = ServerProtocol()
    server.receive(wire("CONNECT", CONNECT_OF[V1_2]))
    assert b"server" not in server.connected("s")


@pytest.mark.requirement("CON-18", "A-48")
def test_a_server_is_named_name_and_version() -> None:
    for name in ("stompy", "stompy/1.0", "Apache/1.3.9"):
        ServerProtocol(server=name)
        assert re.fullmatch(r"[^ /]+(/[^ ]+)?( .+)?", name)
    for name in ("", "/1", "a b", "stompy/1 (comment)", "a/", "a:b", "a\\b/1", "a/1\n", "a/1\n\nb"):
        with pytest.raises(LocalProtocolError, match="server must be name/version"):
            ServerProtocol(server=name)


@pytest.mark.requirement("A-07", "CON-16")
@pytest.mark.parametrize("session", ["a:b", "a\\b", "a\nb", "a\0"])
def test_a_session_id_is_one_that_every_peer_reads_alike(session: str) -> None:
    server = ServerProtocol()
    server.receive(wire("CONNECT", CONNECT_OF[V1_2]))
    with pytest.raises(LocalProtocolError, match="clients may misread the session id"):
        server.connected(session)
    assert server.connected("s-1")


@pytest.mark.requirement("CON-02", "CON-23")
def test_connected_answers_a_connect_only() -> None:
    with pytest.raises(LocalProtocolError, match="CONNECTED cannot be sent: no CONNECT was sent yet"):
        ServerProtocol().connected("s")


def test_a_server_speaks_at_least_one_version() -> None:
    for versions in ((), (DRAFT, V1_0)):
        with pytest.raises(LocalProtocolError):
            ServerProtocol(versions=versions)


@pytest.mark.requirement("CON-05", "A-27", "A-08", "ESC-07")
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_stomp_is_treated_as_connect(version: Version) -> None:
    server = ServerProtocol()
    (frame,) = server.receive(wire("STOMP", {**CONNECT_OF[version], "passcode": "a\\cb:c"}))
    assert (server.version, frame.headers["passcode"]) == (version, "a\\cb:c")
    assert server.connected("s").startswith(b"CONNECTED\n")


@pytest.mark.requirement("CON-06", "D10-18", "BNF-10")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_a_broker_of_1_0_alone_does_not_know_stomp(version: Version) -> None:
    server = ServerProtocol(versions=(version,))
    assert (
        refused(server, wire("STOMP", CONNECT_OF[version]))
        == f"unknown command 'STOMP' in STOMP {version} (Client Frames)"
    )


@pytest.mark.requirement("CON-12", "CON-13", "CON-19", "FRM-11", "A-02")
def test_a_connect_of_1_0_may_be_padded_or_bare() -> None:
    server = ServerProtocol()
    (frame,) = server.receive(b"CONNECT\nlogin: bob\npasscode: x \n\n\0")
    assert (frame.headers["login"], frame.headers["passcode"], server.version) == ("bob", "x", V1_0)
    assert commands(ServerProtocol().receive(b"CONNECT\n\n\0")) == ["CONNECT"]


@pytest.mark.requirement("FRM-10")
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_credentials_are_not_trimmed_from_1_1_on(version: Version) -> None:
    (frame,) = ServerProtocol().receive(wire("CONNECT", {**CONNECT_OF[version], "passcode": " x "}))
    assert frame.headers["passcode"] == " x "


@pytest.mark.requirement("RCP-06", "A-22")
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_receipt_of_connect_is_ignored(command: str) -> None:
    server = ServerProtocol()
    (frame,) = server.receive(wire(command, {**CONNECT_OF[V1_2], "receipt": "1"}))
    assert b"receipt" not in server.connected("s")
    server = ServerProtocol()
    server.receive(wire(command, {**CONNECT_OF[V1_2], "receipt": "1"}))
    assert b"receipt" not in server.fail("no", offender=frame)


@pytest.mark.requirement("A-26", "CON-09")
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_a_connect_without_host_is_refused_only_where_asked_for(version: Version) -> None:
    headers = {"accept-version": version.value}
    assert ServerProtocol().receive(wire("CONNECT", headers))
    why = refused(ServerProtocol(require_host=True), wire("CONNECT", headers))
    assert why == f"a CONNECT frame needs a 'host' header in STOMP {version} (CONNECT or STOMP Frame)"
    assert ServerProtocol(require_host=True).receive(wire("CONNECT", CONNECT_OF[version]))


@pytest.mark.requirement("A-26", "CON-12")
def test_1_0_knows_no_host() -> None:
    assert ServerProtocol(require_host=True).receive(b"CONNECT\n\n\0")


@pytest.mark.requirement("BDY-01", "A-11")
@pytest.mark.parametrize("version", MODERN, ids=str)
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_body_of_connect_is_refused_from_1_1_on(version: Version, command: str) -> None:
    why = refused(ServerProtocol(), wire(command, CONNECT_OF[version], b"x"))
    assert why == f"a {command} frame must not have a body (Body)"
    server = ServerProtocol(leniency=Leniency.UNEXPECTED_BODY)
    (frame,) = server.receive(wire(command, CONNECT_OF[version], b"x"))
    assert (frame.body, server.error) == (b"", None)


@pytest.mark.requirement("A-11", "D10-14")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_a_body_of_connect_is_dropped_in_1_0(version: Version) -> None:
    server = ServerProtocol(versions=(version,))
    (frame,) = server.receive(wire("CONNECT", CONNECT_OF[version], b"x"))
    assert (frame.body, server.error) == (b"", None)


@pytest.mark.requirement("HBT-02", "CON-04")
@pytest.mark.parametrize("version", MODERN, ids=str)
@pytest.mark.parametrize("value", ["abc", "1", "1,2,3", "-1,0", ""])
def test_a_broken_heart_beat_header_is_refused(version: Version, value: str) -> None:
    server = ServerProtocol()
    why = refused(server, wire("CONNECT", {**CONNECT_OF[version], "heart-beat": value}))
    assert why.startswith(f"heart-beat must be two numbers of at most 10 digits, not {value!r}")
    assert server.version is None
    with pytest.raises(LocalProtocolError):
        server.connected("s")


# ----------------------------------------------------------------------------------------------------- negotiation


@pytest.mark.requirement("CON-15", "CON-19", "CON-20", "CON-21", "A-28", "A-29", "A-27")
def test_the_broker_chooses_the_highest_common_version() -> None:
    subsets = [s for size in (1, 2, 3) for s in itertools.combinations(NEGOTIABLE, size)]
    asked = [None, *[list(s) for size in (1, 2, 3) for s in itertools.permutations(NEGOTIABLE, size)]]
    for mine, theirs in itertools.product(subsets, asked):
        server = ServerProtocol(versions=mine)
        headers = {"host": "h"} if theirs is None else {"accept-version": ",".join(map(str, theirs)), "host": "h"}
        common = [version for version in mine if version in (theirs or [V1_0])]
        frames = server.receive(wire("CONNECT", headers))
        if common:
            assert (commands(frames), server.version) == (["CONNECT"], common[-1])
            assert f"\nversion:{common[-1]}\n".encode() in server.connected("s")
        else:
            assert (frames, server.version) == ([], None)


@pytest.mark.requirement("CON-20", "A-28")
@pytest.mark.parametrize(
    ("value", "version"),
    [("1.0,1.1,2.0", V1_1), ("2.0,1.1,1.0", V1_1), (" 1.1 , 1.0 ", V1_1), ("1.0,,x", V1_0), ("9.9,1.0", V1_0)],
)
def test_a_broker_of_1_0_and_1_1_reads_any_list(value: str, version: Version) -> None:
    server = ServerProtocol(versions=(V1_0, V1_1))
    server.receive(wire("CONNECT", {"accept-version": value, "host": "h"}))
    assert server.version is version


@pytest.mark.requirement("CON-21", "CON-04", "A-27", "A-28", "A-14")
@pytest.mark.parametrize(
    ("mine", "value", "shown"),
    [
        (NEGOTIABLE, "9.9", "CONNECT with accept-version '9.9'"),
        (NEGOTIABLE, "", "CONNECT with accept-version ''"),
        ((V1_2,), None, "CONNECT without accept-version"),
        ((V1_1,), "1.0,1.2", "CONNECT with accept-version '1.0,1.2'"),
        ((V1_0,), "x" * 500, "CONNECT with accept-version 'xxx"),
    ],
    ids=str,
)
def test_no_common_version_is_an_error_that_lists_what_the_broker_speaks(
    mine: tuple[Version, ...], value: str | None, shown: str
) -> None:
    server = ServerProtocol(versions=mine)
    why = refused(server, wire("CONNECT", {"host": "h"} if value is None else {"accept-version": value}))
    ours = ",".join(map(str, mine))
    assert why.startswith(f"no common version: {shown}")
    assert why.endswith(f"the broker supports {ours} (Protocol Negotiation)")
    assert len(why) < 200
    client = ClientProtocol()
    client.connect(host="h")
    (frame,) = client.receive(server.fail(why, offender=server.offender))
    assert (frame.headers["version"], frame.headers["content-type"]) == (ours, "text/plain")
    assert frame.body.startswith(why.encode())
    assert server.state is State.FAILED
    offered = [version for version in NEGOTIABLE if version not in mine]
    words, mismatch = explain_refusal(frame, offered)
    assert words == why
    assert mismatch is not None
    assert mismatch.supported == tuple(map(str, mine))


# ----------------------------------------------------------------------------------- the right rules after CONNECTED

PADDED_ESCAPED = b"SEND\ndestination: a\\cb \n\n\0"


@pytest.mark.requirement("CON-19", "CON-24", "A-14", "FRM-12", "ESC-01", "FRM-03", "FRM-04")
@pytest.mark.parametrize(
    ("version", "destination", "crlf"), [(V1_0, "a\\cb", True), (V1_1, " a:b ", False), (V1_2, " a:b ", True)], ids=str
)
def test_frames_after_connect_wait_and_are_read_by_the_version_agreed_on(
    version: Version, destination: str, crlf: bool
) -> None:
    stream = wire("CONNECT", CONNECT_OF[version]) + PADDED_ESCAPED + b"SEND\r\ndestination:/q\r\n\r\n\0"
    for chunks in splits(stream):
        server = ServerProtocol()
        frames: list[Frame] = []
        for chunk in chunks:
            came = server.receive(chunk)
            if server.state is State.CONNECTING:
                server.connected("s")
                came += server.receive(b"")
            frames += came
        assert frames[1].headers["destination"] == destination
        assert commands(frames) == ["CONNECT", "SEND"] + ["SEND"] * crlf
        assert (server.error is None) is crlf


def test_nothing_after_connect_comes_before_it_was_answered() -> None:
    server = ServerProtocol()
    assert commands(server.receive(wire("CONNECT", CONNECT_OF[V1_2]) + wire("SEND", SEND))) == ["CONNECT"]
    assert server.receive(b"") == server.receive(wire("SEND", SEND)) == []
    server.connected("s")
    assert commands(server.receive(b"")) == ["SEND", "SEND"]


@pytest.mark.requirement("CON-19", "CON-20", "CON-24", "CON-22")
@pytest.mark.parametrize(
    ("offered", "spoken"),
    [
        (offered, spoken)
        for offered in [NEGOTIABLE, (V1_0,), (V1_1,), (V1_2,), (V1_0, V1_1), (V1_1, V1_2)]
        for spoken in [NEGOTIABLE, (V1_0,), (V1_1,), (V1_2,), (V1_0, V1_1), (V1_1, V1_2)]
    ],
    ids=str,
)
def test_both_sides_follow_the_same_rules_after_the_handshake(
    offered: tuple[Version, ...], spoken: tuple[Version, ...]
) -> None:
    client, server = ClientProtocol(versions=offered), ServerProtocol(versions=spoken)
    server.receive(client.connect(host="h"))
    common = [version for version in offered if version in spoken]
    if not common:
        (frame,) = client.receive(server.fail(str(server.error)))
        assert explain_refusal(frame, offered)[1] is not None
        return
    client.receive(server.connected("s"))
    version = common[-1]
    assert client.version is server.version is version
    value = "a:b\\c" if version is V1_0 else "a:b\\c\nd"
    headers = {"destination": value, "message-id": "1", "subscription": "0"}
    (frame,) = server.receive(client.send("SEND", headers, b"a\0b"))
    assert (frame.headers["destination"], frame.body) == (value, b"a\0b")
    (frame,) = client.receive(server.send("MESSAGE", headers, b"a\0b"))
    assert (frame.headers["destination"], frame.body) == (value, b"a\0b")
    nack = {"message-id": "1", "subscription": "0", "id": "1"}
    if version is V1_0:
        with pytest.raises(LocalProtocolError):
            client.send("NACK", nack)
        assert "unknown command 'NACK' in STOMP 1.0" in refused(server, wire("NACK", nack))
    else:
        assert commands(server.receive(client.send("NACK", nack))) == ["NACK"]


@pytest.mark.requirement("REP-02", "A-36", "REP-03")
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
def test_of_a_repeated_header_the_first_counts_and_all_are_kept(version: Version) -> None:
    (frame,) = server_of(version).receive(wire("SEND", [("destination", "/a"), ("destination", "/b")], b"x"))
    assert frame.headers["destination"] == "/a"
    assert frame.headers.getall("destination") == ("/a", "/b")


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
            Limits(max_headers=10),
            wire("SEND", [("destination", "/q")] * 10),
            wire("SEND", [("destination", "/q")] * 11),
            "max_headers",
        ),
        (
            Limits(max_header_line=20),
            wire("SEND", {"destination": "/q" * 4}),
            b"SEND\ndestination:" + b"x" * 20,
            "max_header_line",
        ),
        (Limits(max_body=3), wire("SEND", SEND, b"abc"), b"SEND\ndestination:/q\ncontent-length:4\n\n", "max_body"),
        (Limits(max_body=3), wire("SEND", SEND, b"abc"), b"SEND\ndestination:/q\n\nabcd", "max_body"),
    ],
    ids=["headers", "line", "counted body", "uncounted body"],
)
def test_past_a_limit_an_error_names_it(
    version: Version, limits: Limits, fine: bytes, too_much: bytes, name: str
) -> None:
    connect = {"username": "fred", "passcode": "x"} if version is DRAFT else {"accept-version": version.value}
    server = ServerProtocol(versions=(version,), limits=limits)
    server.receive(wire("CONNECT", connect))
    server.connected("s-1")
    assert commands(server.receive(fine)) == ["SEND"]
    why = refused(server, too_much)
    assert isinstance(server.error, FrameTooLarge)
    assert why.endswith(f"(limit {name}={getattr(limits, name)})")
    assert parsed(server.fail(why), version).headers["message"] == why


@pytest.mark.requirement("LIM-01", "LIM-02", "CON-04")
def test_a_connect_past_a_limit_is_refused_too() -> None:
    server = ServerProtocol(limits=Limits(max_header_line=100))
    assert "max_header_line=100" in refused(server, b"CONNECT\nlogin:" + b"x" * 101)
    assert server.fail(str(server.error)).startswith(
        b"ERROR\nmessage:a header line is too long (limit max_header_line=100)\n"
    )


def test_a_refused_connect_may_be_followed_by_another() -> None:
    server = ServerProtocol()
    assert server.receive(wire("CONNECT", {"accept-version": "9.9", "host": "h"})) == []
    assert fault_of(server.error or Exception()) is Fault.NO_COMMON_VERSION
    server.await_another_connect()
    (frame,) = server.receive(wire("CONNECT", CONNECT_OF[V1_2]) + wire("SEND", SEND))
    assert (frame.command, server.error, server.version) == ("CONNECT", None, V1_2)
    server.connected("s-1")
    assert commands(server.receive(b"")) == ["SEND"]


def test_the_versions_that_are_offered_may_be_read_in_another_way() -> None:
    server = ServerProtocol(offered=lambda value: (V1_1,))
    server.receive(wire("CONNECT", CONNECT_OF[V1_2]))
    assert server.version is V1_1


def test_a_violation_says_which_rule_it_is() -> None:
    server = server_of(V1_2)
    assert server.receive(wire("SUBSCRIBE", {"destination": "/q"})) == []
    assert fault_of(server.error or Exception()) is Fault.NO_ID
    assert fault_of(FrameTooLarge("x", limit_name="a", limit=1)) is None
