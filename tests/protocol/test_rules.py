from __future__ import annotations

import itertools

import pytest

from stompy.errors import LocalProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import CLIENT_COMMANDS, NEGOTIABLE, SERVER_COMMANDS, Leniency, Version, grammar_of
from stompy.protocol import rules
from stompy.protocol.client import ClientProtocol
from stompy.protocol.rules import accept_version, checked_versions, highest_common, parse_accept_version
from stompy.protocol.server import ServerProtocol
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
    server_of,
    wire,
)

# The cheat sheet of frames and headers, line by line: what a frame must have, in each version.
TRANSACTION = ("transaction",)
CLIENT_SHEET: dict[str, dict[Version, tuple[str, ...]]] = {
    "SEND": dict.fromkeys(ALL, ("destination",)),
    "SUBSCRIBE": {
        DRAFT: ("destination",),
        V1_0: ("destination",),
        V1_1: ("destination", "id"),
        V1_2: ("destination", "id"),
    },
    "UNSUBSCRIBE": {DRAFT: (), V1_0: (), V1_1: ("id",), V1_2: ("id",)},
    "ACK": {DRAFT: ("message-id",), V1_0: ("message-id",), V1_1: ("message-id", "subscription"), V1_2: ("id",)},
    "NACK": {V1_1: ("message-id", "subscription"), V1_2: ("id",)},
    "BEGIN": dict.fromkeys(ALL, TRANSACTION),
    "COMMIT": dict.fromkeys(ALL, TRANSACTION),
    "ABORT": dict.fromkeys(ALL, TRANSACTION),
    "DISCONNECT": dict.fromkeys(ALL, ()),
}
SERVER_SHEET: dict[str, dict[Version, tuple[str, ...]]] = {
    "MESSAGE": {
        DRAFT: ("destination", "message-id"),
        V1_0: ("destination", "message-id"),
        V1_1: ("destination", "message-id", "subscription"),
        V1_2: ("destination", "message-id", "subscription"),
    },
    "RECEIPT": dict.fromkeys(ALL, ("receipt-id",)),
    "ERROR": dict.fromkeys(ALL, ()),
}
ROWS = {
    "SEND": "SND-01",
    "SUBSCRIBE": "SUB-05",
    "UNSUBSCRIBE": "SUB-14",
    "ACK": "ACK-11",
    "NACK": "ACK-10",
    "BEGIN": "TXN-01",
    "COMMIT": "TXN-05",
    "ABORT": "TXN-06",
    "DISCONNECT": "DIS-07",
    "MESSAGE": "SRV-02",
    "RECEIPT": "SRV-08",
    "ERROR": "SRV-10",
}
FOUND = {
    "id": "7",
    "destination": "/q",
    "message-id": "m-7",
    "subscription": "7",
    "transaction": "t",
    "receipt-id": "r",
}


def cases(sheet: dict[str, dict[Version, tuple[str, ...]]]) -> list[object]:
    return [
        pytest.param(command, version, names, id=f"{command}-{version}", marks=pytest.mark.requirement(ROWS[command]))
        for command, versions in sheet.items()
        for version, names in versions.items()
    ]


def headers_of(names: tuple[str, ...], command: str) -> dict[str, str]:
    if command == "UNSUBSCRIBE" and not names:
        names = ("destination",)
    return {name: FOUND[name] for name in names}


def server_knowing(command: str, version: Version) -> ServerProtocol:
    """Return a broker's end that has the subscriptions and transactions which the frames of the sheet name."""
    server = server_of(version)
    if command == "UNSUBSCRIBE":
        server.subscriptions.update({"#7": "auto", "@/q": "auto"})
    elif command != "BEGIN":
        server.transactions.add("t")
    return server


def client_knowing(command: str, version: Version) -> ClientProtocol:
    client = client_of(version)
    if command in ("COMMIT", "ABORT"):
        client.send("BEGIN", {"transaction": "t"})
    return client


