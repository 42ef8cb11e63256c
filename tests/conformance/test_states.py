from __future__ import annotations

from xml.etree import ElementTree

import pytest

from stompy.protocol.state import TRANSITIONS, ProtocolEvent, State
from tests.conformance.states import PAGE, arrows, drawing, main

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_the_drawing_in_the_docs_is_that_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == drawing()
    assert main(["--check"]) == 0


def test_every_state_and_every_transition_is_drawn() -> None:
    svg = drawing()
    words = texts(svg)
    for state in State:
        assert words.count(state.name) == 1 + (state.name == ProtocolEvent.CONNECTED.value)
        assert state.value in words
    for event in ProtocolEvent:
        drawn = sum(event in targets for targets in TRANSITIONS.values())
        assert words.count(event.value) - (event.value == State.CONNECTED.name) == drawn
    drawn_arrows = [path for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if path.get("class") == "arrow"]
    assert len(drawn_arrows) == len(list(arrows(TRANSITIONS)))


def test_a_changed_table_makes_another_drawing() -> None:
    changed = {**TRANSITIONS, State.NEW: {ProtocolEvent.CONNECT: State.CONNECTING}}
    assert drawing(changed) != drawing()


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ValueError, match="from DISCONNECTING to NEW"):
        drawing({State.DISCONNECTING: {ProtocolEvent.CONNECT: State.NEW}})


def test_a_stale_drawing_is_told(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.conformance.states.PAGE", PAGE.with_name("no-such.svg"))
    assert main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
