"""Receivers, queues with something in them, and what a spool holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.spark.option_tables import spool_options
from stompy.spark.receivers import ReceiverPool
from stompy.spark.spool.files import Files
from stompy.spark.spool.spool import Spool, get_spool, make_spool
from tests.support.stacks import gave_up

QUEUE = "/queue/a"
SOON = 20.0


def url_of(broker: Broker | str) -> str:
    return broker if isinstance(broker, str) else broker.url


def eventually(condition: Callable[[], object], *, within: float = SOON) -> None:
    """Return when the condition holds; fail when it does not in time."""
    give_up = time.monotonic() + within
    while not condition():
        if time.monotonic() > give_up:
            gave_up("it did not come about in time")
        time.sleep(0.01)


def fill(url: str, numbers: Iterable[int], *, queue: str = QUEUE, **headers: object) -> None:
    """Send messages whose body and header `n` are their numbers."""
    with connect(url) as connection, connection.batch():
        for number in numbers:
            connection.send(queue, str(number).encode(), headers={"n": number, **headers})


def spool_in(path: Path, origin: str = QUEUE) -> Spool:
    return make_spool(Files(str(path / "spool")), origin)


@contextmanager
def receiving(broker: Broker | str, path: Path, **given: str) -> Iterator[ReceiverPool]:
    """Fill a spool below `path` while the block runs."""
    options = spool_options({
        "url": url_of(broker), "destination": QUEUE, "spooldir": str(path / "spool"), "locktimeout": "0", **given
    })  # fmt: skip
    pool = ReceiverPool(options, spool_in(path, options.origin))
    try:
        yield pool
    finally:
        pool.stop()


def column(path: Path, name: str) -> list[Any]:
    """Return a column of all that is readable in a spool, in order."""
    from stompy.spark.spool.view import SpoolView

    spool = get_spool(Files(str(path / "spool")))
    found: list[Any] = []
    for segment in SpoolView(spool).index.segments:
        found += spool.read(segment).column(name).to_pylist()
    return found


def bodies(path: Path) -> list[int]:
    """Return the numbers of the messages in a spool, in order."""
    return [int(body) for body in column(path, "body")]
