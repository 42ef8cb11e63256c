"""Programs of portable options, drawn by a seed: each does on each broker what the page on broker features says.

Nothing is judged by what the client believes of a broker: which options raise is read from the page's table, and each
method of `Page` is a sentence of that page.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import stompy
from tests.scenarios.acts import SOON, acked, put_back
from tests.scenarios.conftest import Connect
from tests.support.options import chosen

pytestmark = [pytest.mark.broker, pytest.mark.once, pytest.mark.scenario("portable options")]

PROGRAMS = 40
SHORT, LONG = 0.3, 3600.0
"""Lives of a message, in seconds: over when it is looked for, or not."""
DELAY, SHORTER = 2.0, 1.5
"""Seconds of a delay, and of a life that is shorter."""
END = "end"
_COLUMNS = {"activemq": "ActiveMQ", "artemis": "Artemis", "rabbitmq": "RabbitMQ", "stompy": "embedded"}
_PAGE = Path(__file__).parents[2] / "docs/how-to/broker-features.md"


@dataclass(frozen=True)
class Sent:
    """A message that was drawn.

    Attributes:
        kind: a header, by which selectors choose.
        options: those of `send`.
    """

    text: str
    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Page:
    """What the page says of one broker.

    Attributes:
        broker: as the table's columns name it.
        lacks: the options with a dash.
    """

    broker: str
    lacks: frozenset[str]

    @classmethod
    def of(cls, dialect: str) -> Page:
        """Read the column of a broker."""
        lines = _PAGE.read_text(encoding="utf-8").splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
        head = next(row for row in rows if row[0] == "option")
        column = head.index(_COLUMNS[dialect])
        options = [row for row in rows if len(row) == len(head) and re.fullmatch("`[a-z_]+`", row[0])]
        assert len(options) == 11
        return cls(head[column], frozenset(row[0].strip("`") for row in options if row[column] == "–"))

    def raises(self, options: dict[str, Any], ack: str = "auto") -> bool:
        """Whether options of one call raise; Artemis' prefetch can be 1, in the client modes, and nothing else."""
        prefetch = options.get("prefetch", 1)
        bytewise = self.broker == "Artemis" and "prefetch" in options and (prefetch != 1 or ack == "auto")
        return bytewise or not self.lacks.isdisjoint(options)

    def expired(self, sent: Sent) -> bool:
        """Whether a message is gone when it is looked for; on ActiveMQ life counts from the end of a delay."""
        life = sent.options.get("expires", LONG)
        return bool(life == SHORT or (life == SHORTER and self.broker != "ActiveMQ"))

    def once(self, sent: list[Sent]) -> list[Sent]:
        """Return messages without those that have the `dedupe_id` of an earlier one."""
        first: dict[str, Sent] = {}
        for each in sent:
            first.setdefault(each.options.get("dedupe_id", each.text), each)
        return list(first.values())

    def rank(self, sent: Sent) -> int:
        """Return what orders messages that wait, before their own order: ActiveMQ's persistent ones go first."""
        if self.broker == "ActiveMQ":
            return int(sent.options.get("persistent") is not True)
        return 0 if self.broker == "RabbitMQ" else -sent.options.get("priority", 4)


@dataclass
class Program:
    """A drawn program: one sends, one or two subscribe.

    Attributes:
        name: of its destination.
        messages: what is sent.
        live: whether there is a subscription before they are sent.
        durable: whether it is a durable one of a topic, which was left before they are sent.
        browse: whether it looks at the queue first.
        ack: the mode of the subscriptions.
        options: those of `subscribe`.
        consumers: how many subscribe.
    """

    name: str
    messages: list[Sent]
    live: bool
    durable: bool
    browse: bool
    ack: Literal["auto", "client-individual"]
    options: dict[str, Any]
    consumers: int

    @property
    def destination(self) -> str:
        return ("/topic/" if self.durable else "/queue/") + self.name


