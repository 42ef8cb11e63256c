"""A model of a broker, a spool and the processes that fill it, searched breadth-first through every state.

What decides in the model is the code itself: `Redelivery` says which messages are recognised and how far the spool is
settled, `sound` which segments count. Around them stand the steps in which they are used:

| step | of | in the code |
|---|---|---|
| claim, open | a process, also beside one that lives, as if that were frozen and woke up later | `SpoolWriter` |
| connect, deliver | receiver, broker | |
| seal (W1 to W3), check (W4), ack (W5), receipt (W6) | receiver | `SpoolWriter.keep`, `confirm` |
| ask, hear | a receiver that is idle | `Receiver._round_trip` |
| give up | the broker, which loses a session before its client sees that | |
| notice | receiver | `SpoolWriter.leave` |
| crash | a process, between any two steps | |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from stompy.spark.spool.index import Segment, sound
from stompy.spark.spool.record import Identity
from stompy.spark.spool.redelivery import Redelivery, StoredRange

Memory = tuple[
    frozenset[Identity], int, tuple[tuple[int, int], ...], tuple[tuple[int, StoredRange], ...], tuple[StoredRange, ...]
]

Value = TypeVar("Value", bound=NamedTuple)


def changed(value: Value, **changes: object) -> Value:
    """Return a value with other fields."""
    return value._replace(**changes)


class Session(NamedTuple):
    """A receiver, and its session if it has one.

    `given_up` is the broker's view, `inbox` what lies on the client's side or on its way there, `holds` what the broker
    waits for the ACK of; `stage` is a group that was written, or that may be acknowledged; `up` and `down` are frames
    on their way: the ACK of a delivery, or a question of a turn.
    """

    is_open: bool = False
    given_up: bool = True
    inbox: tuple[int, ...] = ()
    holds: frozenset[int] = frozenset()
    stage: StoredRange | tuple[tuple[int, ...], int, int] | None = None
    up: tuple[StoredRange | int, ...] = ()
    down: tuple[StoredRange | int, ...] = ()


class Process(NamedTuple):
    """One that fills the spool: `epoch` is 0 before its claim; `sealing` is the receiver that holds the lock."""

    epoch: int = 0
    memory: Memory | None = None
    next: int = 0
    sealing: int | None = None
    is_over: bool = False
    sessions: tuple[Session, ...] = ()


class State(NamedTuple):
    queue: frozenset[int]
    acknowledged: frozenset[int] = frozenset()
    segments: tuple[tuple[Segment, tuple[int, ...]], ...] = ()
    suspects: frozenset[Identity] = frozenset()
    settled: int = 0
    claimed: int = 0
    begun: tuple[int, int] = (0, 0)
    processes: tuple[Process, ...] = ()
    losses: int = 0


@dataclass(frozen=True)
class Model:
    """What is searched.

    Attributes:
        messages: in the queue at first.
        receivers: of each process.
        lives: processes, one after the other; each but the last may crash or be frozen.
        losses: sessions that the broker gives up although their process lives.
        rule: the class that decides.
    """

    messages: int = 2
    receivers: int = 2
    lives: int = 2
    losses: int = 1
    rule: type[Redelivery] = Redelivery
    seen: dict[State, tuple[State, str] | None] = field(default_factory=dict, compare=False)

    def search(self) -> list[str] | None:
        """Return the steps to the first state in which a message is lost or there twice; `None` if there is none."""
        start = State(queue=frozenset(range(self.messages)), processes=(Process(sessions=self._sessions()),))
        self.seen[start] = None
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            if self._is_wrong(state):
                return self._way_to(state)
            for step, after in self._steps(state):
                if after not in self.seen:
                    self.seen[after] = (state, step)
                    waiting.append(after)
        return None

    def _way_to(self, state: State) -> list[str]:
        steps = []
        while (before := self.seen[state]) is not None:
            state, step = before
            steps.append(step)
        return steps[::-1]

    @staticmethod
    def _is_wrong(state: State) -> bool:
        if state.claimed != state.begun[0]:
            return False  # nothing new is shown while an owner is about to begin
        kept, _ = sound([segment for segment, _ in state.segments], epoch=state.begun[0], start=state.begun[1])
        held = dict(state.segments)
        there = [message for segment in kept for message in held[segment]]
        return len(there) != len(set(there)) or not state.acknowledged <= set(there)

    def _sessions(self) -> tuple[Session, ...]:
        return (Session(),) * self.receivers

    # Steps.

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        last = len(state.processes) - 1
        for number, process in enumerate(state.processes):
            if not process.is_over:
                yield from self._of_process(state, number, process)
                if number == last and process.epoch and len(state.processes) < self.lives:
                    successor = Process(sessions=self._sessions())
                    yield "a successor starts", changed(state, processes=(*state.processes, successor))
            for receiver, session in enumerate(process.sessions):
                name = f"{number}.{receiver}"
                yield from self._of_broker(state, number, receiver, session, name)
                if not process.is_over and process.memory is not None:
                    yield from self._of_receiver(state, number, process, receiver, session, name)

    def _of_process(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        if not process.epoch:
            claimed = state.claimed + 1
            yield (
                f"{number} claims",
                changed(self._with(state, number, changed(process, epoch=claimed)), claimed=claimed),
            )
        elif process.memory is None:
            if state.claimed == process.epoch:
                yield f"{number} opens", self._opened(state, number, process)
        elif number < self.lives - 1:
            yield f"{number} crashes", self._with(state, number, self._dead(process))

    def _opened(self, state: State, number: int, process: Process) -> State:
        kept, _ = sound([segment for segment, _ in state.segments], epoch=state.begun[0], start=state.begun[1])
        held = dict(state.segments)
        end = max([state.settled, state.begun[1], *(segment.end for segment in kept)])
        found = {_identity(one) for segment in kept if segment.end > state.settled for one in held[segment]}
        suspects = state.suspects | found
        opened = changed(process, memory=_frozen(self.rule(known=set(suspects))), next=end)
        counted = tuple(pair for pair in state.segments if pair[0] in kept)
        return changed(
            self._with(state, number, opened),
            segments=counted, suspects=suspects, settled=end, begun=(process.epoch, end),
        )  # fmt: skip

    @staticmethod
    def _dead(process: Process) -> Process:
        # What has left is on its way all the same; who reads the answers is gone.
        sessions = tuple(changed(one, is_open=False, inbox=(), stage=None, down=()) for one in process.sessions)
        return changed(process, is_over=True, memory=None, sealing=None, next=0, sessions=sessions)

    def _of_broker(
        self, state: State, number: int, receiver: int, session: Session, name: str
    ) -> Iterator[tuple[str, State]]:
        if session.given_up:
            return
        if session.up:
            frame, rest = session.up[0], session.up[1:]
            after = changed(session, up=rest, down=(*session.down, frame) if session.is_open else ())
            acknowledged = state.acknowledged
            if isinstance(frame, StoredRange):
                covered = {int(one[0]) for one in frame.ids} & session.holds
                acknowledged |= covered
                after = changed(after, holds=session.holds - covered)
            yield (
                f"the broker answers {name}",
                changed(self._in(state, number, receiver, after), acknowledged=acknowledged),
            )
        elif not session.is_open:
            yield f"the broker gives up {name}", self._given_up(state, number, receiver, session)
        if session.is_open:
            for message in sorted(state.queue):
                got = changed(session, inbox=(*session.inbox, message), holds=session.holds | {message})
                yield (
                    f"{message} is delivered to {name}",
                    changed(self._in(state, number, receiver, got), queue=state.queue - {message}),
                )
            if state.losses < self.losses and (session.holds or session.up):
                yield (
                    f"the broker gives up {name}",
                    changed(self._given_up(state, number, receiver, session), losses=state.losses + 1),
                )

    def _given_up(self, state: State, number: int, receiver: int, session: Session) -> State:
        after = changed(session, given_up=True, holds=frozenset(), up=())
        return changed(self._in(state, number, receiver, after), queue=state.queue | session.holds)

    def _of_receiver(
        self, state: State, number: int, process: Process, receiver: int, session: Session, name: str
    ) -> Iterator[tuple[str, State]]:
        rule = self._thawed(process)
        if not session.is_open:
            if session.given_up and (
                state.queue or any(one.holds for each in state.processes for one in each.sessions)
            ):
                rule.begin(receiver)
                yield (
                    f"{name} connects",
                    self._in(state, number, receiver, Session(is_open=True, given_up=False), rule=rule),
                )
            return
        if session.stage is None:
            if session.inbox and process.sealing is None:
                yield f"{name} seals", self._sealed(state, number, process, receiver, session, rule)
            if not session.inbox and not session.up and not session.down and rule.needs_receipt(receiver):
                yield f"{name} asks", self._in(state, number, receiver, changed(session, up=(rule.turn,)))
        elif not isinstance(session.stage, StoredRange):
            yield f"{name} looks at the fence", self._checked(state, number, process, receiver, session, rule)
            return
        else:
            up = () if session.given_up else (*session.up, session.stage)
            yield f"{name} acknowledges", self._in(state, number, receiver, changed(session, stage=None, up=up))
        if session.down:
            yield f"{name} gets a receipt", self._heard(state, number, process, receiver, session)
        if session.given_up:
            yield f"{name} notices", self._noticed(state, number, process, receiver)

    def _sealed(
        self, state: State, number: int, process: Process, receiver: int, session: Session, rule: Redelivery
    ) -> State:
        new = tuple(message for message in session.inbox if _identity(message) not in rule.known)
        end = process.next + len(new)
        segments = state.segments
        if new:
            segment = Segment(process.next, len(new), process.epoch, digest=f"{number}{receiver}")
            segments = (*segments, (segment, new))
        after = changed(session, inbox=(), stage=(session.inbox, process.next, end))
        holding = changed(process, sealing=receiver)
        return changed(self._in(self._with(state, number, holding), number, receiver, after), segments=segments)

    def _checked(
        self, state: State, number: int, process: Process, receiver: int, session: Session, rule: Redelivery
    ) -> State:
        if state.claimed != process.epoch:
            return self._with(state, number, self._dead(process))  # fenced
        assert isinstance(session.stage, tuple)
        messages, start, end = session.stage
        delivery = rule.wrote(receiver, tuple(map(_identity, messages)), start, end)
        free = changed(process, sealing=None, next=end)
        return self._in(self._with(state, number, free), number, receiver, changed(session, stage=delivery), rule=rule)

    def _heard(self, state: State, number: int, process: Process, receiver: int, session: Session) -> State:
        rule, frame = self._thawed(process), session.down[0]
        forgotten = rule.confirm(frame) if isinstance(frame, StoredRange) else rule.note_receipt(receiver, frame)
        after = self._in(state, number, receiver, changed(session, down=session.down[1:]), rule=rule)
        return self._on_disk(after, process, rule, state.suspects - set(forgotten))

    def _noticed(self, state: State, number: int, process: Process, receiver: int) -> State:
        if state.claimed != process.epoch:
            return self._with(state, number, self._dead(process))
        rule = self._thawed(process)
        forgotten, suspects = rule.end(receiver)
        rule.leave(receiver)
        after = self._in(state, number, receiver, Session(), rule=rule)
        return self._on_disk(after, process, rule, (state.suspects - set(forgotten)) | set(suspects))

    @staticmethod
    def _on_disk(state: State, process: Process, rule: Redelivery, suspects: frozenset[Identity]) -> State:
        """Write the watermark at once, which is as high as it ever is; also a process that was frozen does."""
        settled = rule.settled
        return changed(state, suspects=suspects, settled=process.next if settled is None else settled)

    # States.

    def _thawed(self, process: Process) -> Redelivery:
        assert process.memory is not None
        known, turn, receipts, confirmed, waiting = process.memory
        return self.rule(set(known), turn, dict(receipts), list(confirmed), list(waiting))

    @staticmethod
    def _with(state: State, number: int, process: Process) -> State:
        return changed(state, processes=(*state.processes[:number], process, *state.processes[number + 1 :]))

    def _in(
        self, state: State, number: int, receiver: int, session: Session, *, rule: Redelivery | None = None
    ) -> State:
        process = state.processes[number]
        sessions = (*process.sessions[:receiver], session, *process.sessions[receiver + 1 :])
        memory = process.memory if rule is None else _frozen(rule)
        return self._with(state, number, changed(process, sessions=sessions, memory=memory))


def _frozen(rule: Redelivery) -> Memory:
    return (
        frozenset(rule.known), rule.turn, tuple(sorted(rule.receipts.items())), tuple(rule.confirmed), tuple(rule.open)
    )  # fmt: skip


def _identity(message: int) -> Identity:
    return (str(message), "")
