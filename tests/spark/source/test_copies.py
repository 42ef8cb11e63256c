"""A spool that is put back from a copy, or lags, under a checkpoint: refused in words, or nothing is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stompy.broker import Broker
from stompy.errors import SpoolDataLossError, SpoolError, SpoolMismatchError
from stompy.spark.source.engine import StreamEngine
from tests.spark.receiver.helpers import QUEUE, column, eventually, fill, receiving
from tests.spark.source.test_engine import at, bodies, engine_on, latest
from tests.spark.source.test_engine import broker as broker  # the fixture serves here too
from tests.spark.spool.builders import spool_files
from tests.support.seed import SEED_SETTING, chance

OLD, NEW = range(400), range(400, 1000)
GIVEN = {"prefetch": "20"}


class Query:
    """What Spark does with a source: a checkpoint, and the rows of the batches that are done."""

    def __init__(self) -> None:
        self.start: dict[str, Any] | None = None
        self.planned: dict[str, Any] | None = None
        self.seen: list[int] = []

    def step(self, engine: StreamEngine, most: int | None = None, *, finish: bool = True) -> bool:
        """Run a micro-batch, the unfinished one first; return whether there was one."""
        if self.start is None:
            self.start = engine.initial()
        if self.planned is None:
            end = latest(engine, self.start, most=most)
            if end == self.start:
                return False
            engine.commit(self.start)
            self.planned = end
        rows = bodies(engine, engine.plan(self.start, self.planned))
        if finish:
            self.seen += rows
            self.start, self.planned = self.planned, None
        return True


def copied(source: Path, target: Path, *, only: tuple[str, ...] = ("segments", "index")) -> None:
    """Copy a folder while it is written to: all of it, or the segments or everything else alone."""
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            if ("segments" if name.startswith("seg-") else "index") in only:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy2(Path(folder, name), there / name)


def put_back(copy: Path, spool: Path, part: str) -> None:
    only = ("segments", "index") if part == "all" else (part,)
    for file in [one for one in spool.rglob("*") if one.is_file()]:
        if ("segments" if file.name.startswith("seg-") else "index") in only:
            file.unlink()
    copied(copy, spool, only=only)


def first_runs(broker: Broker, path: Path, chances: Any) -> Query:
    """Process `OLD` in some runs, and copy the spool at a moment of chance; the last batch may be unfinished."""
    query, moment, sent = Query(), chances.randrange(len(OLD)), 0
    unfinished_from = chances.choice([len(OLD), chances.randrange(len(OLD))])
    for end in [*sorted(chances.sample(range(50, 400), chances.randrange(3))), len(OLD)]:
        with engine_on(broker, path, **GIVEN) as engine:
            fill(broker.url, range(sent, end))
            while len(query.seen) < (end if end < len(OLD) else unfinished_from):
                if len(query.seen) >= moment and not (path / "copy").exists():
                    copied(path / "spool", path / "copy")
                most = chances.randrange(1, 120)
                eventually(lambda most=most, engine=engine: query.step(engine, most))  # type: ignore[misc]
            if len(query.seen) < end:
                start = query.start = query.start or engine.initial()
                eventually(lambda start=start, engine=engine: at(engine.latest(start)) == len(OLD))  # type: ignore[misc]
                query.step(engine, finish=False)
            eventually(lambda: broker.depth(QUEUE) == 0)
        sent = end
    if not (path / "copy").exists():
        copied(path / "spool", path / "copy")
    return query


@contextlib.contextmanager
def refusals() -> Iterator[list[SpoolError]]:
    found: list[SpoolError] = []
    try:
        yield found
    except (SpoolMismatchError, SpoolDataLossError) as error:
        found.append(error)


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("available_now", [True, False])
@pytest.mark.parametrize("part", ["all", "segments", "index"])
def test_with_an_older_copy_a_query_is_refused_or_loses_nothing(
    broker: Broker, tmp_path: Path, part: str, available_now: bool, fail: str
) -> None:
    chances = chance("copy", part, available_now, fail)
    query = first_runs(broker, tmp_path, chances)
    put_back(tmp_path / "copy", tmp_path / "spool", part)
    fill(broker.url, NEW)
    filled = chances.random() < 0.5
    if filled:  # by another process, before the query knows
        with refusals(), receiving(broker, tmp_path, failondataloss=fail, **GIVEN) as pool:
            eventually(lambda: pool.writer.settled == pool.writer.next and broker.depth(QUEUE) == 0)
    waiting = broker.depth(QUEUE)
    with (
        refusals() as refused,
        engine_on(broker, tmp_path, failondataloss=fail, idletimeout="0.5", **GIVEN) as engine,
    ):
        if available_now:
            engine.prepare_available_now()
            while query.step(engine):
                pass
        else:
            eventually(lambda: query.step(engine) is False and set(NEW) <= set(query.seen))
    if not refused:
        expected = set(NEW) if fail == "false" else set(OLD) | set(NEW)
        assert expected <= set(query.seen), f"acknowledged and never read, {SEED_SETTING}"
    elif isinstance(refused[0], SpoolMismatchError):
        assert broker.depth(QUEUE) == waiting, "what is refused acknowledges nothing"
    if refused and part == "all":
        # As the error advises.
        with engine_on(broker, tmp_path, failondataloss=fail, **GIVEN) as engine:
            anew = Query()
            eventually(lambda: anew.step(engine) is False and set(NEW) <= set(anew.seen))


def test_a_spool_of_other_messages_with_the_same_numbers_is_refused_without_a_receiver(
    broker: Broker, tmp_path: Path
) -> None:
    """A lagging copy that another process fills."""
    spool_files(tmp_path / "spool")
    copied(tmp_path / "spool", tmp_path / "lagging" / "spool")
    query = Query()
    for path, numbers in ((tmp_path, OLD), (tmp_path / "lagging", NEW)):
        fill(broker.url, numbers)
        with receiving(broker, path, destination="/queue/a", **GIVEN) as pool:
            eventually(lambda pool=pool, numbers=numbers: pool.writer.settled == len(numbers))  # type: ignore[misc]
    with engine_on(broker, tmp_path, receivers="0") as engine:
        query.step(engine, 150)
    for fail in ("true", "false"):
        with (
            engine_on(broker, tmp_path / "lagging", receivers="0", failondataloss=fail) as engine,
            pytest.raises(SpoolMismatchError, match="does not have the last of them"),
        ):
            query.step(engine)
    assert column(tmp_path / "lagging", "sequence") == list(range(len(NEW)))
