from __future__ import annotations

import itertools

import pytest

from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS
from stompy.protocol.state import EVENTS, TRANSITIONS, Event, State, after, ended

# Written out a second time, so that no cell of the table changes unseen.
PASSES = {
    (State.NEW, Event.CONNECT): State.CONNECTING,
    (State.NEW, Event.ERROR): State.FAILED,
    (State.NEW, Event.END): State.CLOSED,
    (State.CONNECTING, Event.CONNECTED): State.CONNECTED,
    (State.CONNECTING, Event.ERROR): State.FAILED,
    (State.CONNECTING, Event.END): State.CLOSED,
    (State.CONNECTED, Event.CLIENT_FRAME): State.CONNECTED,
    (State.CONNECTED, Event.SERVER_FRAME): State.CONNECTED,
    (State.CONNECTED, Event.DISCONNECT): State.DISCONNECTING,
    (State.CONNECTED, Event.ERROR): State.FAILED,
    (State.CONNECTED, Event.END): State.CLOSED,
    (State.DISCONNECTING, Event.SERVER_FRAME): State.DISCONNECTING,
    (State.DISCONNECTING, Event.ERROR): State.FAILED,
    (State.DISCONNECTING, Event.END): State.CLOSED,
    (State.FAILED, Event.END): State.CLOSED,
    (State.CLOSED, Event.END): State.CLOSED,
}


@pytest.mark.requirement("CON-01", "CON-23", "DIS-03", "D10-17", "SRV-11")
@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)), ids=str)
def test_only_what_the_table_lists_passes(state: State, event: Event) -> None:
    assert TRANSITIONS[state].get(event) is PASSES.get((state, event))


@pytest.mark.parametrize("command", sorted(CLIENT_COMMANDS | SERVER_COMMANDS))
def test_every_command_of_the_specification_is_an_event(command: str) -> None:
    assert command in EVENTS


@pytest.mark.requirement("CON-05", "A-27")
def test_stomp_is_the_same_event_as_connect() -> None:
    assert EVENTS["STOMP"] is EVENTS["CONNECT"] is Event.CONNECT


@pytest.mark.parametrize("state", State)
def test_an_unknown_command_leads_nowhere(state: State) -> None:
    assert after(state, "FOO") is None


@pytest.mark.parametrize(("state", "command"), list(itertools.product(State, sorted(EVENTS))), ids=str)
def test_a_frame_leads_where_its_event_leads(state: State, command: str) -> None:
    assert after(state, command) is PASSES.get((state, EVENTS[command]))


@pytest.mark.requirement("DIS-01")
@pytest.mark.parametrize("state", State)
def test_the_stream_may_end_at_any_time(state: State) -> None:
    assert ended(state) is State.CLOSED
