"""Streaming queries for `tests.scenarios.forking_programs`, which forks while it holds one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import stompy
from stompy.broker import Broker
from stompy.spark.option_tables import stream_options
from stompy.spark.source.engine import StreamEngine
from tests.scenarios import forking_programs
from tests.scenarios.forking_programs import Held_, a_folder
from tests.spark.receiver.helpers import QUEUE, eventually


@contextmanager
def a_query(ended: bool) -> Iterator[Held_]:
    """A query that runs, and, if `ended`, one before it that was stopped."""
    with a_folder() as folder, Broker() as broker, stompy.connect(broker.url) as sender:
        queries = []
        for number in range(1 + ended):
            given = {"url": broker.url, "destination": QUEUE, "spooldir": f"{folder}/{number}"}
            query = StreamEngine(stream_options(given))
            reached = query.initial()
            queries.append(query)
            if number < ended:
                query.stop()

        def works() -> None:
            nonlocal reached
            sender.send(QUEUE, "1", confirm=True)
            found: dict[str, Any] = {}

            def more() -> bool:
                found.update(query.latest(reached))
                return found["next"] > reached["next"]

            eventually(more)
            assert query.plan(reached, found)
            query.commit(found)
            reached = found

        refused = [lambda: query.latest(reached), lambda: query.commit(reached)]
        try:
            yield [*queries], refused, [each.stop for each in queries], works
        finally:
            query.stop()


QUERIES = {"running": partial(a_query, False), "running-and-an-ended-one": partial(a_query, True)}

if __name__ == "__main__":
    forking_programs.THINGS.update(QUERIES)
    forking_programs.main()
