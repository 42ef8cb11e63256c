"""Workers in a simulated world: what a seed draws of one, what its tasks note, and the judge of what was promised.

A worker is a process that handles the messages of a queue, is killed, and is started again a moment later. Its tasks
note each attempt; `breaches` compares the attempts with what `docs/how-to/workers.md` promises.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

import stompy
import stompy.worker
from stompy.testing.world import Event, current_world
from stompy.worker.task import Task, TaskContext

Kind = Literal["plain", "keyed", "transactional"]
Result = Literal["running", "returned", "raised", "rejected", "crashed", "interrupted"]
"""Of an attempt; `crashed` where its process was killed and ran no other, `interrupted` where it ran others too."""
Happening = Literal["kill child", "kill parent", "stop", "stop all", "stop twice", "signal child"]
"""What happens to the processes of a worker; to stop it is to send it SIGTERM, or that and the same to its children."""
HAPPENINGS: tuple[Happening, ...] = (
    *("kill child",) * 5,
    "kill parent",
    "stop",
    "stop all",
    "stop twice",
    "signal child",
)
OUT = "/queue/forwarded"
"""Where transactional tasks send to."""
OUTPUT = ">out"
"""The end of the bodies of what they send."""
CLOSE = 4.0
"""Seconds that running tasks get when a worker is closed."""
MARGIN = 0.05
UNSETTLED = 30.0
"""Seconds after its end in which a message may not have been settled."""
TICKS = 0.5
"""Seconds after a time limit in which a task is replaced."""


@dataclass(frozen=True)
class WorkerProgram:
    """A process that runs a task for one queue.

    Attributes:
        kills: when it is killed; it is started again.
        children: how many child processes run the task; `None` for none.
        events: when what happens to its processes; see `children.py`.
        max_messages: how many a child process takes before it ends in order, and is replaced.
        max_seconds: how long it lives.
    """

    queue: str
    kind: Kind
    attempts: int
    threads: int
    prefetch: int | None
    fails: float
    rejects: float
    slow: float
    time_limit: float | None
    kills: tuple[float, ...]
    children: int | None = None
    events: tuple[tuple[float, Happening], ...] = ()
    max_messages: int | None = None
    max_seconds: float | None = None

    @classmethod
    def drawn(cls, random: Random, queue: str, *, faults: bool) -> WorkerProgram:
        """Return the worker of a queue."""
        kind: Kind = random.choice(("plain", "plain", "keyed", "keyed", "transactional"))
        slow = random.choice((0.0, 0.1, 1.0))
        kills = random.choice((0, 1, 1, 2)) if faults else 0
        return cls(
            queue,
            kind,
            attempts=random.choice((1, 2, 4)),
            threads=random.choice((1, 2, 4)),
            prefetch=random.choice((None, 1, 10)),
            fails=random.choice((0.0, 0.3, 0.7)),
            rejects=random.choice((0.0, 0.0, 0.2)),
            slow=slow,
            time_limit=random.choice((None, None, 0.5)) if slow == 1.0 else None,
            kills=tuple(random.uniform(0.0, 4.0) for _ in range(kills)),
        )

    def with_children(self, random: Random, *, faults: bool) -> WorkerProgram:
        """Return the worker with child processes."""
        events = tuple(
            (random.uniform(0.0, 4.0), random.choice(HAPPENINGS) if random.random() < 0.5 else "kill child")
            for _ in range(random.choice((1, 2, 4)) if faults else 0)
        )
        return replace(self, kills=(), children=random.choice((1, 2, 2, 3)), events=tuple(sorted(events)))

    def with_limit(self, random: Random) -> WorkerProgram:
        """Return the worker with children that end in order, some of them before a task has."""
        slow = self.slow if self.time_limit is not None else random.choice((self.slow, 1.5 * CLOSE))
        if random.random() < 0.5:
            return replace(self, max_messages=random.choice((1, 4)), slow=slow)
        return replace(self, max_seconds=15.0, slow=slow)

    def smaller(self) -> Iterator[WorkerProgram]:
        """Yield workers with one thing less."""
        for number in range(len(self.events)):
            yield replace(self, events=self.events[:number] + self.events[number + 1 :])
        if self.children is not None and self.children > 1:
            yield replace(self, children=self.children - 1)
        for number in range(len(self.kills)):
            yield replace(self, kills=self.kills[:number] + self.kills[number + 1 :])
        for changed in (
            replace(self, kind="plain"),
            replace(self, max_messages=None, max_seconds=None),
            replace(self, fails=0.0),
            replace(self, rejects=0.0),
            replace(self, slow=0.0, time_limit=None),
            replace(self, time_limit=None),
            replace(self, threads=1),
            replace(self, prefetch=None),
        ):
            if changed != self:
                yield changed

    def delay(self, attempt: int) -> float:
        """Return the seconds after a failed attempt."""
        return 0.5 * attempt

    def empties(self, queue: str) -> bool:
        """Return whether a queue is empty when all is done; dead letters stay."""
        return queue == self.queue or queue.startswith(f"{self.queue}.parked")

    @property
    def dead_letters(self) -> str:
        """Where its dead letters go."""
        return f"{self.queue}.dead"


SETTLED_WITHIN = 5
"""Seconds after which a worker knows what became of its messages, if nothing breaks."""


def atomic(like: str | None) -> bool:
    """Return whether a copy and an acknowledgement take effect together at a broker."""
    return like not in ("artemis", "rabbitmq")


@dataclass
class Tried:
    """One attempt at a message, as its task saw it."""

    body: str
    attempt: int
    began: float
    key: str
    life: int
    """How often the worker had been started."""
    result: Result = "running"
    ended: float = float("inf")
    limit: float = float("inf")
    process: str = ""
    died: float | None = None
    """When its process was killed, if it may not have been settled by then."""
    again: bool = False
    """Whether the attempt before was running when its process was killed, so that this one is run alone."""

    @property
    def may_be_processed(self) -> bool:
        """Whether the task returned before it was replaced, or about then."""
        return self.result == "returned" and self.ended - self.began < self.limit + TICKS

    @property
    def failed_at(self) -> float | None:
        """When it failed, if it did: at its time limit at the latest."""
        end = self.began + self.limit
        if self.result in ("raised", "rejected"):
            return min(self.ended, end)
        if self.died is not None and self.result != "interrupted":
            return min(self.died, end)
        return None if end == float("inf") or self.ended < end - MARGIN else end


@dataclass
class Watch:
    """What the tasks of one worker note."""

    program: WorkerProgram
    lives: int = 0
    tried: list[Tried] = field(default_factory=list)
    dead: dict[str, list[Mapping[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """The headers of the dead letters, by body."""
    out: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How often the output of a body is there."""
    miscounted: tuple[int, int] | None = None
    """How many messages the worker has counted as processed, and how many were, if those differ."""
    breaches: list[str] = field(default_factory=list)
    alone: set[str] = field(default_factory=set)
    """Bodies of messages whose next attempt is run alone, as they ran when a process was killed."""
    active: dict[tuple[str, str], float] = field(default_factory=dict)
    """By process and body, when a message was settled; infinity until then."""
    beside: list[tuple[str, str]] = field(default_factory=list)
    """Bodies of messages that were to be run alone, each with one that ran beside it."""

    def counts(self, processed: int) -> bool:
        """Return whether the worker has counted what its tasks have processed."""
        returned = sum(tried.result == "returned" for tried in self.tried)
        self.miscounted = None if processed == returned else (processed, returned)
        return processed == returned

    def died(self, process: str) -> None:
        """Note that a child process was killed."""
        now = current_world().now
        mine = [tried for tried in self.tried if tried.process == process and tried.ended > now - UNSETTLED]
        active = [at for (name, _), at in self.active.items() if name == process and at > now - MARGIN]
        # Not what an error of its session had ended before.
        running = [tried for tried in mine if tried.result == "running" and tried.ended >= now]
        for tried in mine:
            tried.died = now
        for tried in running:
            in_time = now - tried.began < tried.limit - MARGIN  # else it may have failed by its limit before
            if len(running) > 1:
                tried.result = "interrupted"
            # Another message may be noted as running that has not reached its task in the same moment.
            elif len(active) == 1 and in_time and now > tried.began and not self._elsewhere(tried):
                tried.result = "crashed"
            if in_time:
                self.alone.add(tried.body)

    def left(self, process: str) -> None:
        """Note that a child process ended in order; its last attempts have not failed."""
        for tried in self.tried:
            if tried.process == process and tried.result == "running":
                tried.died, tried.result = current_world().now, "interrupted"

    def _elsewhere(self, tried: Tried) -> bool:
        """Return whether a message was delivered once more during an attempt, as a session was lost."""
        return any(each is not tried and each.body == tried.body and each.ended > tried.began for each in self.tried)