def drawn(number: int, name: str) -> Program:
    """Return the program of a number, always the same for a seed."""
    draw = random.Random(f"{chosen.seed} {number}")
    chance = draw.random
    live = chance() < 0.5
    durable = not live and chance() < 0.3
    consumers = draw.choice([1, 1, 2]) if live else 1
    asked = {
        "prefetch": (draw.choice([1, 1, 2, 100]), 0.3),
        "selector": ("kind = 'b'", 0.3 * (consumers == 1)),
        "exclusive": (True, 0.3 * live),
        "durable": (name, float(durable)),
    }
    asked_for = {option: value for option, (value, often) in asked.items() if chance() < often}
    at_once = live and asked_for.keys().isdisjoint({"prefetch", "selector"})
    messages = []
    for index in range(draw.randint(1, 8)):
        options = {
            "persistent": (chance() < 0.5, 0.5),
            "priority": (draw.randint(1, 9), 0.3),
            "group": (draw.choice("gh"), 0.2),
            "dedupe_id": (name + draw.choice("de"), 0.2),
            "delay": (DELAY, 0.25),
        }
        chosen_here = {option: value for option, (value, often) in options.items() if chance() < often}
        if chance() < 0.4:
            # A shorter life than the delay is for those who take the message when it comes.
            other = SHORT if not live else SHORTER if at_once and "delay" in chosen_here else LONG
            chosen_here["expires"] = draw.choice([LONG, other])
        messages.append(Sent(str(index), draw.choice("ab"), chosen_here))
    return Program(
        name,
        messages,
        live=live,
        durable=durable,
        browse=not live and not durable and chance() < 0.4,
        ack="auto" if chance() < 0.5 else "client-individual",
        options=asked_for,
        consumers=consumers,
    )


