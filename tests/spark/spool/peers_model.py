"""A model of a broker and of several spools that one queue fills, searched breadth-first through every state.

Each spool has one process with one session, which may crash and be followed by another. What is processed is removed at
once, so that a copy is only recognised by what the protocol keeps: a spool shows its peers

- `unsettled`: ids of segments whose ACK is not confirmed;
- `suspects`: those that a lost session left behind;
- `pending`: the complete file of a segment that has no name yet, which a peer can remove;
- `announced` and `noted`: the doubtful ids of a pending segment, and of segments that have their names.

A message is doubtful if the broker has marked it as redelivered. `Steps` are those of `SpoolWriter` and `Peers`; a test
leaves one out, and the search finds what goes wrong without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Ids = frozenset[int]
NONE: Ids = frozenset()


class Process(NamedTuple):
    """The process that fills a spool: its session, what it knows, and the group that it is about to store.

    `up` and `down` are ACKs and receipts on their way; `phase` is the last step that was done.
    """

    is_open: bool = False
    given_up: bool = True
    inbox: Ids = NONE
    flagged: Ids = NONE
    holds: Ids = NONE
    up: tuple[Ids, ...] = ()
    down: tuple[Ids, ...] = ()
    known: Ids = NONE
    phase: str = ""
    peer: int = 0
    group: Ids = NONE
    doubtful: Ids = NONE
    new: Ids = NONE
    hits: Ids = NONE
    unsettled: Ids = NONE


class Spool(NamedTuple):
    """What a spool has on disk, and the rows that it has ever shown to a reader."""

    rows: tuple[int, ...] = ()
    unsettled: Ids = NONE
    suspects: Ids = NONE
    announced: Ids = NONE
    noted: Ids = NONE
    pending: Ids | None = None
    process: Process | None = None


class State(NamedTuple):
    queue: Ids
    delivered: Ids = NONE
    acknowledged: Ids = NONE
    losses: int = 0
    crashes: int = 0
    spools: tuple[Spool, ...] = ()


PARTS = frozenset({"announce", "light look", "remove pending", "pending first", "suspects", "note known", "noted last"})
"""The parts of the protocol that can be left out."""


@dataclass
class Model:
    """What is searched.

    Attributes:
        spools: on one queue.
        messages: in it at first.
        losses: sessions that the broker gives up although their process lives.
        crashes: of processes.
        without: a part of the protocol that is left out.
    """

    spools: int = 2
    messages: int = 1
    losses: int = 1
    crashes: int = 0
    without: str = ""
    seen: dict[State, tuple[State, str] | None] = field(default_factory=dict)

    def search(self) -> list[str] | None:
        """Return the steps to the first state with a message that is lost or there twice; `None` if there is none."""
        start = State(frozenset(range(self.messages)), spools=(Spool(process=Process()),) * self.spools)
        self.seen[start] = None
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            rows = [row for spool in state.spools for row in spool.rows]
            if len(rows) != len(set(rows)) or not state.acknowledged <= set(rows):
                steps = []
                while (before := self.seen[state]) is not None:
                    state, step = before
                    steps.append(step)
                return steps[::-1]
            for step, after in self._steps(state):
                if after not in self.seen:
                    self.seen[after] = (state, step)
                    waiting.append(after)
        return None

    def _has(self, part: str) -> bool:
        return part != self.without

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, spool in enumerate(state.spools):
            process = spool.process
            if process is None:
                fresh = Process(known=spool.unsettled | spool.suspects)
                # It removes what its predecessor has not finished.
                yield (
                    f"{number} starts",
                    _with(
                        state, number, process=fresh, pending=None, announced=NONE, unsettled=NONE, suspects=fresh.known
                    ),
                )
                continue
            yield from self._of_broker(state, number, process)
            yield from self._of_process(state, number, spool, process)
            if state.crashes < self.crashes:
                queue = state.queue | (NONE if process.given_up else process.holds)
                for there, word in ((NONE, "its ACKs do not arrive"), (_sum(process.up), "its ACKs arrive")):
                    gone = there if not process.given_up else NONE
                    after = state._replace(
                        queue=queue - gone, acknowledged=state.acknowledged | gone, crashes=state.crashes + 1
                    )
                    yield f"{number} crashes, {word}", _with(after, number, process=None)

    @staticmethod
    def _of_broker(state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        if process.given_up:
            return
        if process.up:
            covered = process.up[0]
            after = process._replace(up=process.up[1:], down=(*process.down, covered), holds=process.holds - covered)
            yield (
                f"the broker answers {number}",
                _with(state._replace(acknowledged=state.acknowledged | covered), number, process=after),
            )
        for message in sorted(state.queue):
            one = frozenset({message})
            after = process._replace(
                inbox=process.inbox | one,
                flagged=process.flagged | (one & state.delivered),
                holds=process.holds | one,
            )
            there = state._replace(queue=state.queue - one, delivered=state.delivered | one)
            yield f"{message} is delivered to {number}", _with(there, number, process=after)

    def _of_process(self, state: State, number: int, spool: Spool, process: Process) -> Iterator[tuple[str, State]]:
        def now(step: str, **changes: Any) -> tuple[str, State]:
            of_spool = {name: changes.pop(name) for name in list(changes) if name in Spool._fields}
            if not changes.keys() - {"unsettled_at"}:
                return step, _with(state, number, **of_spool)
            if "unsettled_at" in changes:
                changes["unsettled"] = changes.pop("unsettled_at")
            return step, _with(state, number, **{"process": process._replace(**changes), **of_spool})

        if not process.is_open:
            if process.given_up and process.phase == "" and state.queue:
                yield now(f"{number} connects", is_open=True, given_up=False, inbox=NONE, flagged=NONE, up=(), down=())
            return
        if not process.given_up and state.losses < self.losses and process.holds:
            lost = state._replace(queue=state.queue | process.holds, losses=state.losses + 1)
            after = process._replace(given_up=True, holds=NONE, up=())
            yield f"the broker gives up {number}", _with(lost, number, process=after)
        if process.phase == "":
            if process.inbox:
                new = process.inbox - process.known
                doubtful = process.inbox & process.flagged
                known = doubtful - new if self._has("note known") else NONE
                yield now(
                    f"{number} announces", phase="announced", group=process.inbox, doubtful=doubtful & new, new=new,
                    inbox=NONE, flagged=NONE, peer=0,
                    announced=doubtful & new if self._has("announce") else NONE, noted=spool.noted | known,
                )  # fmt: skip
            if process.down:
                ids = process.down[0]
                yield now(
                    f"{number} gets a receipt", down=process.down[1:], known=process.known - ids,
                    suspects=spool.suspects - ids, unsettled=spool.unsettled - ids,
                )  # fmt: skip
            if process.given_up and not process.down:
                yield now(
                    f"{number} notices", is_open=False, inbox=NONE, flagged=NONE,
                    suspects=spool.suspects | spool.unsettled, unsettled=NONE,
                )  # fmt: skip
        elif process.phase == "announced":
            yield now(f"{number} has written its pending file", phase="written", pending=process.new, peer=0)
        elif process.phase == "stored":
            up = process.up if process.given_up else (*process.up, process.group)
            yield now(f"{number} acknowledges", phase="", group=NONE, doubtful=NONE, new=NONE, up=up)
        elif process.peer == len(state.spools):
            yield self._named(state, number, spool, process, now)
        elif process.peer == number:
            yield now(f"{number} skips itself", peer=process.peer + 1)
        else:
            yield self._look(state, number, process)

    @staticmethod
    def _named(state: State, number: int, spool: Spool, process: Process, now: Any) -> tuple[str, State]:
        if spool.pending is None:
            return now(f"{number} finds its file removed", phase="announced")
        if spool.pending != process.new:
            return now(f"{number} writes less", phase="announced", pending=None)
        return now(
            f"{number} stores {sorted(process.new)}", phase="stored", known=process.known | process.group,
            pending=None, announced=NONE, noted=spool.noted | (spool.announced & process.new),
            rows=tuple(sorted((*spool.rows, *process.new))), unsettled=spool.unsettled | process.new,
        )  # fmt: skip

    def _look(self, state: State, number: int, process: Process) -> tuple[str, State]:
        """Look at one peer, in steps between which it goes on."""
        other = state.spools[process.peer]
        name = f"{number} looks at {process.peer}"
        found, doubtful = NONE, process.doubtful
        order = ["written", "pending", "segments", "suspects", "noted"]
        if not self._has("pending first"):
            order[1:3] = order[2:0:-1]
        if not self._has("noted last"):
            order.pop()
        step = process.phase
        after = process
        if step == "written":
            asked = process.new if self._has("light look") else doubtful
            found = other.noted & asked
            after = process._replace(hits=other.announced & asked, unsettled=other.unsettled)
        elif step == "pending":
            hit = other.pending is not None and other.pending & (doubtful | process.hits)
            if hit and self._has("remove pending"):
                state = _with(state, process.peer, pending=None)
        elif step == "segments":
            # The mark was read at first: what was settled since may still be listed, or is among the suspects.
            found = (other.unsettled & doubtful) | (other.noted & process.hits)
        elif step == "suspects":
            found = other.suspects & doubtful if self._has("suspects") else NONE
        else:
            found = other.noted & doubtful
        following = order.index(step) + 1
        after = after._replace(new=process.new - found)
        if following == len(order):
            after = after._replace(phase="written", peer=process.peer + 1, hits=NONE, unsettled=NONE)
        else:
            after = after._replace(phase=order[following])
        return f"{name}: {step}", _with(state, number, process=after)


def _with(state: State, number: int, **changes: Any) -> State:
    spools = list(state.spools)
    spools[number] = spools[number]._replace(**changes)
    return state._replace(spools=tuple(spools))


def _sum(many: tuple[Ids, ...]) -> Ids:
    return frozenset().union(*many)
