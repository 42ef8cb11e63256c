from __future__ import annotations

import pyarrow as pa
import pytest

from stompy.errors import SpoolDamagedError, SpoolMismatchError
from stompy.spark.schema import stored_schema
from stompy.spark.spool.files import checksum_of
from stompy.spark.spool.index import Segment
from stompy.spark.spool.spool import decode, encode
from tests.spark.spool.builders import RECEIVED_AT, record, records

SPOOL = "spool-1"
PATH = "/spool/seg"


def test_rows_come_back_with_the_schema_of_the_table_and_nothing_else() -> None:
    rows = [record(1, body=b"\0\n\xff"), record(2, body=b"", headers={"a": "x:y\nz"})._replace(redelivered=True)]
    rows.append(rows[0]._replace(names=[], values=[], repeated_headers=[("b", "1"), ("b", "ä")]))
    segment, data = encode(rows, spool=SPOOL, first=40, epoch=2)
    batch = decode(data, segment, spool=SPOOL, path=PATH)
    assert batch.schema.equals(stored_schema(), check_metadata=True)
    assert batch.column("sequence").to_pylist() == [40, 41, 42]
    assert batch.column("body").to_pylist() == [b"\0\n\xff", b"", b"\0\n\xff"]
    assert batch.column("redelivered").to_pylist() == [False, True, False]
    assert batch.column("possible_duplicate").to_pylist() == [False, True, False]
    assert batch.column("repeated_headers").to_pylist() == [None, None, [("b", "1"), ("b", "ä")]]
    assert batch.column("headers").to_pylist() == [list(zip(row.names, row.values, strict=True)) for row in rows]
    assert batch.column("received_at").cast(pa.int64()).to_pylist() == [RECEIVED_AT + n for n in (1, 2, 1)]


def test_a_segment_that_is_gone_is_named() -> None:
    segment, _ = encode(records([1]), spool=SPOOL, first=0, epoch=1)
    with pytest.raises(SpoolDamagedError, match=r"/spool/seg: the segment is missing.*failOnDataLoss=false"):
        decode(None, segment, spool=SPOOL, path=PATH)


@pytest.mark.hard_case("T13")
@pytest.mark.parametrize("keep", [0, 1, 0.5, 0.99])
def test_a_truncated_segment_is_named(keep: float) -> None:
    segment, data = encode(records(range(20)), spool=SPOOL, first=0, epoch=1)
    with pytest.raises(SpoolDamagedError, match=r"/spool/seg: the segment is damaged or truncated"):
        decode(data[: int(len(data) * keep) if keep < 1 else 1], segment, spool=SPOOL, path=PATH)


def test_every_changed_byte_is_noticed() -> None:
    segment, data = encode(records([1]), spool=SPOOL, first=0, epoch=1)
    for place in range(0, len(data), 97):
        with pytest.raises(SpoolDamagedError):
            decode(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :], segment, spool=SPOOL, path=PATH)


def test_a_segment_of_another_spool_is_refused() -> None:
    segment, data = encode(records([1]), spool="spool-2", first=0, epoch=1)
    with pytest.raises(SpoolMismatchError, match=r"the spool in the segment is spool-2.*Move it out"):
        decode(data, segment, spool=SPOOL, path=PATH)


def test_a_renamed_segment_is_refused() -> None:
    segment, data = encode(records([1]), spool=SPOOL, first=7, epoch=1)
    renamed = Segment(8, 1, 1, segment.digest)
    with pytest.raises(SpoolMismatchError, match="renamed"):
        decode(data, renamed, spool=SPOOL, path=PATH)


@pytest.mark.parametrize("data", [b"", b"no arrow at all", b"ARROW1\0\0ARROW1"])
def test_what_is_no_arrow_file_is_refused(data: bytes) -> None:
    with pytest.raises(SpoolDamagedError):
        decode(data, Segment(0, 1, 1, checksum_of(data)), spool=SPOOL, path=PATH)