class Run:
    """A program on a broker."""

    def __init__(self, program: Program, connect: Connect) -> None:
        self.program = program
        self._connect = connect
        self._sender = connect()
        self._page = Page.of(self._sender.dialect)
        self._consumers: list[stompy.Connection] = []
        self._subscriptions: list[stompy.Subscription] = []
        self._sent: list[Sent] = []
        self._slow = False  # then the order of what is delayed says nothing

    def _subscribe(self) -> None:
        """Subscribe with the options of the program; without any from now on where the page says that they raise."""
        program = self.program
        connection = self._connect(**{"client_id": program.name} if program.durable else {})
        refused = self._page.raises(program.options, program.ack)
        try:
            subscription = connection.subscribe(program.destination, ack=program.ack, **program.options)
        except stompy.ConfigurationError:
            assert refused
            program.options = {name: program.options[name] for name in program.options if name == "durable"}
            subscription = connection.subscribe(program.destination, ack=program.ack, **program.options)
        else:
            assert not refused
        self._consumers.append(connection)
        self._subscriptions.append(subscription)

    def _leave(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        self._consumers.clear()
        self._subscriptions.clear()

    def begin(self) -> None:
        """Subscribe, where that comes first, and send."""
        program = self.program
        if program.durable:
            self._subscribe()
            self._subscriptions[0].close()  # Artemis may close a session long after it has confirmed DISCONNECT
            self._leave()
        for _ in range(program.consumers if program.live else 0):
            self._subscribe()
        began = time.monotonic()
        for each in program.messages:
            options = {**each.options, "headers": {"kind": each.kind}}
            try:
                self._sender.send(program.destination, each.text, confirm=True, **options)
            except stompy.ConfigurationError:
                assert self._page.raises(each.options)
            else:
                assert not self._page.raises(each.options)
                self._sent.append(each)
        self._slow = time.monotonic() - began > DELAY / 2

    def finish(self) -> None:
        """Receive, and compare."""
        program, page = self.program, self._page
        present = [each for each in page.once(self._sent) if not page.expired(each)]
        present.sort(key=lambda each: "delay" in each.options)
        if program.browse:
            self._browse(present)
        if not program.live:
            self._subscribe()
        selected = [each for each in present if "selector" not in program.options or each.kind == "b"]
        if program.consumers > 1:
            self._share(selected)
        else:
            self._take(selected)
        if program.durable:
            self._subscriptions[0].unsubscribe(delete=True)
            return
        self._leave()
        put_back(self._sender)
        left = sorted(each.text for each in present if each not in selected)
        assert sorted(self._until_end(self._sender.subscribe(program.destination), len(left))) == left

    def _browse(self, present: list[Sent]) -> None:
        try:
            seen = [message.text for message in self._sender.browse(self.program.destination)]
        except stompy.ConfigurationError:
            assert self._page.raises({"browse": True})
        else:
            assert not self._page.raises({"browse": True})
            assert sorted(seen) == sorted(each.text for each in present)

    def _take(self, selected: list[Sent]) -> None:
        """Receive as the only consumer."""
        taken = self._until_end(self._subscriptions[0], len(selected))
        assert sorted(taken) == sorted(each.text for each in selected)
        delayed = any("delay" in each.options for each in selected)
        if self._slow or (self._page.broker == "Artemis" and delayed):
            return  # Artemis puts what was delayed in front of what waits, and mixes what comes at the same time
        # What waits for a durable subscriber of ActiveMQ with a small prefetch is taken by turns of both ranks.
        if not self.program.live and not (self.program.durable and "prefetch" in self.program.options):
            assert taken == [each.text for each in sorted(selected, key=self._page.rank)]
            return
        # Messages may go out one by one as they come, or some may wait meanwhile: their ranks mix.
        for rank in {self._page.rank(each) for each in selected}:
            texts = [each.text for each in selected if self._page.rank(each) == rank]
            assert [text for text in taken if text in texts] == texts

    def _share(self, wanted: list[Sent]) -> None:
        """Receive as two consumers: the first one all of it if it is exclusive, one of them all of a group."""
        program = self.program
        taken: dict[str, int] = {}
        over = time.monotonic() + SOON
        while len(taken) < len(wanted) and time.monotonic() < over:
            for number, subscription in enumerate(self._subscriptions):
                while subscription.queued:
                    message = subscription.receive(timeout=SOON)
                    assert message.text not in taken
                    taken[message.text] = number
                    self._settle(message)
            threading.Event().wait(0.01)
        assert taken.keys() == {each.text for each in wanted}
        if "exclusive" in program.options:
            assert not any(taken.values())
        takers = Counter({(each.options["group"], taken[each.text]) for each in wanted if "group" in each.options})
        assert len({group for group, _ in takers}) == len(takers)

    def _until_end(self, subscription: stompy.Subscription, least: int) -> list[str]:
        """Return what comes before a message that is sent now, which every selector selects, and no rank puts first.

        Artemis may deliver it before some of the others.
        """
        self._sender.send(subscription.destination, END, headers={"kind": "b"}, priority=0, confirm=True)
        texts: list[str] = []
        while END not in texts or len(texts) <= least:
            message = subscription.receive(timeout=SOON)
            self._settle(message)
            texts.append(message.text)
        texts.remove(END)
        return texts

    @staticmethod
    def _settle(message: stompy.Message) -> None:
        if message.ack_mode != "auto":
            acked(message)


def test_drawn_programs_do_what_the_page_says(connect: Connect, queue: str) -> None:
    name = queue.removeprefix("/queue/")
    runs = [Run(drawn(number, f"{name}{number}"), connect) for number in range(PROGRAMS)]
    for step in (Run.begin, Run.finish):
        for number, run in enumerate(runs):
            try:
                step(run)
            except BaseException:
                print(f"program {number}, --seed={chosen.seed}: {run.program}")
                raise
        if step is Run.begin:
            # Delayed messages have come by then, and those with a short life are gone, also where it begins with that.
            threading.Event().wait(DELAY + SHORT + 1.0)
