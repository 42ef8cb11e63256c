"""Spools in a simulated world: what a seed draws of them, their processes, and the judge of what they promised.

One or two processes fill each spool, as `stompy spool fill` does; the second of one spool waits for the first. A
reader plans, reads and commits micro-batches as Spark does, over its checkpoint, which outlives it. Each may be killed,
all its threads at once, and started again.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from stompy.errors import SpoolError, StompError
from stompy.testing.world import Event, current_world
from tests.simulation.disks import Disk, DiskFault, smaller

HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
"""Whether spools can be written here."""
if HAS_ARROW:
    import pyarrow as pa

    from stompy.spark.option_tables import spool_options, stream_options
    from stompy.spark.receivers import ReceiverPool
    from stompy.spark.source.engine import StreamEngine
    from stompy.spark.source.reading import read_pieces
    from stompy.spark.spool.files import Files
    from stompy.spark.spool.spool import make_spool

    pa.set_cpu_count(1)
if TYPE_CHECKING:
    from stompy.spark.spool.index import Piece

PAUSE = 0.3
"""Seconds between two looks of a reader, and of a process that fills a spool."""


@dataclass(frozen=True)
class SpoolProgram:
    """Processes that fill the spools of one queue, and one that reads them.

    Attributes:
        fillers: of each spool, how many processes want to fill it.
        receivers: of each process.
        most: how many messages a micro-batch has at most.
        kills: when which process is killed: its number, or -1 for the reader.
        slow: seconds that a micro-batch takes at most.
        late: how often a receiver has taken messages and stands still, for some seconds, before it stores them.
        disk: what happens to their disk; all of them run on one machine.
    """

    queue: str
    fillers: tuple[int, ...]
    receivers: int
    prefetch: int
    most: int
    kills: tuple[tuple[float, int], ...]
    slow: float = 0.0
    late: float = 0.0
    disk: tuple[DiskFault, ...] = ()

    @classmethod
    def drawn(cls, random: Random, queue: str, *, faults: bool) -> SpoolProgram:
        """Return the spool program of a queue."""
        fillers = random.choice(((1,), (1,), (2,), (1, 1)))
        return cls(
            queue,
            fillers=fillers,
            receivers=random.choice((1, 2)),
            prefetch=random.choice((1, 3, 100)),
            most=random.choice((1, 3, 100)),
            kills=tuple(
                (random.uniform(0.0, 4.0), random.randrange(-1, sum(fillers)))
                for _ in range(random.choice((0, 1, 2, 4)) if faults else 0)
            ),
        )

    def smaller(self) -> Iterator[SpoolProgram]:
        """Yield programs with one thing less."""
        for number in range(len(self.kills)):
            yield replace(self, kills=self.kills[:number] + self.kills[number + 1 :])
        for disk in smaller(self.disk):
            yield replace(self, disk=disk)
        if self.slow:
            yield replace(self, slow=0.0)
        if self.late:
            yield replace(self, late=0.0)
        if self.receivers > 1:
            yield replace(self, receivers=1)
        if sum(self.fillers) > 1 and not any(process > 0 for _, process in self.kills):
            yield replace(self, fillers=(1,))

    def processes(self, number: int) -> list[str]:
        """Return the names of its processes."""
        return [*(f"s{number}{place}" for place in range(sum(self.fillers))), f"r{number}"]

    def kills_of(self, number: int) -> list[tuple[float, str]]:
        """Return when which process is killed, by name."""
        names = self.processes(number)
        return [(at, names[process]) for at, process in self.kills]

    def spool_of(self, place: int) -> int:
        """Return which spool a process fills."""
        return [spool for spool, count in enumerate(self.fillers) for _ in range(count)][place]


@dataclass(frozen=True)
class Row:
    """A message that a micro-batch gave to Spark."""

    body: str
    possible_duplicate: bool


@dataclass
class Spooled:
    """What the world saw of the spools of one queue, and the checkpoint of their reader."""

    program: SpoolProgram
    folder: Path
    disk: Disk | None = None
    batches: list[list[Row]] = field(default_factory=list)
    """The output: a batch that is run again replaces its rows."""
    start: dict[str, Any] | None = None
    """The end of the last batch that is done."""
    planned: dict[str, Any] | None = None
    """The end of the batch that runs."""
    holders: dict[int, str] = field(default_factory=dict)
    """By spool, the process that fills it."""
    filling: set[str] = field(default_factory=set)
    """The processes that have not ended by themselves."""
    opened: int = 0
    """How many sessions its receivers have without a fault, at most."""
    breaches: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """All that was read, in order."""
        return [row for batch in self.batches for row in batch]

    def ended(self, name: str) -> None:
        """Note that a process was killed, or has not been there before."""
        self.holders = {spool: holder for spool, holder in self.holders.items() if holder != name}
        if name[0] == "s":
            self.filling.add(name)

    def _given(self, url: str, folders: list[Path]) -> dict[str, str]:
        self.folder.mkdir(exist_ok=True)
        secret = self.folder / "passcode"
        secret.write_text("pass")
        return {
            "url": url.replace("://", "://user@"),
            "passcodeFile": str(secret),
            "destination": self.program.queue,
            "spoolDir": ",".join(map(str, folders)),
            "prefetch": str(self.program.prefetch),
            "receiptTimeout": "4",
            "brokerTimeout": "600",
        }

    def _folders(self) -> list[Path]:
        return [self.folder / str(number) for number in range(len(self.program.fillers))]

    def fill(self, name: str, url: str, pause: float, over: Event, note: Callable[[str], None]) -> None:
        """Fill a spool until all is over, as `stompy spool fill` does."""
        spool = self.program.spool_of(int(name[2:]))
        current_world().switch(lambda: False, pause, "its start")
        folders = self._folders()
        given = self._given(url, [folders[spool], *folders[:spool], *folders[spool + 1 :]])
        options = spool_options({**given, "receivers": str(self.program.receivers)})
        options = replace(options, lock_timeout=math.inf)
        filled = False  # what another process has left is read when the next one has opened the spool
        while not (filled and over.is_set()):
            pool = None
            try:
                made = make_spool(Files(options.folders()[0]), options.origin, shared=options.has_peers)
                pool = ReceiverPool(options, made)
                current_world().kept.append(pool)
                if spool in self.holders:
                    self.breaches.append(f"{name} fills spool {spool}, and so does {self.holders[spool]}")
                self.holders[spool] = name
                self.opened += self.program.receivers
                filled = True
                note(f"fills spool {spool}")
                while not over.wait(PAUSE):
                    pool.check()
            except SpoolError as error:
                if not self._forgiven(name, error, note):
                    break
            except StompError as error:
                note(f"has failed: {error}".replace(str(self.folder), ""))
                current_world().switch(lambda: False, PAUSE, "a pause")
            finally:
                if pool is not None and not current_world().current.killed:
                    pool.stop()
                    self.holders.pop(spool, None)
        self.filling.discard(name)

    def _forgiven(self, name: str, error: SpoolError, note: Callable[[str], None]) -> bool:
        """Return whether the disk is the cause of an error, so that the process is started again."""
        what = f"{name} has failed: {type(error).__name__} {error}".replace(str(self.folder), "")
        if self.disk is None or not self.disk.gave(error):
            self.breaches.append(what)
            return False
        note(what)
        current_world().switch(lambda: False, PAUSE, "a pause")
        return True

    def read(self, name: str, url: str, pause: float, over: Event, note: Callable[[str], None]) -> None:
        """Plan, read and commit batches, as Spark does, until all is over and read."""
        current_world().switch(lambda: False, pause, "its start")
        options = stream_options(
            {
                **self._given(url, self._folders()),
                "receivers": "0",
                "maxOffsetsPerTrigger": str(self.program.most),
            }
        )
        while not self._query(name, StreamEngine(options), over, note):
            pass

    def _query(self, name: str, engine: StreamEngine, over: Event, note: Callable[[str], None]) -> bool:
        """Run a query; return whether it is not started again."""
        current_world().kept.append(engine)
        try:
            if self.planned is not None:
                self._run(engine, note)
            while True:
                last = over.is_set() and not self.filling
                self.start = self.start or engine.initial()
                end = engine.latest(self.start)
                if end != self.start:
                    if self.batches:
                        engine.commit(self.start)
                    self.batches.append([])
                    self.planned = end
                    self._run(engine, note)
                elif last:
                    return True
                current_world().switch(lambda: False, PAUSE, "the next trigger")
        except SpoolError as error:
            return not self._forgiven(name, error, note)
        finally:
            if not current_world().current.killed:
                engine.stop()

    def _run(self, engine: StreamEngine, note: Callable[[str], None]) -> None:
        assert self.start is not None
        assert self.planned is not None
        tasks: list[list[Piece]] = engine.plan(self.start, self.planned)
        current_world().switch(lambda: False, self.program.slow * current_world().random.random(), "a task")
        rows = [row for pieces in tasks for row in self._rows(engine, pieces)]
        before = self.batches[-1]
        if before and before != rows:
            self.breaches.append(f"batch {len(self.batches)} had {before}, and then {rows}")
        self.batches[-1] = rows
        note(f"batch {len(self.batches)}: {' '.join(row.body for row in rows)}")
        current_world().switch()
        self.start, self.planned = self.planned, None

    def _rows(self, engine: StreamEngine, pieces: list[Piece]) -> Iterator[Row]:
        for batch in read_pieces(engine.urls, pieces, array=False):
            bodies, flags = batch.column("body").to_pylist(), batch.column("possible_duplicate").to_pylist()
            yield from (Row(body.decode(), flag) for body, flag in zip(bodies, flags, strict=True))

    def judged(
        self, like: str | None, sent_by: Mapping[str, str], resent: Collection[str], *, faultless: bool
    ) -> Iterator[str]:
        """Yield the breaches of what was promised of spools.

        Args:
            like: the broker's profile.
            sent_by: the sender of each message.
            resent: the messages that their producers may have sent twice.
            faultless: whether nothing broke.
        """
        yield from self.breaches
        copies = Counter(row.body for row in self.rows if row.body not in resent)
        unflagged = Counter(row.body for row in self.rows if not row.possible_duplicate)
        for body, count in copies.items():
            if count > 1 and like != "rabbitmq":
                yield f"{body} was read {count} times"
            elif unflagged[body] > 1:
                yield f"{body} was read {count} times, {unflagged[body]} times without a flag"
        if not faultless:
            return
        if flagged := [row.body for row in self.rows if row.possible_duplicate]:
            yield f"{flagged} are possible duplicates, although nothing broke"
        if self.program.receivers == 1 and len(self.program.fillers) == 1:
            order: dict[str, list[str]] = defaultdict(list)
            for row in self.rows:
                order[sent_by.get(row.body, "")].append(row.body)
            position = {body: number for number, body in enumerate(sent_by)}
            for sender, bodies in order.items():
                if bodies != sorted(bodies, key=lambda body: position.get(body, -1)):
                    yield f"messages of {sender} were read as {bodies}"
