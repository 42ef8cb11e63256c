"""Outboxes in a simulated world: what a seed draws of one, and the judge of what it promised.

The program puts messages into an outbox on a real file. It is killed, all its threads at once, and started again on
the same file, where it goes on after the message whose `put` it was in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

import stompy
from stompy.testing.world import Event, Thread, current_world
from tests.simulation.disks import Disk, DiskFault, smaller

FLUSH = 60.0
"""Simulated seconds in which what is stored leaves when nothing breaks any more."""


@dataclass(frozen=True)
class OutboxProgram:
    """A process that puts messages into an outbox.

    Attributes:
        threads: of each thread, how many messages it puts.
        pause: seconds between two of them at most.
        kills: when it is killed; it is started again.
        disk: what happens to its disk.
    """

    queue: str
    threads: tuple[int, ...]
    pause: float
    batch: int
    kills: tuple[float, ...]
    disk: tuple[DiskFault, ...] = ()

    @classmethod
    def drawn(cls, random: Random, queue: str, *, faults: bool) -> OutboxProgram:
        """Return the outbox program of a queue."""
        kills = random.choice((0, 1, 2)) if faults else 0
        return cls(
            queue,
            threads=tuple(random.randint(1, 6) for _ in range(random.choice((1, 2)))),
            pause=random.choice((0.0, 0.2, 1.0)),
            batch=random.choice((1, 2, 200)),
            kills=tuple(random.uniform(0.0, 4.0) for _ in range(kills)),
        )

    def smaller(self) -> Iterator[OutboxProgram]:
        """Yield programs with one thing less."""
        for number in range(len(self.kills)):
            yield replace(self, kills=self.kills[:number] + self.kills[number + 1 :])
        for disk in smaller(self.disk):
            yield replace(self, disk=disk)
        for number, count in enumerate(self.threads):
            for fewer in (count // 2, count - 1):
                if fewer < count:
                    yield replace(self, threads=(*self.threads[:number], fewer, *self.threads[number + 1 :]))
        if self.pause:
            yield replace(self, pause=0.0)


@dataclass
class Stored:
    """What the world saw of one outbox."""

    program: OutboxProgram
    path: Path
    disk: Disk | None = None
    next: list[int] = field(default_factory=list)
    """Of each thread, the message that it puts next."""
    dead: list[str] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    all_put: bool = False


@dataclass(frozen=True)
class Arrival:
    """A SEND that the broker has received."""

    destination: str
    body: str
    dedupe_id: str | None


class PutProgram:
    """Runs an outbox program, once or again after it was killed.

    Args:
        stored: what is known of it.
        name: of the process.
        put: puts a message of a sender into the outbox.
    """

    def __init__(self, stored: Stored, name: str, put: Callable[[stompy.Outbox, str, str, str], None]) -> None:
        self._stored, self._name, self._put = stored, name, put
        stored.next = stored.next or [0] * len(stored.program.threads)

    def run(self, url: str, timeouts: stompy.Timeouts, calm: Event) -> None:
        """Put what is left, and wait until all of it has left when nothing breaks any more."""
        stored = self._stored
        while (outbox := self._opened(url, timeouts)) is None:
            current_world().switch(lambda: False, 0.2, "a pause")
        current_world().kept.append(outbox)
        threads = [
            Thread(partial(self._put_all, outbox, index, count), f"{self._name}.{index}")
            for index, count in enumerate(stored.program.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored.all_put = True
        calm.wait()
        try:
            outbox.flush(timeout=FLUSH)
        except stompy.StompError as error:
            stored.breaches.append(f"{self._name} keeps messages although nothing breaks: {error}")
        stored.dead = [letter.body.decode() for letter in outbox.dead_letters()]
        outbox.close()

    def _opened(self, url: str, timeouts: stompy.Timeouts) -> stompy.Outbox | None:
        stored = self._stored
        try:
            return stompy.Outbox(
                stored.path,
                url,
                batch=stored.program.batch,
                backoff=stompy.Backoff(first=0.05, longest=1.0),
                login="user",
                passcode="pass",
                heartbeat=(1.0, 1.0),
                timeouts=timeouts,
            )
        except stompy.OutboxError as error:
            if stored.disk is None or not stored.disk.gave(error):
                raise
            return None

    def _put_all(self, outbox: stompy.Outbox, index: int, count: int) -> None:
        world, stored = current_world(), self._stored
        while stored.next[index] < count:
            sender, number = f"{self._name}.{index}", stored.next[index]
            stored.next[index] += 1  # what put was killed in may be there or not, and is not put again
            try:
                self._put(outbox, stored.program.queue, sender, f"{sender}.{number}")
            except stompy.OutboxError as error:
                if stored.disk is None or not stored.disk.gave(error):
                    raise
            world.switch(lambda: False, stored.program.pause * world.random.random(), "a pause")


def breaches(arrivals: Sequence[Arrival], order: Mapping[str, Sequence[str]], dead: Collection[str]) -> Iterator[str]:
    """Yield the breaches of what was promised of outboxes.

    Args:
        arrivals: what the broker received, in order.
        order: by sender, what it put, in order.
        dead: the bodies of dead letters.
    """
    ids: dict[str, set[str | None]] = defaultdict(set)
    first: dict[str, int] = {}
    for number, arrival in enumerate(arrivals):
        ids[arrival.body].add(arrival.dedupe_id)
        first.setdefault(arrival.body, number)
    of: dict[str, list[str]] = defaultdict(list)
    for body, found in ids.items():
        if len(found) > 1 or None in found:
            yield f"the copies of {body} have the ids {sorted(map(str, found))}"
        for each in found:
            of[str(each)].append(body)
    for identity, bodies in of.items():
        if len(bodies) > 1:
            yield f"{bodies} have the same id {identity}"
    for sender, put in order.items():
        arrived = [body for body in put if body in first and body not in dead]
        if arrived != sorted(arrived, key=lambda body: first[body]):
            yield f"what {sender} put has arrived as {sorted(arrived, key=lambda body: first[body])}"
