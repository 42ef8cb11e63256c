from __future__ import annotations

import itertools

import pytest

from stompy.errors import LimitExceededError, LocalProtocolError
from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS, Version
from stompy.protocol.state import (
    EVENTS,
    TRANSITIONS,
    ProtocolEvent,
    SessionIds,
    State,
    next_state,
    subscription_key,
)
from tests.protocol.exchange import ALL, DRAFT, MODERN, V1_0, client_of, commands, server_of, wire

# Written out a second time, so that no cell of the table changes unseen.
PASSES = {
    (State.NEW, ProtocolEvent.CONNECT): State.CONNECTING,
    (State.NEW, ProtocolEvent.ERROR): State.FAILED,
    (State.NEW, ProtocolEvent.END): State.CLOSED,
    (State.CONNECTING, ProtocolEvent.CONNECTED): State.CONNECTED,
    (State.CONNECTING, ProtocolEvent.ERROR): State.FAILED,
    (State.CONNECTING, ProtocolEvent.END): State.CLOSED,
    (State.CONNECTED, ProtocolEvent.CLIENT_FRAME): State.CONNECTED,
    (State.CONNECTED, ProtocolEvent.SERVER_FRAME): State.CONNECTED,
    (State.CONNECTED, ProtocolEvent.DISCONNECT): State.DISCONNECTING,
    (State.CONNECTED, ProtocolEvent.ERROR): State.FAILED,
    (State.CONNECTED, ProtocolEvent.END): State.CLOSED,
    (State.DISCONNECTING, ProtocolEvent.SERVER_FRAME): State.DISCONNECTING,
    (State.DISCONNECTING, ProtocolEvent.ERROR): State.FAILED,
    (State.DISCONNECTING, ProtocolEvent.END): State.CLOSED,
    (State.FAILED, ProtocolEvent.END): State.CLOSED,
    (State.CLOSED, ProtocolEvent.END): State.CLOSED,
}


@pytest.mark.requirement("CON-01", "CON-23", "DIS-03", "D10-17", "SRV-11")
@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, ProtocolEvent)), ids=str)
def test_only_what_the_table_lists_passes(state: State, event: ProtocolEvent) -> None:
    assert TRANSITIONS[state].get(event) is PASSES.get((state, event))


@pytest.mark.parametrize("command", sorted(CLIENT_COMMANDS | SERVER_COMMANDS))
def test_every_command_of_the_specification_is_an_event(command: str) -> None:
    assert command in EVENTS


@pytest.mark.requirement("CON-05", "A-27")
def test_stomp_is_the_same_event_as_connect() -> None:
    assert EVENTS["STOMP"] is EVENTS["CONNECT"] is ProtocolEvent.CONNECT


@pytest.mark.parametrize("state", State)
def test_an_unknown_command_leads_nowhere(state: State) -> None:
    assert next_state(state, "FOO") is None


@pytest.mark.parametrize(("state", "command"), list(itertools.product(State, sorted(EVENTS))), ids=str)
def test_a_frame_leads_where_its_event_leads(state: State, command: str) -> None:
    assert next_state(state, command) is PASSES.get((state, EVENTS[command]))


@pytest.mark.requirement("DIS-01")
@pytest.mark.parametrize("state", State)
def test_the_stream_may_end_at_any_time(state: State) -> None:
    assert TRANSITIONS[state][ProtocolEvent.END] is State.CLOSED


SUBSCRIBE = {"destination": "/q", "id": "1"}
BEGIN = {"transaction": "t"}
IN_TRANSACTION = {
    "SEND": {"destination": "/q"},
    "ACK": {"id": "1", "message-id": "1", "subscription": "1"},
    "NACK": {"id": "1", "message-id": "1", "subscription": "1"},
    "COMMIT": {},
    "ABORT": {},
}


def test_an_id_and_a_destination_are_never_the_same_key() -> None:
    assert subscription_key({"id": "/q", "destination": "/q"}.get) != subscription_key({"destination": "/q"}.get)
    assert subscription_key({"id": "", "destination": "/q"}.get) != subscription_key({"destination": "/q"}.get)


