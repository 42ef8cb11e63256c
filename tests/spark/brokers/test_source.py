"""The source on brokers that only a container has.

What it takes is in its spool before Spark sees it, so that most of it is seen there, without Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.connection.connecting import connect
from stompy.spark.spool.files import Files, write_mark
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.view import SpoolView
from tests.spark.dataframes import table
from tests.spark.receiver.helpers import column, eventually, fill, receiving
from tests.spark.source.test_drain import options, taken
from tests.spark.streaming_run import ENOUGH, PREFETCH, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOP = Path(__file__).parents[3]
STRIKING = TOP / "tests" / "spark" / "crashes" / "site"
QUIET = 1.0
"""Seconds without a message after which a broker has sent all that it will."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def queue() -> str:
    return f"/queue/{uuid.uuid4().hex}"


@pytest.mark.hard_case("T1", "T2")
def test_killed_between_rename_and_ack_twice_with_a_purge_between(target: Target, queue: str, tmp_path: Path) -> None:
    given = {"url": target.url, "destination": queue, "prefetch": str(PREFETCH)}
    held: dict[int, tuple[int, bool]] = {}
    sent = 0
    for count in (1000, 500, 500):
        fill(target.url, range(sent, sent + count), queue=queue, persistent="true")
        sent += count
        if sent < 2000:
            fill_until_killed(tmp_path, given)
        take_and_purge(target, tmp_path, given, held, sent)
    found = Counter(body for body, _ in held.values())
    assert set(found) == set(range(sent))
    twice = sum(found.values()) - sent
    assert twice == 0 if target.stable else 0 < twice <= 2 * PREFETCH
    flagged = Counter(body for body, flag in held.values() if flag)
    assert all(flagged[body] >= copies - 1 for body, copies in found.items()), "a copy is not flagged"


def fill_until_killed(path: Path, given: dict[str, str]) -> None:
    """Fill a spool by a process that is killed when it has named its first segment, and acknowledged nothing."""
    (path / "spool.kill-seg-").write_text("SIGKILL")
    command = [sys.executable, "-m", "tests.spark.crashes.filler", json.dumps({**given, "spoolDir": f"{path}/spool"})]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TOP), str(STRIKING)))}
    killed = subprocess.run(command, env=environment, cwd=path, timeout=ENOUGH, check=False)
    assert killed.returncode == -signal.SIGKILL


def take_and_purge(
    target: Target, path: Path, given: dict[str, str], held: dict[int, tuple[int, bool]], count: int
) -> None:
    """Take all that the broker has, note body and flag of each by its number, and have it removed by the next."""
    with receiving(target.url, path, **given, locktimeout="20") as pool:
        eventually(lambda: pool.writer.next >= count and pool.quiet_for() > QUIET, within=ENOUGH)
    spool = get_spool(Files(str(path / "spool")))
    view = SpoolView(spool)
    for segment in view.index.segments:
        rows = spool.read(segment)
        columns = (rows.column(name).to_pylist() for name in ("sequence", "body", "possible_duplicate"))
        held |= {number: (int(body), flag) for number, body, flag in zip(*columns, strict=True)}
    write_mark(spool.files, "low", view.next)


@pytest.mark.parametrize(
    ("kind", "second", "sent_to"),
    [
        ("activemq", "/queue/{}.sub.>", "/queue/{}.sub.b"),
        ("artemis", "/queue/{}.sub", "/queue/{}.sub"),
        ("rabbitmq", "/topic/{}.sub.#", "/topic/{}.sub.b"),
    ],
)
def test_several_destinations_and_patterns_are_taken_and_distinguished(
    request: pytest.FixtureRequest, queue: str, tmp_path: Path, kind: str, second: str, sent_to: str
) -> None:
    target: Target = request.getfixturevalue(kind)
    name = queue.rpartition("/")[2]
    pattern, other = second.format(name), sent_to.format(name)
    with receiving(target.url, tmp_path, destination=f"{queue},{pattern}") as pool:
        # What a topic brings goes to those that are subscribed.
        eventually(pool.subscribed_for, within=ENOUGH)
        fill(target.url, range(300), queue=queue)
        with connect(target.url) as connection:
            connection.send(other, "300", confirm=True)
        eventually(lambda: pool.writer.next == 301, within=ENOUGH)
    assert Counter(column(tmp_path, "destination")) == {queue: 300, other: 1}
    assert sorted(map(int, column(tmp_path, "body"))) == list(range(301))


def test_browsing_looks_at_a_queue_of_activemq_and_leaves_it(activemq: Target, queue: str, tmp_path: Path) -> None:
    fill(activemq.url, range(150), queue=queue)
    look = options(activemq.url, tmp_path, destination=queue, browse="true")
    for load in ("one", "one", "two"):
        assert taken(look, load=load) == list(range(150)), "the same rows for every action"
    assert len(taken(replace(look, max_messages=7), load="three")) == 7
    assert sorted(taken(replace(look, browse=False), load="four")) == list(range(150))
    assert taken(look, load="five") == []


def test_where_a_broker_cannot_browse_it_is_refused_and_nothing_is_taken(
    stomp: SparkSession, target: Target, queue: str, tmp_path: Path
) -> None:
    fill(target.url, range(20), queue=queue)
    with pytest.raises(Exception, match="browse"):
        table(stomp, target.url, tmp_path, destination=queue, browse="true").count()
    assert table(stomp, target.url, tmp_path, destination=queue, idleTimeout="1").count() == 20
