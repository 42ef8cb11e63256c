"""A replay of what is no archive, and of messages of every kind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.deadline import Deadline
from stompy.dialects.dialect import DEDUPE_HEADER
from stompy.errors import ConfigurationError, PipelineError, PublishError
from tests.spark.pipelines.test_replay import QUEUE, Archive, run, stored
from tests.spark.pipelines.test_replay import archive as archive  # the fixture serves here too
from tests.spark.pipelines.test_replay import broker as broker  # the fixture serves here too
from tests.support.seed import chance

# What is no archive.


@pytest.mark.parametrize("make", [lambda path: None, lambda path: (path / "kind=messages").mkdir(parents=True)])
def test_a_folder_that_is_no_archive_is_named(archive: Archive, broker: Broker, make: Any) -> None:
    make(archive.path)
    with pytest.raises(ConfigurationError, match=r"no archive in .*/kind=messages"):
        run(archive, broker)


def test_other_tables_are_refused(archive: Archive, broker: Broker) -> None:
    (archive.path / "kind=messages").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), archive.path / "kind=messages" / "x.parquet")
    with pytest.raises(ConfigurationError, match="no column body"):
        run(archive, broker)
    archive.batch(0, [0]).rename(archive.path / "kind=messages" / "date=2026-01-31" / "part=mine")
    (archive.path / "kind=messages" / "x.parquet").unlink()
    with pytest.raises(PipelineError, match=r"part=mine/part-00000-x.parquet is not a file of an archive"):
        run(archive, broker)


def test_what_spark_is_writing_is_left_alone(archive: Archive, broker: Broker) -> None:
    archive.batch(0, [0, 1]).joinpath("_SUCCESS").touch()
    archive.batch(0, [2], table="messages/.spark-staging-1")
    archive.batch(0, [2], table="messages/_temporary/0")
    assert run(archive, broker) == 2


def test_a_broker_that_refuses_is_reported(archive: Archive) -> None:
    archive.batch(0, [0])
    with Broker(users={"a": "b"}) as broker, pytest.raises(PublishError):
        run(archive, broker, sink={"destination": QUEUE, "brokerTimeout": "0"})


# Everything at once.

_KILLED = """
import json, sys
from stompy.spark.replaying import replay
replay(path=sys.argv[1], checkpoint=sys.argv[2], sink=json.loads(sys.argv[3]))
"""


def odd_messages(draw: Random, count: int) -> tuple[dict[int, bytes], dict[int, dict[str, str]]]:
    """Return bodies and headers: binary, empty, equal ones, with many and strange headers."""
    bodies, headers = {}, {}
    for place in range(count):
        kind = draw.randrange(5)
        bodies[place] = (b"", b"same", draw.randbytes(draw.randrange(200)), b"\0\n" * 9, "Grüße".encode())[kind]
        if not place % 50:
            headers[place] = {f"h{number}:\n\\": draw.choice(("", "ö", "a:b\nc\\", "x" * 300)) for number in range(40)}
        headers.setdefault(place, {})["place"] = str(place)
        if not place % 7:
            headers[place]["redelivered"] = "true"
    return bodies, headers


@pytest.mark.timeout(400)
def test_twenty_thousand_odd_messages_keep_order_and_multiset_through_kills(archive: Archive) -> None:
    draw = chance("odd messages")
    count = 20_000
    bodies, headers = odd_messages(draw, count)
    first = batch = 0
    while first < count:
        end = min(count, first + draw.choice((1, 2, 700, 3000)))
        cut = draw.randrange(first, end + 1)
        files = [range(first, cut), range(cut, end)]
        draw.shuffle(files)
        archive.batch(batch, *files, date=f"2026-01-{batch // 9 + 1:02d}", bodies=bodies, headers=headers)
        first, batch = end, batch + 1
    with Broker(limits=BrokerLimits(max_queue_messages=2 * count)) as broker:
        sink = json.dumps({"url": broker.url, "destination": QUEUE, "transactionSize": "100"})
        command = [sys.executable, "-c", _KILLED, str(archive.path), str(archive.path.parent / "out"), sink]
        for kill in range(1, 4):
            with subprocess.Popen(command) as process:
                deadline = Deadline(120)
                while broker.depth(QUEUE) < count * kill / 5 and process.poll() is None:
                    assert not deadline.expired, "it got nowhere"
                    try:
                        process.wait(0.01)
                    except subprocess.TimeoutExpired:
                        continue
                process.send_signal(signal.SIGKILL)
        subprocess.run(command, check=True, timeout=240)
        messages = stored(broker)
    once = list({message.headers[DEDUPE_HEADER]: message for message in messages}.values())
    assert [int(message.headers["place"]) for message in once] == list(range(count))
    assert [message.body for message in once] == [bodies[place] for place in range(count)]
    for place, message in enumerate(once):
        wanted = {name: value for name, value in headers[place].items() if name != "redelivered"}
        assert wanted.items() <= dict(message.headers).items()
    copies = Counter(message.headers[DEDUPE_HEADER] for message in messages)
    assert max(copies.values()) <= 4
    assert len(messages) - count <= 3 * 100, "more than the transaction in doubt came again"