@pytest.mark.requirement("SUB-06", "A-31")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_second_subscription_needs_another_id(version: Version) -> None:
    server = server_of(version)
    assert commands(server.receive(wire("SUBSCRIBE", SUBSCRIBE) + wire("SUBSCRIBE", SUBSCRIBE))) == ["SUBSCRIBE"]
    assert str(server.error) == "there is already a subscription '1' (SUBSCRIBE id Header)"
    client = client_of(version)
    client.send("SUBSCRIBE", SUBSCRIBE)
    with pytest.raises(LocalProtocolError, match="already a subscription '1'"):
        client.send("SUBSCRIBE", SUBSCRIBE)
    assert client.send("SUBSCRIBE", {**SUBSCRIBE, "id": "2"})


@pytest.mark.requirement("SUB-03")
def test_overlapping_subscriptions_of_1_0_are_distinguished_by_their_ids() -> None:
    server = server_of(V1_0)
    server.receive(wire("SUBSCRIBE", SUBSCRIBE) + wire("SUBSCRIBE", {**SUBSCRIBE, "id": "2"}))
    server.receive(wire("SUBSCRIBE", {"destination": "/q"}))
    assert (server.error, list(server.subscriptions)) == (None, ["#1", "#2", "@/q"])


@pytest.mark.requirement("A-31", "SUB-14")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_an_id_is_free_again_after_unsubscribe(version: Version) -> None:
    server, client = server_of(version), client_of(version)
    for command, headers in (("SUBSCRIBE", SUBSCRIBE), ("UNSUBSCRIBE", {"id": "1"}), ("SUBSCRIBE", SUBSCRIBE)):
        assert commands(server.receive(client.send(command, headers))) == [command]
    assert list(server.subscriptions) == ["#1"]


@pytest.mark.requirement("A-32")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_a_second_subscription_without_id_on_one_destination_is_refused(version: Version) -> None:
    server = server_of(version)
    assert len(server.receive(wire("SUBSCRIBE", {"destination": "/q"}) * 2)) == 1
    assert str(server.error) == "there is already a subscription on '/q' (SUBSCRIBE id Header)"


@pytest.mark.requirement("SUB-14", "A-30")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_unsubscribe_of_an_unknown_id_is_refused(version: Version) -> None:
    server = server_of(version)
    assert server.receive(wire("UNSUBSCRIBE", {"id": "1"})) == []
    assert str(server.error) == "there is no subscription '1' (UNSUBSCRIBE)"


def test_a_client_may_unsubscribe_what_it_did_not_subscribe_to_delete_a_durable_subscription() -> None:
    client = client_of(Version.V1_2)
    assert client.send("UNSUBSCRIBE", {"id": "1", "activemq.subscriptionName": "n"}).startswith(b"UNSUBSCRIBE\n")


@pytest.mark.requirement("SUB-13", "A-30")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_unsubscribe_by_destination_ends_the_subscription_made_without_id(version: Version) -> None:
    server = server_of(version)
    server.receive(wire("SUBSCRIBE", SUBSCRIBE) + wire("SUBSCRIBE", {"destination": "/q"}))
    assert commands(server.receive(wire("UNSUBSCRIBE", {"destination": "/q"}))) == ["UNSUBSCRIBE"]
    assert list(server.subscriptions) == ["#1"]
    assert server.receive(wire("UNSUBSCRIBE", {"destination": "/q"})) == []
    assert str(server.error) == "there is no subscription on '/q' (UNSUBSCRIBE)"


@pytest.mark.requirement("SUB-14")
@pytest.mark.parametrize("version", MODERN, ids=str)
def test_unsubscribe_by_destination_is_refused_from_1_1_on(version: Version) -> None:
    server = server_of(version)
    server.receive(wire("SUBSCRIBE", SUBSCRIBE))
    assert server.receive(wire("UNSUBSCRIBE", {"destination": "/q"})) == []
    assert "needs a 'id' header" in str(server.error)


