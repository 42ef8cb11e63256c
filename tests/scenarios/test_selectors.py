"""More than two hundred selectors: what a broker delivers, beside what stompy's own evaluation selects."""

from __future__ import annotations

import contextlib

import pytest

from stompy.broker.broker import profile_named
from stompy.broker.message import MessageHead, route_to
from stompy.broker.profile import send_options
from stompy.broker.selector import Evaluation, compiled
from stompy.errors import StompTimeoutError
from stompy.frames.frame import Pairs
from stompy.frames.grammar import Version, grammar_of
from tests.scenarios.conftest import Raw
from tests.scenarios.expected.model import LIKE
from tests.scenarios.expected.selectors import HEADERS, SELECTORS
from tests.support.candidates import Candidate

pytestmark = [
    pytest.mark.broker,
    pytest.mark.once,
    pytest.mark.scenario("selectors"),
    pytest.mark.kinds(
        "embedded", "activemq", "activemq5", "artemis", "like-activemq", "like-activemq5", "like-artemis"
    ),
]


def selected_here(selector: str, times: Pairs, ways: Evaluation) -> set[int]:
    """Return the numbers of the messages that the embedded broker's evaluation selects."""
    chosen, grammar = set(), grammar_of(Version.V1_2)
    for number, headers in enumerate(HEADERS):
        options = send_options(headers.get, 0.0)
        head = MessageHead(route_to("/topic/a", grammar, options=options, last=[*headers.items(), *times]), b"", 0)
        if compiled(selector, ways).matches(head.lookup):
            chosen.add(number)
    return chosen


def test_selectors_choose_the_same_messages_everywhere(candidate: Candidate, raw: Raw, topic: str) -> None:
    assert len(SELECTORS) == len(set(SELECTORS)) >= 200
    client = raw()
    for number, selector in enumerate(SELECTORS):
        selector = f"({selector}) OR mark = 'end'"
        client.say("SUBSCRIBE", {"destination": topic, "id": str(number), "selector": selector})
    client.sync()
    for number, headers in enumerate(HEADERS):
        client.say("SEND", {"destination": topic, **headers}, str(number).encode())
    client.say("SEND", {"destination": topic, "mark": "end"}, b"end")
    # Without a profile the embedded broker adds no times.
    times = () if candidate.kind == "embedded" else (("timestamp", "1700000000000"), ("expires", "0"))
    kind = LIKE.get(candidate.kind, candidate.kind)
    ways = profile_named(None if kind == "embedded" else kind).selectors
    expected = {str(number): selected_here(selector, times, ways) for number, selector in enumerate(SELECTORS)}
    chosen: dict[str, set[int]] = {str(number): set() for number in range(len(SELECTORS))}
    ended: set[str] = set()
    with contextlib.suppress(StompTimeoutError):
        # Artemis may deliver the end before what was sent before it.
        while len(ended) < len(SELECTORS) or any(wanted - chosen[id] for id, wanted in expected.items()):
            frame = client.frame()
            if frame.command == "MESSAGE" and frame.body == b"end":
                ended.add(frame.headers["subscription"])
            elif frame.command == "MESSAGE":
                chosen[frame.headers["subscription"]].add(int(frame.body))
            else:
                assert frame.command == "RECEIPT", frame
    assert len(ended) == len(SELECTORS)
    differ = [f"{SELECTORS[int(id)]}: {sorted(chosen[id])}" for id, wanted in expected.items() if chosen[id] != wanted]
    assert not differ, "\n".join(differ)
