"""Never a silent repair: what is refused names the rule, what was wrong with it (cut, no secret), and the limit."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from stompy.errors import FrameTooLargeError, LocalProtocolError, RemoteProtocolError, VersionMismatchError
from stompy.frames.grammar import FrameLimits, Version
from stompy.protocol.ack import Ledger, ack_headers
from stompy.protocol.client import ClientProtocol
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.server import ServerProtocol
from tests.protocol.exchange import (
    CONNECT_OF,
    CONNECTED_OF,
    DRAFT,
    V1_0,
    V1_1,
    V1_2,
    client_of,
    server_of,
    wire,
)

SECRET = "s3cr3t-pass"
LONG = "x" * 20_000
LONGEST_MESSAGE = 300
SECTIONS = {
    "STOMP Frames",
    "Value Encoding",
    "Augmented BNF",
    "Body",
    "Header content-length",
    "Connecting",
    "CONNECT or STOMP Frame",
    "CONNECTED Frame",
    "Protocol Negotiation",
    "Heart-beating",
    "Client Frames",
    "Server Frames",
    "SUBSCRIBE id Header",
    "SUBSCRIBE ack Header",
    *("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "MESSAGE", "RECEIPT"),
    *("CONNECT", "CONNECTED", "1.0-draft, Frames"),
}


def hold(error: BaseException | None, section: str, *shown: str) -> None:
    """Check the words of a refusal."""
    assert error is not None
    words = str(error)
    named = re.search(r"\(([^()]+)\)(?: \(limit \w+=\d+\))?$", words)
    assert named is not None, words
    assert named[1] == section
    assert section in SECTIONS or section.startswith("limit ")
    for excerpt in shown:
        assert excerpt in words
    assert len(words) <= LONGEST_MESSAGE, words
    assert SECRET not in words
    assert words.isprintable()


def connect(version: Version, **more: str) -> bytes:
    secret = {"login": "u", "passcode": SECRET}
    return wire("CONNECT", {**CONNECT_OF[version], **secret, **{name.replace("_", "-"): more[name] for name in more}})


NEW = [
    (V1_2, wire("SEND", {"destination": "/q"}), "Connecting", ["SEND", "no CONNECT was sent yet"]),
    (V1_2, wire("FOO"), "Client Frames", ["'FOO'"]),
    (V1_2, wire("x" * 64), "Client Frames", ["'xxx"]),
    (V1_2, b"GET / HTTP/1.1\r\n", "STOMP Frames", ["'GET / HTTP/1.1"]),
    (V1_2, connect(V1_2, heart_beat="1"), "Heart-beating", ["'1'", "10 digits"]),
    (V1_2, connect(V1_2, heart_beat=LONG), "Heart-beating", ["'xxx", "…"]),
    (V1_2, connect(V1_2, accept_version="9.9"), "Protocol Negotiation", ["'9.9'", "1.0,1.1,1.2"]),
    (V1_2, connect(V1_2, accept_version=LONG), "Protocol Negotiation", ["'xxx", "…"]),
    (V1_2, connect(V1_2)[:-1] + b"body\0", "Body", ["CONNECT"]),
    (V1_1, wire("CONNECT", {"accept-version": "1.1", "passcode": SECRET}), "CONNECT or STOMP Frame", ["'host'"]),
    (DRAFT, wire("CONNECT", {"passcode": SECRET}), "CONNECT", ["'username'"]),
    (DRAFT, wire("STOMP", {"passcode": SECRET}), "Client Frames", ["'STOMP'"]),
    (V1_2, b"CONNECT\npasscode " + SECRET.encode() + b"\n\n\0", "Augmented BNF", ["hidden"]),
    (V1_2, b"CONNECT\nlogin:u\npasscode:" + SECRET.encode() + b"\0", "Augmented BNF", ["hidden"]),
    (V1_2, b"CONNECT\npasscode:" + SECRET.encode() + b"\ncontent-length:x\n\n\0", "Header content-length", ["'x'"]),
]


@pytest.mark.requirement("CON-04", "SRV-10", "LIM-03")
@pytest.mark.parametrize(("version", "data", "section", "shown"), NEW)
def test_a_broker_says_why_it_refuses_a_first_frame(
    version: Version, data: bytes, section: str, shown: list[str]
) -> None:
    server = ServerProtocol(versions=(DRAFT,) if version is DRAFT else (V1_0, V1_1, V1_2), require_host=True)
    assert server.receive(data) == []
    hold(server.error, section, *shown)
    error = server.fail(str(server.error), offender=server.offender)
    assert SECRET.encode() not in error


SUBSCRIBED = wire("SUBSCRIBE", {"destination": "/q", "id": "1"})
IN_SESSION = [
    (V1_2, wire("CONNECT"), "Connecting", ["CONNECT", "the session is open"]),
    (V1_2, wire("DISCONNECT") + wire("SEND", {"destination": "/q"}), "Connecting", ["SEND", "DISCONNECT was sent"]),
    (V1_2, wire("FOO"), "Client Frames", ["'FOO'", "1.2"]),
    (V1_0, wire("NACK", {"message-id": "1"}), "Client Frames", ["'NACK'", "1.0"]),
    (V1_2, wire("SEND", {"x": LONG}), "SEND", ["'destination'", "1.2"]),
    (V1_2, wire("SUBSCRIBE", {"destination": "/q"}), "SUBSCRIBE", ["'id'"]),
    (V1_0, wire("UNSUBSCRIBE"), "UNSUBSCRIBE", ["'destination' or 'id'"]),
    (V1_2, wire("SUBSCRIBE", {"destination": "/q", "id": "1", "ack": "maybe"}), "SUBSCRIBE ack Header", ["'maybe'"]),
    (V1_2, wire("SUBSCRIBE", {"destination": "/q", "id": "1", "ack": LONG}), "SUBSCRIBE ack Header", ["…"]),
    (V1_2, SUBSCRIBED * 2, "SUBSCRIBE id Header", ["'1'"]),
    (V1_0, wire("SUBSCRIBE", {"destination": LONG}) * 2, "SUBSCRIBE id Header", ["on 'xxx", "…"]),
    (V1_2, wire("UNSUBSCRIBE", {"id": LONG}), "UNSUBSCRIBE", ["'xxx", "…"]),
    (V1_2, wire("BEGIN", {"transaction": "t\x1b"}) * 2, "BEGIN", [r"'t\x1b'"]),
    (V1_2, wire("COMMIT", {"transaction": LONG}), "COMMIT", ["'xxx", "…"]),
    (V1_2, wire("ABORT", {"transaction": "t"}), "ABORT", ["'t'"]),
    (V1_2, wire("SEND", {"destination": "/q", "transaction": "t"}), "SEND", ["'t'"]),
    (V1_2, wire("ACK", {"id": "1", "transaction": "t"}), "ACK", ["'t'"]),
    (V1_2, wire("NACK", {"id": "1", "transaction": "t"}), "NACK", ["'t'"]),
    (V1_2, wire("SUBSCRIBE", {"destination": "/q", "id": "1"}, b"x"), "Body", ["SUBSCRIBE"]),
    (V1_2, wire("SEND", {"destination": "\\t"}), "Value Encoding", [r"\\t"]),
    (V1_2, wire("SEND", [("", "v")]), "Augmented BNF", ["':v'"]),
    (V1_2, b"SEND\nno colon\n\n\0", "Augmented BNF", ["'no colon'"]),
    (DRAFT, wire("SEND", {"destination": "a\tb"}), "1.0-draft, Frames", [r"'\t'"]),
]


@pytest.mark.requirement("SRV-10", "SRV-13")
@pytest.mark.parametrize(("version", "data", "section", "shown"), IN_SESSION)
def test_a_broker_says_why_it_refuses_a_frame_of_a_session(
    version: Version, data: bytes, section: str, shown: list[str]
) -> None:
    server = server_of(version)
    server.receive(data)
    hold(server.error, section, *shown)
    assert b"\nmessage:" in server.fail(str(server.error), offender=server.offender)


@pytest.mark.requirement("LIM-01", "LIM-02", "LIM-03")
@pytest.mark.parametrize(
    ("limits", "data", "limit"),
    [
        (FrameLimits(max_headers=3), wire("SEND", [("a", "b")] * 4), "limit max_headers=3"),
        (FrameLimits(max_header_line=40), b"SEND\npasscode:" + SECRET.encode() * 20, "limit max_header_line=40"),
        (FrameLimits(max_body=3), wire("SEND", {"content-length": "9" * 30}), "limit max_body=3"),
        (FrameLimits(max_body=3), b"SEND\n\nabcdefgh", "limit max_body=3"),
    ],
)
def test_what_is_too_large_names_the_limit(limits: FrameLimits, data: bytes, limit: str) -> None:
    server = ServerProtocol(limits=limits)
    server.receive(wire("CONNECT", {"accept-version": "1.2", "host": "h"}))
    server.connected("s")
    server.receive(data)
    assert isinstance(server.error, FrameTooLargeError)
    hold(server.error, limit)


FROM_BROKER = [
    (V1_2, wire("FOO"), "Server Frames", ["'FOO'"]),
    (V1_2, wire("SEND", {"destination": "/q"}), "Server Frames", ["'SEND'"]),
    (V1_2, wire("CONNECTED"), "Connecting", ["CONNECTED", "the session is open"]),
    (V1_2, wire("MESSAGE", {"destination": LONG, "message-id": "1"}), "MESSAGE", ["'subscription'", "1.2"]),
    (V1_0, wire("MESSAGE", {"destination": "/q"}), "MESSAGE", ["'message-id'"]),
    (V1_2, wire("RECEIPT"), "RECEIPT", ["'receipt-id'"]),
    (V1_2, wire("RECEIPT", {"receipt-id": "1"}, b"x"), "Body", ["RECEIPT"]),
]


@pytest.mark.requirement("SRV-01")
@pytest.mark.parametrize(("version", "data", "section", "shown"), FROM_BROKER)
def test_a_client_says_why_it_refuses_a_frame(version: Version, data: bytes, section: str, shown: list[str]) -> None:
    client = client_of(version)
    assert client.receive(data) == []
    hold(client.error, section, *shown)


HANDSHAKE = [
    (wire("MESSAGE", {"destination": "/q"}), "Connecting", ["MESSAGE", "CONNECT was sent"]),
    (wire("CONNECTED", {"version": "1.1"}), "Protocol Negotiation", ["'1.1'", "1.2"]),
    (wire("CONNECTED", {"version": LONG}), "Protocol Negotiation", ["'xxx", "…"]),
    (wire("CONNECTED", {**CONNECTED_OF[V1_2], "heart-beat": "a,b"}), "Heart-beating", ["'a,b'"]),
    (wire("CONNECTED", CONNECTED_OF[V1_2], b"x"), "Body", ["CONNECTED"]),
]


@pytest.mark.requirement("SRV-01", "A-29")
@pytest.mark.parametrize(("data", "section", "shown"), HANDSHAKE)
def test_a_client_says_why_it_refuses_an_answer_to_connect(data: bytes, section: str, shown: list[str]) -> None:
    client = ClientProtocol(versions=(V1_2,))
    client.connect(host="h", login="u", passcode=SECRET)
    assert client.receive(data) == []
    hold(client.error, section, *shown)


def test_a_version_mismatch_names_both_lists() -> None:
    client = ClientProtocol(versions=(V1_2,))
    client.connect(host="h", passcode=SECRET)
    client.receive(wire("CONNECTED"))
    assert isinstance(client.error, VersionMismatchError)
    assert (client.error.offered, client.error.supported) == (("1.2",), ("1.0",))


def _connecting(server: ServerProtocol) -> ServerProtocol:
    server.receive(wire("CONNECT", CONNECT_OF[V1_2]))
    return server


def _nothing(name: str) -> None:
    return None


LOCAL: list[tuple[Callable[[], object], str]] = [
    (lambda: ClientProtocol().connect(host="h", command="FOO"), "Connecting"),
    (lambda: ClientProtocol(versions=(V1_0,)).connect(host="h", command="STOMP"), "CONNECT or STOMP Frame"),
    (lambda: ClientProtocol().connect(host="h", passcode=f"{SECRET}\n"), "Value Encoding"),
    (lambda: ClientProtocol().connect(host="h", headers={"receipt": SECRET}), "CONNECT or STOMP Frame"),
    (lambda: server_of(V1_2).connected("s"), "Connecting"),
    (lambda: ServerProtocol().send("RECEIPT", {"receipt-id": "1"}), "Connecting"),
    (lambda: client_of(V1_2).send(LONG, {}), "Client Frames"),
    (lambda: client_of(V1_2).send("SEND", {}), "SEND"),
    (lambda: client_of(V1_2).send("SUBSCRIBE", {"destination": "/q", "id": "1"}, b"x"), "Body"),
    (lambda: client_of(V1_2).send("COMMIT", {"transaction": LONG}), "COMMIT"),
    (lambda: ack_headers("NACK", _nothing, V1_0), "NACK"),
    (lambda: ack_headers("ACK", _nothing, V1_2), "ACK"),
    (lambda: ServerProtocol(server=LONG + " "), "CONNECTED Frame"),
    (lambda: _connecting(ServerProtocol()).connected(LONG + ":"), "Value Encoding"),
    (lambda: server_of(V1_2).send(LONG, {}), "Server Frames"),
    (lambda: server_of(V1_2).send("MESSAGE", {}), "MESSAGE"),
]


@pytest.mark.parametrize(("ask", "section"), LOCAL)
def test_what_this_side_must_not_say_is_refused_with_its_rule(ask: Callable[[], object], section: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        ask()
    hold(caught.value, section)


@pytest.mark.requirement("A-35", "A-43")
def test_an_unknown_message_is_named_cut() -> None:
    ledger: Ledger[None] = Ledger()
    ledger.add(LONG, "a", None)
    for ask in (lambda: ledger.take("7", cumulative=True), lambda: ledger.find(LONG, subscription="b")):
        with pytest.raises(RemoteProtocolError) as caught:
            ask()
        hold(caught.value, "ACK")


def test_a_heart_beat_is_refused_by_its_rule() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        HeartbeatOffer.parse(LONG)
    hold(caught.value, "Heart-beating", "10 digits", "…")
