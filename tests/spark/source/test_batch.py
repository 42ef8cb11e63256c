from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.errors import SpoolMismatch
from stompy.spark.source.batch import StompBatchReader
from stompy.spark.source.stream import SpoolPart
from stompy.spark.source_options import batch_options
from tests.spark.receiver.filling import QUEUE, fill


def test_every_action_reads_the_same_rows_from_pickled_copies(tmp_path: Path) -> None:
    with Broker() as broker:
        fill(broker.url, range(20))
        options = batch_options({
            "url": broker.url, "destination": QUEUE, "spooldir": str(tmp_path), "idletimeout": "1",
            "numpartitions": "2", "maxmessages": "20",
        })  # fmt: skip
        reader = StompBatchReader(options, "load")
        parts = reader.partitions()
        assert [repr(part) for part in parts] == [f"<SpoolPart 10 rows of {tmp_path}/read-load>"] * 2
        for _ in range(2):
            copy: StompBatchReader = pickle.loads(pickle.dumps(reader))
            found: list[int] = []
            for part in parts:
                for batch in copy.read(pickle.loads(pickle.dumps(part))):
                    found += map(int, batch.column("body").to_pylist())
            assert sorted(found) == list(range(20))
        with pytest.raises(SpoolMismatch):
            list(reader.read(SpoolPart(parts[0].url, "another", [])))


def test_an_empty_queue_has_a_part_without_rows(tmp_path: Path) -> None:
    with Broker() as broker:
        options = batch_options({
            "url": broker.url, "destination": QUEUE, "spooldir": str(tmp_path), "idletimeout": "1",
        })  # fmt: skip
        reader = StompBatchReader(options, "load")
        (part,) = reader.partitions()
        assert list(reader.read(part)) == []
