"""What is decided of a world before it runs: its broker, its programs, what may break; all of it drawn by a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

import stompy
from stompy.broker import Like
from stompy.testing.faults import Cut, Delay, Double, Drop, FrameFault
from stompy.testing.network import Weather
from stompy.transport.websocket.frames import MAX_FRAME
from tests.simulation.disks import DiskFault
from tests.simulation.dropins import DropInProgram
from tests.simulation.outboxes import OutboxProgram
from tests.simulation.spools import HAS_ARROW, SpoolProgram
from tests.simulation.workers import CLOSE, WorkerProgram

Op = Literal["send", "confirm", "async", "batch", "transaction", "abort", "refused", "request", "pause"]
Style = Literal["handler", "listener", "receive", "iterate", "transaction"]
OPS: tuple[Op, ...] = ("send", "confirm", "confirm", "async", "async", "batch", "transaction", "abort", "pause")
STYLES: tuple[Style, ...] = ("handler", "handler", "receive", "iterate", "transaction")
MODES: tuple[stompy.AckMode, ...] = ("handled", "handled", "client-individual", "client", "auto")
LIKE: tuple[Like | None, ...] = (None, None, None, "activemq", "activemq5", "artemis", "rabbitmq")
WORKERS = 0.1
"""The part of the worlds whose queues have workers instead of consumers."""

CHILDREN = 0.3
"""The part of the worlds with workers whose workers have child processes."""

OUTBOXES = 0.1
"""The part of the worlds whose producers have an outbox."""

DROP_INS = 0.1
"""The part of the worlds that have programs for stomp.py."""

SPOOLS = 0.08
"""The part of the other worlds whose queues are read through spools."""

WEB = 0.125
"""The part of the worlds in which programs connect by WebSocket."""


@dataclass(frozen=True)
class Producer:
    """A process that sends from one or two threads over one connection."""

    queue: str
    threads: tuple[tuple[Op, ...], ...]
    resends: bool
    killed_at: float | None


@dataclass(frozen=True)
class Consumer:
    """A process that handles the messages of one queue."""

    queue: str
    mode: stompy.AckMode
    style: Style
    fails: float
    slow: float
    killed_at: float | None
    inbox: int = 10_000
    """How many messages wait for the program before its connection stops reading."""
    hears: bool = False
    """Whether a listener gets the messages too, before the handler."""
    leaves: float = 0.0
    """How often it ends its subscription and begins another one."""
    alone: bool = True
    """Whether its handler shares the thread of the listener, or one thread receives; else it has its own, or two do."""

    @property
    def receives_twice(self) -> bool:
        """Whether two threads receive; in mode client an ACK would cover messages of the other one."""
        return self.style == "receive" and not self.alone and self.mode != "client"


@dataclass(frozen=True)
class Plan:
    """What is decided before a run."""

    seed: int
    like: Like | None
    weather: Weather
    producers: tuple[Producer, ...]
    consumers: tuple[Consumer, ...]
    restarts: tuple[float, ...]
    rate: float
    room: int | None = None
    """How many messages a queue takes; what comes then is refused."""
    depth: int | None = None
    """How many preemptions there are, at steps that are drawn; `None`: at every step with the chance `rate`."""
    lines: tuple[str, ...] = ()
    """Modules in which the thread may change before each line."""
    frames: tuple[FrameFault, ...] = ()
    """What happens to single frames, until the weather clears up."""
    workers: tuple[WorkerProgram, ...] = ()
    outboxes: tuple[OutboxProgram, ...] = ()
    drop_ins: tuple[DropInProgram, ...] = ()
    spools: tuple[SpoolProgram, ...] = ()
    web: tuple[str, ...] = ()
    """The programs that connect by WebSocket."""
    fragment: int = MAX_FRAME
    """Bytes of a message in one frame of WebSocket."""

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """Return the plan of a seed."""
        random = Random(seed)  # noqa: S311 - it has to repeat
        faults, small = random.random() < 0.75, random.random() < 0.5
        window = random.choice((65_536, 65_536, 300, 50))
        weather = Weather(
            breaks=random.choice((0.0, 0.2, 0.5)) if faults else 0.0,
            refusals=random.choice((0.0, 0.3)) if faults else 0.0,
            # A narrow window far away is so slow that every call reaches its limit.
            latency=random.choice((0.0, 0.02, 0.5 if window == 65_536 else 0.02)),
            window=window,
            pieces=random.random() < 0.5,
        )
        queues = ("/queue/a", "/queue/b")[: 1 if small else random.choice((1, 1, 2))]
        refuses = faults and random.random() < 0.2
        ops = (*OPS, *(("refused",) * 3 if refuses else ()))

        def kill() -> float | None:
            return random.uniform(0.0, 3.0) if faults and random.random() < 0.2 else None

        producers = tuple(
            Producer(
                queue=random.choice(queues),
                threads=tuple(
                    tuple(random.choice(ops) for _ in range(random.randint(1, 3 if small else 6)))
                    for _ in range(random.choice((1, 2)))
                ),
                resends=random.random() < 0.3,
                killed_at=kill(),
            )
            for _ in range(1 if small else random.choice((1, 1, 2)))
        )
        consumers = tuple(
            Consumer(
                queue=queue,
                mode=random.choice(MODES),
                style=random.choice(STYLES),
                fails=random.choice((0.0, 0.0, 0.3)),
                slow=random.choice((0.0, 0.1, 1.0)),
                killed_at=kill(),
                inbox=random.choice((1, 2, 10_000)),
            )
            for queue in queues
            for _ in range(random.choice((0, 1, 1) if small else (0, 1, 1, 2)))
        )
        restarts = tuple(random.uniform(0.0, 4.0) for _ in range(random.choice((0, 0, 1, 2)) if faults else 0))
        like, rate = random.choice(LIKE), random.choice((0.01, 0.05, 0.3))
        room = random.choice((None, 2, 4)) if faults else None
        depth = random.choice((None, None, 1, 2, 4))
        lines = (random.choice(LINES),) if random.random() < 0.05 else ()
        frames = tuple(_drawn_fault(random) for _ in range(random.choice((0, 0, 1, 2)) if faults else 0))
        plan = cls(seed, like, weather, producers, consumers, restarts, rate, room, depth, lines, frames)
        lot = Random(seed + 3)  # noqa: S311 - it has to repeat, and leaves the plans before it as they are
        if lot.random() < WORKERS:
            plan = plan.with_workers(lot, ops, faults=faults)
        if lot.random() < OUTBOXES:
            # What a full queue refuses ends sessions, and an outbox tries again for minutes.
            programs = tuple(OutboxProgram.drawn(lot, each.queue, faults=faults) for each in plan.producers)
            plan = replace(plan, producers=(), outboxes=programs, room=None)
        lot = Random(seed + 4)  # noqa: S311 - as above
        plan = plan.with_drop_ins(lot, faults=faults) if lot.random() < DROP_INS else plan
        lot = Random(seed + 5)  # noqa: S311 - as above
        if HAS_ARROW and not plan.workers and not plan.drop_ins and lot.random() < SPOOLS:
            used = sorted({*(each.queue for each in plan.producers), *(each.queue for each in plan.outboxes)})
            spools = tuple(SpoolProgram.drawn(lot, queue, faults=faults) for queue in used)
            plan = replace(plan, consumers=(), spools=spools)
        lot = Random(seed + 6)  # noqa: S311 - as above
        if lot.random() < WEB:
            web = tuple(name for name in plan.names if lot.random() < 0.8)
            # The answer to a handshake finds room: the system of a new connection has more than 50 bytes.
            weather = replace(weather, window=max(300, window))
            plan = replace(plan, weather=weather, web=web, fragment=lot.choice((MAX_FRAME, MAX_FRAME, 40)))
        lot = Random(seed + 7)  # noqa: S311 - as above
        plan = plan.with_disks(lot) if faults else plan
        plan = plan.with_callbacks(Random(seed + 10))  # noqa: S311 - as above
        lot = Random(seed + 8)  # noqa: S311 - as above
        if plan.workers and lot.random() < CHILDREN:
            with_children = tuple(each.with_children(lot, faults=faults) for each in plan.workers)
            plan = replace(plan, workers=with_children)
            if lot.random() < 0.1:
                plan = replace(plan, lines=("stompy/worker/processes.py",))
            lot = Random(seed + 9)  # noqa: S311 - as above
            if faults and lot.random() < 0.3:
                plan = replace(plan, workers=tuple(each.with_limit(lot) for each in plan.workers))
        return plan

    def with_disks(self, random: Random) -> Plan:
        """Return the plan with faults of the disks of some outboxes and spools, and with batches that take longer."""

        def disk(most: int, *deciding: str) -> tuple[DiskFault, ...]:
            return tuple(DiskFault.drawn(random, most, deciding) for _ in range(random.choice((0, 1, 1, 2, 3))))

        outboxes = tuple(replace(each, disk=disk(50, "execute COMMIT", "fsync outbox-lock")) for each in self.outboxes)
        spools = tuple(
            replace(
                each,
                disk=disk(300, "replace seg-", "fsync .tmp-seg-"),
                slow=random.choice((0.0, 3.0)),
                late=random.choice((0.0, 0.0, 0.5)),
            )
            for each in self.spools
        )
        return replace(self, outboxes=outboxes, spools=spools)

    def with_callbacks(self, random: Random) -> Plan:
        """Return the plan with requests, with listeners that get messages, and with subscriptions that end."""

        def asking(ops: tuple[Op, ...]) -> tuple[Op, ...]:
            at = random.randint(0, len(ops))
            return (*ops[:at], "request", *ops[at:]) if random.random() < 0.2 else ops

        def changed(consumer: Consumer) -> Consumer:
            called = consumer.style == "handler"
            # RabbitMQ keeps for the session what an ended subscription had.
            ends = self.like != "rabbitmq" or consumer.mode == "auto"
            return replace(
                consumer,
                style="listener" if called and random.random() < 0.3 else consumer.style,
                hears=called and random.random() < 0.5,
                leaves=random.choice((0.0, 0.0, 0.1, 0.5)) if ends else 0.0,
                alone=random.random() < 0.75,
            )

        producers = tuple(replace(each, threads=tuple(map(asking, each.threads))) for each in self.producers)
        return replace(self, producers=producers, consumers=tuple(map(changed, self.consumers)))

    def killed(self, name: str) -> bool:
        """Return whether a producer or a consumer is killed."""
        return (self.producers if name[0] == "p" else self.consumers)[int(name[1:])].killed_at is not None

    def answers(self, queue: str) -> bool:
        """Return whether each request to a queue has a reply: nothing breaks, and consumers alone take its messages."""
        consumers = [each for each in self.consumers if each.queue == queue]
        others = self.workers or self.drop_ins or self.spools
        return self.calm and bool(consumers) and not others and not any(each.leaves for each in consumers)

    @property
    def names(self) -> list[str]:
        """The names of the programs."""
        kinds = {
            "p": self.producers,
            "c": self.consumers,
            "w": self.workers,
            "o": self.outboxes,
            "d": self.drop_ins,
        }
        return [f"{kind}{number}" for kind, programs in kinds.items() for number in range(len(programs))]

    def with_drop_ins(self, random: Random, *, faults: bool) -> Plan:
        """Return the plan with programs for stomp.py in the place of some of its programs."""
        queues = sorted({*(each.queue for each in self.producers), *(each.queue for each in self.outboxes)})
        programs = tuple(
            DropInProgram.drawn(random, random.choice(queues), receives=not self.workers, faults=faults)
            for _ in range(random.choice((1, 1, 2)))
        )
        producers = tuple(each for each in self.producers if random.random() < 0.5)
        consumers = tuple(each for each in self.consumers if random.random() < 0.5)
        return replace(self, producers=producers, consumers=consumers, drop_ins=programs)

    @property
    def receivers(self) -> list[Consumer | DropInProgram]:
        """Consumers and drop-ins with a subscription."""
        return [*self.consumers, *(program for program in self.drop_ins if program.mode is not None)]

    def with_workers(self, random: Random, ops: Sequence[Op], *, faults: bool) -> Plan:
        """Return the plan with a worker for each queue that gets messages, and more of them."""
        producers = tuple(
            replace(each, threads=tuple((*more, *random.choices(ops, k=random.randint(0, 5))) for more in each.threads))
            for each in self.producers
        )
        queues = sorted({producer.queue for producer in producers})
        programs = tuple(WorkerProgram.drawn(random, queue, faults=faults) for queue in queues)
        # A transactional task cannot run on Artemis; what a full queue refuses, a worker tries for minutes.
        fit = self.like != "artemis" or all(program.kind != "transactional" for program in programs)
        like = self.like if fit else None
        return replace(self, like=like, producers=producers, consumers=(), workers=programs, room=None)

    @property
    def faultless(self) -> bool:
        """Whether nothing breaks."""
        programs: list[Producer | Consumer | DropInProgram] = [*self.producers, *self.consumers, *self.drop_ins]
        restarted: list[object] = [
            *(each.kills or each.events or each.slow > CLOSE for each in self.workers),
            *(each.kills or each.disk for each in self.outboxes),
        ]
        restarted += [each.kills or each.disk or each.late for each in self.spools]
        killed = any(program.killed_at is not None for program in programs) or any(restarted)
        weather = self.weather.breaks or self.weather.refusals
        refuses = any("refused" in ops for producer in self.producers for ops in producer.threads)
        return not (weather or self.restarts or killed or self.room or self.frames or refuses)

    @property
    def calm(self) -> bool:
        """Whether nothing breaks, nothing is slow, and so no call may fail."""
        wide = self.weather.window == 65_536 and self.weather.latency <= 0.02
        return self.faultless and wide and not any(each.fails for each in self.receivers)

    def smaller(self) -> Iterator[Plan]:
        """Yield plans with one thing less, to find the smallest that fails."""
        for number, producer in enumerate(self.producers):
            rest = self.producers[:number] + self.producers[number + 1 :]
            yield replace(self, producers=rest)
            for index, ops in enumerate(producer.threads):
                fewer = producer.threads[:index] + producer.threads[index + 1 :]
                candidates = [fewer] if fewer else []
                candidates += [
                    (*producer.threads[:index], ops[:at] + ops[at + 1 :], *producer.threads[index + 1 :])
                    for at in range(len(ops))
                ]
                for threads in candidates:
                    changed = replace(producer, threads=threads)
                    yield replace(self, producers=(*self.producers[:number], changed, *self.producers[number + 1 :]))
            if producer.killed_at is not None:
                changed = replace(producer, killed_at=None)
                yield replace(self, producers=(*self.producers[:number], changed, *self.producers[number + 1 :]))
        for number, consumer in enumerate(self.consumers):
            yield replace(self, consumers=self.consumers[:number] + self.consumers[number + 1 :])
            for changed_one in (
                replace(consumer, killed_at=None),
                replace(consumer, fails=0.0),
                replace(consumer, slow=0.0),
                replace(consumer, leaves=0.0),
                replace(consumer, alone=True),
            ):
                if changed_one != consumer:
                    rest_of = self.consumers[number + 1 :]
                    yield replace(self, consumers=(*self.consumers[:number], changed_one, *rest_of))
        for number, worker in enumerate(self.workers):
            before, after = self.workers[:number], self.workers[number + 1 :]
            yield replace(self, workers=before + after)
            for less in worker.smaller():
                yield replace(self, workers=(*before, less, *after))
        for number, outbox in enumerate(self.outboxes):
            yield replace(self, outboxes=self.outboxes[:number] + self.outboxes[number + 1 :])
            for smaller in outbox.smaller():
                yield replace(self, outboxes=(*self.outboxes[:number], smaller, *self.outboxes[number + 1 :]))
        for number, drop_in in enumerate(self.drop_ins):
            yield replace(self, drop_ins=self.drop_ins[:number] + self.drop_ins[number + 1 :])
            for other in drop_in.smaller():
                yield replace(self, drop_ins=(*self.drop_ins[:number], other, *self.drop_ins[number + 1 :]))
        for number, spool in enumerate(self.spools):
            for one in spool.smaller():
                yield replace(self, spools=(*self.spools[:number], one, *self.spools[number + 1 :]))
        for number in range(len(self.restarts)):
            yield replace(self, restarts=self.restarts[:number] + self.restarts[number + 1 :])
        for weather in (
            replace(self.weather, breaks=0.0),
            replace(self.weather, refusals=0.0),
            replace(self.weather, latency=0.0),
            replace(self.weather, pieces=False),
            replace(self.weather, window=65_536),
        ):
            if weather != self.weather:
                yield replace(self, weather=weather)
        if self.room is not None:
            yield replace(self, room=None)
        for number in range(len(self.frames)):
            yield replace(self, frames=self.frames[:number] + self.frames[number + 1 :])
        if self.lines:
            yield replace(self, lines=())
        for name in self.web:
            yield replace(self, web=tuple(other for other in self.web if other != name))
        if self.fragment != MAX_FRAME:
            yield replace(self, fragment=MAX_FRAME)
        if self.depth:
            yield replace(self, depth=self.depth - 1)
        if self.like is not None:
            yield replace(self, like=None)
        for rate in (0.0, 0.01):
            if rate < self.rate:
                yield replace(self, rate=rate)


LINES = ("stompy/link/writer.py", "stompy/link/receipts.py", "stompy/link/flow.py", "stompy/connection/routing.py")


def _drawn_fault(random: Random) -> FrameFault:
    """Return what happens to a frame: the broker is late, silent, talks twice, or the session ends at the frame."""
    nth = random.randint(1, 4)
    kind = random.choice(("drop", "delay", "double", "cut"))
    if kind == "cut":
        frame = random.choice(("SEND", "COMMIT", "ACK", "RECEIPT", "MESSAGE", "CONNECTED", "DISCONNECT"))
        return Cut(frame, nth=nth, keep=random.choice((None, None, 0, 9)))
    if kind == "delay":
        return Delay(random.choice(("RECEIPT", "MESSAGE")), nth=nth, seconds=random.choice((0.1, 2.0, 5.0)))
    return Drop("RECEIPT", nth=nth) if kind == "drop" else Double("RECEIPT", nth=nth)