@pytest.mark.requirement(
    "SUB-01", "SUB-13", "ACK-09", "TXN-03", "TXN-04", "SUB-03", "SND-03", "SND-04", "SUB-08", "D10-22", "D10-16"
)
@pytest.mark.parametrize(("command", "version", "names"), cases(CLIENT_SHEET))
def test_a_client_frame_passes_with_the_headers_it_needs_and_not_without_one(
    command: str, version: Version, names: tuple[str, ...]
) -> None:
    headers = headers_of(names, command)
    assert rules.REQUIRED[version].get(command, ()) == names
    assert commands(server_knowing(command, version).receive(wire(command, headers))) == [command]
    assert client_knowing(command, version).send(command, headers).startswith(command.encode())
    for missing in names:
        current = {name: value for name, value in headers.items() if name != missing}
        expected = f"a {command} frame needs a {missing!r} header in STOMP {version} ({command})"
        server = server_knowing(command, version)
        assert server.receive(wire(command, current)) == []
        assert str(server.error) == expected
        with pytest.raises(LocalProtocolError) as caught:
            client_knowing(command, version).send(command, current)
        assert str(caught.value) == expected


@pytest.mark.requirement("SRV-02", "SRV-04", "SRV-05", "SRV-08", "SRV-09", "D10-19")
@pytest.mark.parametrize(("command", "version", "names"), cases(SERVER_SHEET))
def test_a_server_frame_passes_with_the_headers_it_needs_and_not_without_one(
    command: str, version: Version, names: tuple[str, ...]
) -> None:
    headers = headers_of(names, command)
    assert rules.REQUIRED[version].get(command, ()) == names
    assert commands(client_of(version).receive(wire(command, headers))) == [command]
    for missing in names:
        current = {name: value for name, value in headers.items() if name != missing}
        client = client_of(version)
        assert client.receive(wire(command, current)) == []
        assert str(client.error) == f"a {command} frame needs a {missing!r} header in STOMP {version} ({command})"
        with pytest.raises(LocalProtocolError, match=missing):
            server_of(version).send(command, current)
    if command != "ERROR":
        assert server_of(version).send(command, headers).startswith(command.encode())


@pytest.mark.requirement("BNF-10", "BNF-11", "ACK-14", "D10-18")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_1_0_has_neither_stomp_nor_nack(version: Version) -> None:
    known = rules.commands_of(version, client=True)
    assert known == (CLIENT_COMMANDS if version in MODERN else CLIENT_COMMANDS - {"STOMP", "NACK"})
    assert set(CLIENT_SHEET) >= known - {"CONNECT", "STOMP"}