@pytest.mark.requirement("TXN-04", "A-42")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_transaction_cannot_begin_twice(version: Version) -> None:
    server = server_of(version)
    assert len(server.receive(wire("BEGIN", BEGIN) * 2)) == 1
    assert str(server.error) == "transaction 't' is already open (BEGIN)"
    client = client_of(version)
    client.send("BEGIN", BEGIN)
    with pytest.raises(LocalProtocolError, match="'t' is already open"):
        client.send("BEGIN", BEGIN)


@pytest.mark.requirement("TXN-05", "TXN-06", "A-42")
@pytest.mark.parametrize("ending", ["COMMIT", "ABORT"])
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_transaction_id_is_free_again_after_its_end(version: Version, ending: str) -> None:
    server, client = server_of(version), client_of(version)
    for command in ("BEGIN", ending, "BEGIN"):
        assert commands(server.receive(client.send(command, BEGIN))) == [command]
    assert server.transactions == {"t"}


@pytest.mark.requirement("TXN-03", "TXN-05", "TXN-06", "A-42", "ACK-12", "SND-04")
@pytest.mark.parametrize(
    ("version", "command"),
    [(version, command) for version in ALL for command in IN_TRANSACTION if command != "NACK" or version in MODERN],
    ids=str,
)
def test_a_frame_in_a_transaction_needs_it_to_be_open(version: Version, command: str) -> None:
    headers = {**IN_TRANSACTION[command], "transaction": "t"}
    server, client = server_of(version), client_of(version)
    server.receive(client.send("BEGIN", {"transaction": "other"}))
    with pytest.raises(LocalProtocolError, match="no open transaction 't'"):
        client.send(command, headers)
    assert server.receive(wire(command, headers)) == []
    assert str(server.error) == f"there is no open transaction 't' ({command})"
    server, client = server_of(version), client_of(version)
    server.receive(client.send("BEGIN", BEGIN))
    assert commands(server.receive(client.send(command, headers))) == [command]


@pytest.mark.requirement("TXN-03")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_transaction_header_means_nothing_on_other_frames(version: Version) -> None:
    server = server_of(version)
    assert commands(server.receive(wire("SUBSCRIBE", {**SUBSCRIBE, "transaction": "t"}))) == ["SUBSCRIBE"]


@pytest.mark.requirement("TXN-01")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_several_transactions_are_open_at_once(version: Version) -> None:
    server = server_of(version)
    for name in "abc":
        server.receive(wire("BEGIN", {"transaction": name}))
    server.receive(wire("COMMIT", {"transaction": "b"}))
    assert (server.error, server.transactions) == (None, {"a", "c"})


def test_a_refused_frame_changes_nothing() -> None:
    ids = SessionIds()
    assert ids.violation("COMMIT", BEGIN.get)
    assert ids.violation("UNSUBSCRIBE", {"id": "1"}.get)
    assert (ids.subscriptions, ids.transactions) == ({}, set())


def test_a_frame_that_cannot_be_written_is_not_booked() -> None:
    client = client_of(Version.V1_2)
    with pytest.raises(LocalProtocolError):
        client.send("SUBSCRIBE", {**SUBSCRIBE, "bad\0name": ""})
    assert client.send("SUBSCRIBE", SUBSCRIBE)


def test_a_limit_of_ids_is_named_and_an_id_given_back_makes_room() -> None:
    ids = SessionIds()
    limits = {"max_subscriptions": 1, "max_transactions": 1}
    for command, undo, headers, name in (
        ("SUBSCRIBE", "UNSUBSCRIBE", SUBSCRIBE, "max_subscriptions"),
        ("BEGIN", "ABORT", BEGIN, "max_transactions"),
    ):
        ids.check_limits(command, **limits)
        ids.record(command, headers.get)
        with pytest.raises(LimitExceededError, match=f"{name}=1"):
            ids.check_limits(command, **limits)
        ids.check_limits("SEND", **limits)
        ids.record(undo, headers.get)
        ids.check_limits(command, **limits)