class _Settled(stompy.worker.Middleware):
    """Notes from when on until when a message is a worker's own."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def _key(self, message: stompy.Message) -> tuple[str, str]:
        return current_world().current.process, message.text

    def before(self, task: Task, message: stompy.Message) -> None:
        self._watch.active[self._key(message)] = math.inf

    def after(self, task: Task, message: stompy.Message) -> None:
        self._watch.active[self._key(message)] = current_world().now

    retried = deferred = dead_lettered = duplicate = unsettled = after


def key_of(message: stompy.Message) -> str:
    """Return the thread that sent a message, whose order is to be kept."""
    return ".".join(message.text.split(".")[:2])


class Runner:
    """Runs a worker of the plan, once or again after it was killed."""

    def __init__(self, watch: Watch, name: str, note: Callable[[str], None]) -> None:
        self._watch, self._name, self._note = watch, name, note
        self._running: dict[str, Tried] = {}
        """By key, of this life."""
        watch.lives += 1
        self._life = watch.lives
        watch.alone.clear()

    def worker(self, url: str, timeouts: stompy.Timeouts) -> stompy.Worker:
        """Return a new worker."""
        program = self._watch.program
        worker = stompy.Worker(
            url,
            concurrency=program.threads,
            processes=program.children,
            max_messages=program.max_messages,
            max_seconds=program.max_seconds,
            middleware=() if program.children is None else (_Settled(self._watch),),
            max_stuck=None,
            name=self._name,
            login="user",
            passcode="pass",
            heartbeat=(1.0, 1.0),
            timeouts=replace(timeouts, close=CLOSE, start=None),
            reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.05, longest=1.0)),
        )
        arguments: stompy.worker.TaskArguments = {
            "name": "task",
            "attempts": program.attempts,
            "backoff": program.delay,
            "time_limit": program.time_limit,
            "transactional": program.kind == "transactional",
        }
        if program.kind == "keyed":
            arguments["key"] = key_of
        if program.prefetch is not None:
            arguments["prefetch"] = program.prefetch
        worker.add(self._handle, program.queue, **arguments)
        return worker

    def _handle(self, message: stompy.Message, context: TaskContext) -> None:
        world, program, watch = current_world(), self._watch.program, self._watch
        tried = Tried(message.text, context.attempt, world.now, key_of(message), self._life)
        tried.limit = program.time_limit or tried.limit
        tried.process, tried.again = world.current.process, tried.body in watch.alone
        for other in watch.tried:
            if other.process == tried.process and other.ended == math.inf and not self._late(other):
                watch.beside += [(one.body, two.body) for one, two in ((tried, other), (other, tried)) if one.again]
        watch.tried.append(tried)
        watch.alone.discard(tried.body)
        self._note(f"attempt {tried.attempt} at {tried.body}{' (redelivered)' if message.redelivered else ''}")
        beside = self._running.get(tried.key)
        if program.kind == "keyed":
            # What has run longer than its limit is left alone, and the next attempt begins beside it.
            if beside is not None and not self._late(beside):
                watch.breaches.append(f"{tried.body} ran beside {beside.body}, which has its key")
            self._running[tried.key] = tried
        try:
            self._work(tried, context)
        finally:
            if self._running.get(tried.key) is tried:
                del self._running[tried.key]
            tried.ended = world.now
            self._note(f"attempt {tried.attempt} at {tried.body}: {tried.result}")

    def _late(self, tried: Tried) -> bool:
        return current_world().now - tried.began > tried.limit - MARGIN

    def _work(self, tried: Tried, context: TaskContext) -> None:
        world, program = current_world(), self._watch.program
        world.switch(lambda: False, program.slow * world.random.random(), "work")
        if program.kind == "transactional":
            context.send(OUT, f"{tried.body}{OUTPUT}")
        chance = world.random.random()
        if chance < program.rejects:
            tried.result = "rejected"
            raise stompy.Reject("planned")
        if chance < program.rejects + program.fails:
            tried.result = "raised"
            raise ValueError("planned")
        tried.result = "returned"

    def run(self, url: str, timeouts: stompy.Timeouts, over: Event) -> None:
        """Run the worker until all is over."""
        worker = self.worker(url, timeouts)
        try:
            worker.start()
        except stompy.StompError as error:
            self._watch.breaches.append(f"{self._name} did not start: {error!r}")
            return
        self._note(f"{self._name} has started")
        over.wait()
        health = worker.health()
        if health.state != "running":
            self._watch.breaches.append(f"{self._name} had ended by itself: {health}")
        for _ in range(SETTLED_WITHIN):
            if self._watch.counts(worker.health().tasks["task"].counts.get("processed", 0)):
                break
            Event().wait(1.0)  # a message may have left its queue, and the answer be on its way to the worker
        began = current_world().now
        code = worker.close()
        self._note(f"{self._name} has ended with {code!r}")
        if current_world().now - began > CLOSE + 11.0:
            self._watch.breaches.append(f"{self._name} took {current_world().now - began:.1f} s to close")


def breaches(
    watch: Watch,
    like: str | None,
    left: Mapping[str, int],
    resent: set[str],
    ahead: set[str],
    *,
    faultless: bool,
) -> Iterator[str]:
    """Yield the breaches of what was promised of a worker.

    Args:
        watch: what its tasks noted.
        like: the broker.
        left: how often each body is in the queues, dead letters included.
        resent: bodies of which there may be two copies.
        ahead: bodies that no later one of their sender may overtake.
        faultless: whether nothing broke.
    """
    yield from watch.breaches
    program = watch.program
    for body, other in watch.beside:
        if atomic(like) and body not in resent:
            yield f"{body} ran when a process was killed, and then beside {other}"
    by_body: dict[str, list[Tried]] = defaultdict(list)
    for tried in watch.tried:
        by_body[tried.body].append(tried)
    for body, all_tried in by_body.items():
        dead = watch.dead.get(body, [])
        yield from _attempts(program, body, all_tried, copies=atomic(like) and body not in resent, faultless=faultless)
        yield from _dead_letters(program, body, all_tried, dead)
        finished = [tried for tried in all_tried if tried.may_be_processed]
        if faultless and program.time_limit is None and len(finished) + len(dead) != 1 and not left.get(body):
            yield f"{body} was processed {len(finished)} times, and is {len(dead)} dead letters, although nothing broke"
        if not atomic(like) or body in resent:
            continue
        if len(dead) > 1:
            yield f"{body} is {len(dead)} dead letters"
        if program.kind != "transactional":
            continue
        out = watch.out.get(f"{body}{OUTPUT}", 0)
        if out > 1:
            yield f"the output of {body} is there {out} times"
        if out and left.get(body):
            yield f"{body} is in a queue, and so is what its transactional task has sent"
        if not out and not left.get(body):
            yield f"{body} was acknowledged without what its transactional task has sent"
    if program.kind == "keyed" and like in (None, "activemq", "activemq5"):
        yield from _order(watch, ahead)
    if faultless and program.time_limit is None and watch.miscounted is not None:
        yield "{} messages are counted as processed, {} were".format(*watch.miscounted)


def _attempts(
    program: WorkerProgram, body: str, all_tried: list[Tried], *, copies: bool, faultless: bool
) -> Iterator[str]:
    """Yield what is wrong with the numbers of attempts and the time between them."""
    failed: dict[int, float] = {}
    """When an attempt with a number had failed first, of whichever copy."""
    highest = 0
    crashed: dict[tuple[int, int], float] = {}
    """By life and number, when a process was killed that ran that attempt and nothing else; until one has returned."""
    for tried in all_tried:
        number = tried.attempt
        if number > program.attempts:
            yield f"{body} was tried for the {number}th time, of {program.attempts}"
        if number > 1:
            ended = failed.get(number - 1)
            if ended is None:
                yield f"attempt {number} at {body} began, and {number - 1} had not failed"
            elif tried.began < ended + program.delay(number - 1) - MARGIN:
                yield f"attempt {number} at {body} began {tried.began - ended:.2f} s after attempt {number - 1} failed"
        # The copy for the next attempt and the acknowledgement of this one take effect together.
        if copies and program.kind != "keyed" and number < highest:
            yield f"attempt {number} at {body} began after attempt {highest}"
        if faultless and program.time_limit is None and number == highest:
            yield f"attempt {number} at {body} began twice, although nothing broke"
        if copies and tried.began > crashed.get((tried.life, number), math.inf):
            yield f"attempt {number} at {body} began again, although a process had died that ran nothing else"
        if tried.result == "crashed" and tried.died is not None:
            crashed[tried.life, number] = tried.died
        if tried.may_be_processed:  # the attempts begin at 1 again where its ACK is lost
            crashed.clear()
        highest = max(highest, number)
        if tried.failed_at is not None:
            failed[number] = min(tried.failed_at, failed.get(number, math.inf))


def _dead_letters(
    program: WorkerProgram, body: str, all_tried: list[Tried], dead: list[Mapping[str, str]]
) -> Iterator[str]:
    for headers in dead:
        reason, count = headers.get("stompy-reason", ""), headers.get("stompy-attempts", "")
        if reason == "rejected":
            if all(tried.result != "rejected" for tried in all_tried):
                yield f"{body} is a dead letter as rejected, and no task has rejected it"
        elif reason != f"failed {program.attempts} times" or count != str(program.attempts):
            yield f"{body} is a dead letter with the reason {reason!r} after {count} of {program.attempts} attempts"
        elif not any(tried.attempt == program.attempts and tried.failed_at is not None for tried in all_tried):
            yield f"{body} is a dead letter, and its last attempt has not failed"


def _order(watch: Watch, ahead: set[str]) -> Iterator[str]:
    """Yield the keys of which a message was first tried after a later one that may not overtake it."""
    finished: dict[str, list[str]] = defaultdict(list)
    for tried in watch.tried:
        if tried.body not in finished[tried.key]:
            finished[tried.key].append(tried.body)
    for key, bodies in finished.items():
        numbers = [[int(number) for number in body.split(".")[2:]] for body in bodies]
        latest = itertools.accumulate(numbers, max)
        if any(body in ahead and number != last for body, number, last in zip(bodies, numbers, latest, strict=True)):
            yield f"the messages of {key} were first tried as {bodies}"