@pytest.mark.requirement("BNF-12", "SRV-01")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_the_server_commands_are_the_same_in_every_version(version: Version) -> None:
    assert rules.commands_of(version, client=False) == SERVER_COMMANDS == {"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}


@pytest.mark.requirement("SUB-07", "SUB-08", "SUB-09", "A-33")
@pytest.mark.parametrize("version", ALL, ids=str)
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual", None])
def test_the_three_ack_modes_are_taken_in_every_version(version: Version, mode: str | None) -> None:
    headers = {"destination": "/q", "id": "1"} | ({"ack": mode} if mode else {})
    server = server_of(version)
    assert len(server.receive(wire("SUBSCRIBE", headers))) == 1
    assert server.subscriptions == {"#1": mode or "auto"}
    assert b"SUBSCRIBE" in client_of(version).send("SUBSCRIBE", headers)


@pytest.mark.requirement("SUB-09", "A-33")
@pytest.mark.parametrize("version", ALL, ids=str)
@pytest.mark.parametrize("mode", ["maybe", "", "AUTO", "client ack"])
def test_any_other_ack_mode_is_refused(version: Version, mode: str) -> None:
    headers = {"destination": "/q", "id": "1", "ack": mode}
    server = server_of(version)
    assert server.receive(wire("SUBSCRIBE", headers)) == []
    assert f"unknown ack mode {mode!r}" in str(server.error)
    with pytest.raises(LocalProtocolError, match="unknown ack mode"):
        client_of(version).send("SUBSCRIBE", headers)


@pytest.mark.requirement("SUB-13")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_unsubscribe_in_1_0_needs_a_destination_or_an_id(version: Version) -> None:
    server = server_of(version)
    assert server.receive(wire("UNSUBSCRIBE")) == []
    wanted = f"an UNSUBSCRIBE frame needs a 'destination' or 'id' header in STOMP {version} (UNSUBSCRIBE)"
    assert str(server.error) == wanted
    with pytest.raises(LocalProtocolError, match="'destination' or 'id'"):
        client_of(version).send("UNSUBSCRIBE", {})


@pytest.mark.requirement("A-37")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_header_that_is_there_may_be_empty(version: Version) -> None:
    assert rules.violation("SEND", {"destination": ""}.get, version) is None


@pytest.mark.requirement("SUB-11", "SND-05", "SND-08", "D10-20")
@pytest.mark.parametrize(("command", "version"), list(itertools.product(["SEND", "SUBSCRIBE"], ALL)), ids=str)
def test_unknown_headers_are_never_wrong(command: str, version: Version) -> None:
    headers = {"destination": "/q", "id": "1", "x-whatever": "7", "persistent": "true"}
    assert rules.violation(command, headers.get, version) is None


@pytest.mark.requirement("A-11", "BDY-01")
def test_a_body_of_the_handshake_is_refused_or_dropped_by_the_version_agreed_on() -> None:
    frame = Frame("CONNECT", CONNECT_OF[V1_2], b"x")
    violation = rules.body_violation(frame, grammar_of(V1_2))
    assert violation is not None
    assert violation.fault is rules.Fault.INVALID_BODY
    assert str(violation) == "a CONNECT frame must not have a body (Body)"
    assert frame.body == b"x"
    assert rules.body_violation(frame, grammar_of(V1_2, Leniency.UNEXPECTED_BODY)) is None
    assert frame.body == b""
    assert rules.body_violation(frame, grammar_of(V1_2)) is None


def test_an_offending_value_is_shown_cut() -> None:
    assert rules.shown("a\n") == r"'a\n'"
    assert rules.shown("x" * 60) == repr("x" * 60)
    assert rules.shown("x" * 61) == repr("x" * 60) + "…"


def test_a_client_offers_a_version() -> None:
    with pytest.raises(LocalProtocolError):
        ClientProtocol(versions=())


@pytest.mark.requirement("CON-08")
@pytest.mark.parametrize("versions", list(itertools.permutations(NEGOTIABLE)), ids=str)
def test_versions_are_offered_in_increasing_order(versions: tuple[Version, ...]) -> None:
    assert accept_version(versions) == "1.0,1.1,1.2"


@pytest.mark.requirement("CON-19")
def test_no_accept_version_means_1_0() -> None:
    assert parse_accept_version(None) == (V1_0,)


@pytest.mark.requirement("A-28")
@pytest.mark.parametrize(
    ("value", "versions"),
    [
        ("1.0", (V1_0,)),
        ("1.2,1.0,1.1", (V1_0, V1_1, V1_2)),
        ("1.0, 1.1 ,  1.2", (V1_0, V1_1, V1_2)),
        (" 1.1 ", (V1_1,)),
        ("1.2,1.2", (V1_2,)),
        ("1.1,2.0", (V1_1,)),
        ("9.9", ()),
        ("", ()),
        (" ", ()),
        (",", ()),
        (",1.1,,", (V1_1,)),
        ("1.10", ()),
        ("1", ()),
        ("1.2;1.1", ()),
        ("1.0-draft", ()),
    ],
)
def test_a_list_of_versions_is_read_in_any_order_and_unknown_ones_are_ignored(
    value: str, versions: tuple[Version, ...]
) -> None:
    assert parse_accept_version(value) == versions


@pytest.mark.requirement("CON-20")
def test_the_highest_common_version_is_chosen() -> None:
    subsets = [s for size in range(4) for s in itertools.combinations(NEGOTIABLE, size)]
    for mine, theirs in itertools.product(subsets, subsets):
        common = [version for version in NEGOTIABLE if version in mine and version in theirs]
        assert highest_common(mine, theirs) is (common[-1] if common else None)


def test_what_a_side_speaks_is_ordered_and_listed_once() -> None:
    assert checked_versions([V1_2, V1_0, V1_2]) == (V1_0, V1_2)
    assert checked_versions([DRAFT, DRAFT]) == (DRAFT,)


@pytest.mark.parametrize("versions", [(), (DRAFT, V1_0), (V1_2, DRAFT)], ids=str)
def test_a_side_speaks_something_and_the_draft_only_by_itself(versions: tuple[Version, ...]) -> None:
    with pytest.raises(LocalProtocolError, match=r"at least one version is needed; the 1\.0-draft cannot be combined"):
        checked_versions(versions)
