"""What the embedded broker is to do wrong, on purpose, so that a program can be tested against it.

::

    plan = FaultPlan(Drop("RECEIPT", nth=2), CutAfter(sent=(100, 5_000)), seed=7)
    with Broker(faults=plan) as broker:
        ...

Everything counts by link, the connections in the order in which they are accepted, and within a link by the frames and
octets that pass. So the same conversation meets the same faults each time, however threads are scheduled; what is drawn
by lot comes from the seed. A plan prints as the expression that makes it.

| lock | guards | held over I/O? |
|---|---|---|
| `FaultPlan._changed` (a leaf) | the faults, what struck, releases | no |

Threads: any may use a plan; sessions' readers and writers wait in it where a `Delay` says so.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeAlias

from stompy.broker.splitter import HEARTBEAT
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, StompTimeout
from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS

SENT = "sent"
"""In the place of a command: any frame that the broker sends."""

RECEIVED = "received"
"""In the place of a command: any frame that the broker receives."""

GARBAGE = b"\xff\xfe not a frame \x01\n:::\n\n\0"
"""For `Insert`: octets that no version of STOMP allows."""

STRAY_MESSAGE = (
    b"MESSAGE\nsubscription:no-such-subscription\nmessage-id:stray-1\nack:stray-1\n"
    b"destination:/queue/stray\ncontent-length:5\n\nstray\0"
)
"""For `Insert`: a MESSAGE that nobody has subscribed to."""

_MOST_STRIKES = 10_000


@dataclass(frozen=True, slots=True)
class FrameFault:
    """Base of the faults that strike frames.

    Attributes:
        frame: a command (its side follows from it), `SENT`, `RECEIVED`, or `"heart-beat"` for the broker's heart-beats.
        nth: only this one of those frames on a link, from 1, counted since the fault was added; `None` for each.
        chance: how probable it is that such a frame is struck, 0 to 1, drawn from the plan's seed.
        link: only this connection, from 1, in the order of acceptance; `None` for all.
    """

    frame: str
    _: object = None  # replaced below; keeps the generated signature of subclasses keyword-only
