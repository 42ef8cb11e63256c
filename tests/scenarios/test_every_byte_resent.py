"""The first link is cut behind every byte, and the connection sends again what was not confirmed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

import stompy
from stompy.broker import Broker
from stompy.testing.proxied import Direction, Ending, ProxyLink
from stompy.testing.proxy import FaultProxy
from tests.scenarios.test_every_byte import DIRECTIONS, ENDINGS, VERSIONS, descriptors, places, threads
from tests.support.conversation import NAME, Ways, Wire
from tests.support.peer import WITHIN, until

SPARSE = 83
"""Of the places inside a frame every how many-th is cut at where time is short."""

WAYS = Ways()
DEDUPE = "stompy-dedupe-id"

T = TypeVar("T")


@dataclass
class Report:
    """What the program knows at its end.

    Attributes:
        connected: whether there was a session at all.
        consumed: the dedupe ids of what it has acknowledged.
        committed: what it knows of its transaction: `done`, or that its fate is unknown.
    """

    connected: bool = False
    consumed: list[str] = field(default_factory=list)
    committed: str = ""


def program(url: str, version: str) -> Report:
    """Send, consume and commit, as a program does that wants each of it done."""
    report = Report()
    try:
        conn = stompy.connect(
            url, versions=version, heartbeat=(0, 0), name=NAME, reconnect=stompy.Reconnect(resend_unconfirmed=True)
        )
    except stompy.ConnectError:
        return report  # the first connect is not repeated
    report.connected = True
    with conn:
        subscription = again(lambda: conn.subscribe(WAYS.inward, ack="client-individual"))
        conn.send(WAYS.inward, b"one", confirm=True)
        report.consumed.append(consume(subscription))
        conn.send(WAYS.outward, b"a", confirm=True)
        receipts = [conn.send_async(WAYS.outward, body) for body in (b"b", b"c")]
        for receipt in receipts:
            receipt.result()
        report.committed = again(lambda: commit(conn))
    return report


def again(call: Callable[[], T]) -> T:
    """Call until the link does not die under it."""
    while True:
        try:
            return call()
        except stompy.ConnectionLostError:
            pass


def consume(subscription: stompy.Subscription) -> str:
    while True:
        message = subscription.receive(timeout=WITHIN)
        try:
            receipt = message.ack_async()
            receipt.result()
        except stompy.AckError:
            continue  # its link is gone, and so it comes again
        except stompy.ConnectionLostError:
            pass  # the broker may have the ACK; if not, it comes again, and is known by its id
        return message.headers[DEDUPE]


def commit(conn: stompy.Connection) -> str:
    try:
        with conn.transaction() as transaction:
            transaction.send(WAYS.outward, b"d")
            transaction.send(WAYS.outward, b"e")
    except stompy.ConnectionLostError as lost:
        if lost.outcome == "not-sent":
            raise
        return "unknown"
    return "done"


def cut_and_check(version: str, direction: Direction, ending: Ending, place: int) -> None:
    def cut_first(link: ProxyLink) -> None:
        if link.number == 1:
            link.cut_after(place, direction=direction, ending=ending)

    before = descriptors()
    with Broker() as broker, FaultProxy(broker.url, on_connection=cut_first) as proxy:
        report = program(proxy.url, version)
        assert threads() == []
        until(lambda: not proxy.running and broker.stats().sessions == 0)
        links = [(link.recorded("up"), link.recorded("down")) for link in proxy.links]
        where = f"STOMP {version}, {ending} behind {place} bytes {direction}: {links}"
        if report.connected:
            check(report, links, kept(broker, where), where)
    until(lambda: descriptors() == before, where)


def check(report: Report, links: list[tuple[bytes, bytes]], left: dict[str, list[stompy.Message]], where: str) -> None:
    sent = [frame for up, _ in links for frame in Wire(up).frames if frame.command == "SEND"]
    plain = [frame for frame in sent if "transaction" not in frame.headers]
    outward = [message for message in left[WAYS.outward] if DEDUPE in message.headers]

    copies = Counter(frame.headers[DEDUPE] for frame in plain if frame.headers["destination"] == WAYS.outward)
    assert Counter(message.headers[DEDUPE] for message in outward) == copies, f"not each whole copy is there; {where}"
    assert max(copies.values()) <= 2, where
    assert first_copies(outward) == [b"a", b"b", b"c"], where

    # Sent again is what the first link took, wholly or in part, and did not confirm; and nothing else.
    confirmed = {frame.headers["receipt-id"] for frame in Wire(links[0][1]).frames if frame.command == "RECEIPT"}
    first = {frame.headers[DEDUPE] for frame in Wire(links[0][0]).frames if frame in plain}
    known = {frame.headers[DEDUPE] for frame in plain if frame.headers["receipt"] in confirmed}
    later = {frame.headers[DEDUPE] for up, _ in links[1:] for frame in Wire(up).frames if frame in plain}
    assert not known & later, f"sent again although confirmed; {where}"
    assert first - known <= later, f"not sent again although not confirmed; {where}"

    # What was consumed may have a copy that still waits, and nothing else waits there.
    assert len(report.consumed) == 1
    assert {message.headers[DEDUPE] for message in left[WAYS.inward]} <= set(report.consumed), where

    together = [message.body for message in left[WAYS.outward] if DEDUPE not in message.headers]
    commits = [frame for up, _ in links for frame in Wire(up).frames if frame.command == "COMMIT"]
    assert together == [b"d", b"e"] * len(commits), f"half a transaction; {where}"
    assert len(commits) == 1 if report.committed == "done" else len(commits) <= 1, where


def first_copies(messages: list[stompy.Message]) -> list[bytes]:
    return list({message.headers[DEDUPE]: message.body for message in messages}.values())


def kept(broker: Broker, where: str) -> dict[str, list[stompy.Message]]:
    """Return what a new connection finds in each queue."""
    with stompy.connect(broker.url) as conn:
        found = {}
        for queue in (WAYS.inward, WAYS.outward):
            depth = broker.depth(queue)
            subscription = conn.subscribe(queue)
            found[queue] = [subscription.receive(timeout=WITHIN) for _ in range(depth)]
    assert all(broker.depth(queue) == 0 for queue in found), where
    return found


def whole_conversation(version: str) -> dict[Direction, bytes]:
    """Return what goes through when nothing is cut."""
    with Broker() as broker, FaultProxy(broker.url) as proxy:
        report = program(proxy.url, version)
        (link,) = proxy.links
        until(lambda: not link.running)
        assert report.committed == "done"
        return {direction: link.recorded(direction) for direction in DIRECTIONS}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_not_confirmed_is_sent_again_and_nothing_else(version: str, direction: Direction) -> None:
    for place, ending in zip(places(whole_conversation(version)[direction], every=SPARSE), itertools.cycle(ENDINGS)):
        cut_and_check(version, direction, ending, place)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_not_confirmed_is_sent_again_behind_every_byte(
    version: str, direction: Direction, ending: Ending
) -> None:
    for place in places(whole_conversation(version)[direction], every=1):
        cut_and_check(version, direction, ending, place)
