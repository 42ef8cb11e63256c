"""A link that is cut behind every single byte, either way: each call ends as it must, and nothing is half-done."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import stompy
import stompy.connection.connection
from stompy.broker import Broker, BrokerLimits
from stompy.deadline import Deadline
from stompy.testing.proxied import Direction, Ending
from stompy.testing.proxy import FaultProxy
from stompy.transport.tcp import TcpDialer
from tests.support.conversation import NAME, Ways, converse, expected_endings, expected_messages
from tests.support.options import chosen
from tests.support.peer import until
from tests.support.rawclient import WITHIN, RawClient
from tests.support.receipts import outcome_of

VERSIONS = ["1.0", "1.1", "1.2"]
DIRECTIONS: list[Direction] = ["up", "down"]
ENDINGS: list[Ending] = ["fin", "rst"]

SPARSE = 61
"""Of the places inside a frame every how many-th is cut at where time is short."""

WAYS = Ways()

_DESCRIPTORS = Path("/proc/self/fd")


def descriptors() -> list[str]:
    return sorted(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS.exists() else []


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(f"stompy-{NAME}-")]


def whole_conversation(version: str) -> dict[Direction, bytes]:
    """Return what goes through when nothing is cut."""
    with Broker() as broker, FaultProxy(broker.url) as proxy:
        endings = converse(proxy, version, WAYS)
        (link,) = proxy.links
        until(lambda: not link.running)
        data = {direction: link.recorded(direction) for direction in DIRECTIONS}
    assert set(endings.values()) == {"done"}
    return data


def cut_and_check(version: str, direction: Direction, ending: Ending, place: int) -> None:
    before = descriptors()
    with Broker() as broker, FaultProxy(broker.url) as proxy:
        proxy.upcoming.cut_after(place, direction=direction, ending=ending)
        endings = converse(proxy, version, WAYS)
        assert threads() == [], f"{version} {direction} {ending} {place}"
        (link,) = proxy.links
        until(lambda: not link.running)
        up, down = link.recorded("up"), link.recorded("down")
        was_cut = link.forwarded(direction) == place
        where = f"STOMP {version}, {ending} behind {place} bytes {direction}; up {up!r}; down {down!r}"

        expected = expected_endings(up, down, WAYS, cut=direction if was_cut else None)
        for call, came in endings.items():
            assert came in expected[call], f"{call} ended as {came!r}, not {set(expected[call])}; {where}"
        assert set(endings) == set(expected) or endings == {"connect": "ConnectError"}, where

        until(lambda: broker.stats().sessions == 0, where)
        left = messages_left(broker)
        for queue, kept in expected_messages(up, down, WAYS).items():
            assert [body for body, _ in left[queue]] == [one.body for one in kept], f"{queue}; {where}"
            for (_, flagged), one in zip(left[queue], kept, strict=True):
                assert flagged or not one.seen, f"{one} came again without a flag; {where}"
    until(lambda: descriptors() == before, where)


def messages_left(broker: Broker) -> dict[str, list[tuple[str, bool]]]:
    """Return what a new connection finds in each queue, and whether it is flagged as redelivered."""
    host, port = broker.url.removeprefix("stomp://").rsplit(":", 1)
    with RawClient(TcpDialer(host, int(port)).dial(Deadline(WITHIN))) as client:
        client.connect()
        found: dict[str, list[tuple[str, bool]]] = {WAYS.inward: [], WAYS.outward: []}
        for number, queue in enumerate(found):
            client.say("SEND", {"destination": queue}, b"the last")
            client.say("SUBSCRIBE", {"destination": queue, "id": str(number)})
        last: set[str] = set()
        while last != set(found):
            message = client.expect("MESSAGE")
            if message.body == b"the last":
                last.add(message.headers["destination"])
            else:
                flagged = message.headers.get("redelivered") == "true"
                found[message.headers["destination"]].append((message.body.decode(), flagged))
    return found


def places(data: bytes, *, every: int) -> list[int]:
    """Return the places to cut at: about each border of a frame, and between them every so many-th."""
    borders = [0, *(place + 1 for place, byte in enumerate(data) if byte == 0)]
    chosen = {border + step for border in borders for step in (-1, 0, 1)} | set(range(0, len(data), every))
    return sorted(place for place in chosen if 0 <= place <= len(data))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_ends_each_call_as_it_must_and_leaves_nothing_half_done(version: str, direction: Direction) -> None:
    for place, ending in zip(places(whole_conversation(version)[direction], every=SPARSE), itertools.cycle(ENDINGS)):
        cut_and_check(version, direction, ending, place)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_behind_every_byte(version: str, direction: Direction, ending: Ending) -> None:
    for place in places(whole_conversation(version)[direction], every=1):
        cut_and_check(version, direction, ending, place)


# A message that the broker refuses: what is known of it hangs on the last byte of ERROR.


def refused_send(url: str, version: str) -> tuple[str, stompy.StompError | None]:
    """Send a message that fits and one that does not; return what became of the second."""
    with stompy.connect(url, versions=version, heartbeat=(0, 0), name=NAME) as conn:
        conn.send(WAYS.outward, b"a", confirm=True)
        receipt = conn.send_async(WAYS.outward, b"b")
        with pytest.raises(stompy.SessionError):
            receipt.result()
        return outcome_of(receipt), receipt.exception(0)


@pytest.fixture
def same_names(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which the next connection, and so its receipts, are named as the first one."""
    return lambda: monkeypatch.setattr(stompy.connection.connection, "_NUMBERS", itertools.count(1))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_counts_from_its_last_byte_on(version: str, ending: Ending, same_names: Callable[[], None]) -> None:
    def refused(place: int | None) -> tuple[str, stompy.StompError | None, bytes]:
        same_names()
        with Broker(limits=BrokerLimits(max_queue_messages=1)) as broker, FaultProxy(broker.url) as proxy:
            if place is not None:
                proxy.upcoming.cut_after(place, direction="down", ending=ending)
            outcome, error = refused_send(proxy.url, version)
            (link,) = proxy.links
            until(lambda: not link.running and broker.stats().sessions == 0)
            assert broker.depth(WAYS.outward) == 1
            return outcome, error, link.recorded("down")

    outcome, error, data = refused(None)
    assert outcome == "rejected"
    assert isinstance(error, stompy.BrokerError)
    border = data[:-1].rindex(b"\0") + 1
    inside = range(border + 1, len(data) - 1, 1 if chosen.long else SPARSE)
    for place in (*inside, len(data) - 1, len(data)):
        outcome, error, _ = refused(place)
        whole = place == len(data)
        assert outcome == ("rejected" if whole else "unknown"), f"{data!r} cut behind {place}"
        assert isinstance(error, stompy.BrokerError) is whole
