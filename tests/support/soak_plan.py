"""What goes wrong in a soak, drawn from a seed, and what came of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from stompy.testing.proxied import Direction, Ending
from tests.support.seed import SEED

Resending: TypeAlias = Literal["connection", "producer"]

Kind: TypeAlias = Literal["cut", "restart", "pause"]
CUT: Kind = "cut"
RESTART: Kind = "restart"
PAUSE: Kind = "pause"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        after: confirmed messages.
        kind: what.
        which: of the connections at that moment, as a share of their number.
        direction: in which the bytes are counted.
        bytes: until the cut.
        ending: how.
    """

    after: int
    kind: Kind
    which: float
    direction: Direction
    size: int
    ending: Ending


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        messages: a multiple of the number of producers.
        cuts: of single links.
        restarts: of the broker.
        pauses: in which the broker stands still.
        resending: who sends again what was not confirmed: the connection, or the program.
        window: receipts in flight for each producer.
        prefetch: for each consumer; `None` leaves it to the broker.
        timeout: seconds after which it has failed.
        patience: seconds without a message after which what did not come is lost.
        destination: a queue that nobody else uses.
        headers: of each SEND.
        options: of each connection.
    """

    messages: int
    cuts: int
    restarts: int
    seed: int = SEED
    pauses: int = 0
    resending: Resending = "connection"
    producers: int = 8
    consumers: int = 8
    window: int = 100
    prefetch: int | None = 100
    timeout: float = 50.0
    patience: float = 20.0
    destination: str = "/queue/soak"
    headers: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def faults(self) -> list[Fault]:
        """Return the faults in order."""
        draw = random.Random(self.seed)
        counts = ((CUT, self.cuts), (RESTART, self.restarts), (PAUSE, self.pauses))
        kinds = [kind for kind, count in counts for _ in range(count)]
        draw.shuffle(kinds)
        points = sorted(draw.randrange(self.messages * 98 // 100) for _ in kinds)
        return [
            Fault(
                after,
                kind,
                which=draw.random(),
                direction=draw.choice(("up", "down")),
                size=draw.randrange(30 * self.window),
                ending=draw.choice(("fin", "rst")),
            )
            for after, kind in zip(points, kinds, strict=True)
        ]


@dataclass
class Tally:
    """What came of it.

    Attributes:
        confirmed: receipts.
        consumed: different messages that came to a consumer.
        flagged: duplicates that the broker flagged as redelivered.
        recognised: other duplicates, with an id that was seen before.
        reconnects: links replaced.
        cuts: made.
        idle: those of them that came where too little went through to reach the chosen byte.
        restarts: made.
        pauses: made.
        seconds: that it took.
    """

    confirmed: int = 0
    consumed: int = 0
    flagged: int = 0
    recognised: int = 0
    reconnects: int = 0
    cuts: int = 0
    idle: int = 0
    restarts: int = 0
    pauses: int = 0
    seconds: float = 0.0
