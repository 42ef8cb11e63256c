from __future__ import annotations

import itertools
import re

import pytest

from stompy.errors import FrameTooLargeError, LocalProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import NEGOTIABLE, Leniency, Version
from stompy.protocol.client import ClientProtocol, explain_refusal
from stompy.protocol.rules import Fault, fault_of
from stompy.protocol.server import ServerProtocol
from stompy.protocol.state import State
from tests.protocol.exchange import (
    CONNECT_OF,
    DRAFT,
    MODERN,
    V1_0,
    V1_1,
    V1_2,
    commands,
    refused,
    server_of,
    splits,
    wire,
)

SEND = {"destination": "/q"}
MESSAGE = {"destination": "/q", "message-id": "1", "subscription": "0", "ack": "a1"}


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
    assert fault_of(FrameTooLargeError("x", limit_name="a", limit=1)) is None
