"""Hostile clients: every attack ends in a named error and within its memory, and another client is served meanwhile."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.deadline import Deadline
from stompy.transport.tcp import TcpDialer
from tests.hostile.clients import ATTACKS, OPTIONS, Attack
from tests.hostile.script import WITHIN, Actor, bounded
from tests.support.grouped import grouped
from tests.support.peer import until
from tests.support.rawclient import RawClient

TIMES = 3
"""How often the other client is served while an attack goes on."""


class Friend(RawClient):
    """The other client: it was there before."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(TcpDialer("127.0.0.1", port_of(broker)).dial(Deadline(WITHIN)))
        self.connect(login="ann", passcode="sesame")
        self.subscribe("/topic/friend")

    def is_served(self) -> None:
        """Receive its own message, in time."""
        self.say("SEND", {"destination": "/topic/friend"}, b"hello")
        assert self.frame().body == b"hello"


def port_of(broker: Broker) -> int:
    return int(broker.url.rpartition(":")[2])


@contextlib.contextmanager
def attacking(attack: Attack, broker: Broker) -> Iterator[list[Actor]]:
    actors = []
    for _ in range(attack.times):
        with contextlib.suppress(OSError):
            actors.append(Actor(socket.create_connection(("127.0.0.1", port_of(broker))), attack.script))
    for actor in actors:
        actor.start()
    try:
        yield actors
    finally:
        for actor in actors:
            actor.leave()


def endings(actors: list[Actor]) -> list[bytes]:
    """Wait until all is over, and return the ERROR that each got."""
    for actor in actors:
        actor.join(WITHIN)
        assert not actor.is_alive(), "the broker did not end the session"
    return [bytes(actor.heard).partition(b"ERROR\n")[2] for actor in actors]


def check_end(attack: Attack, broker: Broker, actors: list[Actor]) -> None:
    """Wait until the attack has ended as it must."""
    words = (attack.words or "").encode()
    if attack.end == "stays":
        until(lambda: not words or any(words in actor.heard for actor in actors), "the words are heard")
    elif attack.end == "dropped":
        until(lambda: broker.stats().sessions == 1, "the broker drops the client")
    else:
        errors = endings(actors)
        assert any(words in error for error in errors) if words else not any(errors), errors[:3]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_hostile_client_meets_a_named_error_and_others_are_served(attack: Attack) -> None:
    options: dict[str, Any] = {**OPTIONS, **attack.options}
    with Broker(**grouped(options, limits=BrokerLimits)) as broker, contextlib.closing(Friend(broker)) as friend:
        with bounded(attack.memory), attacking(attack, broker) as actors:
            for _ in range(TIMES):
                friend.is_served()
            check_end(attack, broker, actors)
            friend.is_served()
        friend.is_served()
        until(lambda: broker.stats().sessions == 1, "only the other client is left")


def test_there_are_enough_attacks_and_no_two_alike() -> None:
    assert len(ATTACKS) >= 60
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
