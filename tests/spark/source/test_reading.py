from __future__ import annotations

import os
from pathlib import Path

import pytest

from stompy.errors import SpoolDamagedError, SpoolError, SpoolMismatchError
from stompy.spark.schema import arrow_schema
from stompy.spark.source.reading import read_pieces
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.view import SpoolView
from tests.spark.spool.builders import record, records, seal, spool_files, spool_writer


@pytest.fixture
def spool(tmp_path: Path) -> tuple[str, str, list[Piece]]:
    files = spool_files(tmp_path / "spool")
    writer = spool_writer(files)
    seal(writer, records(range(10)))
    seal(writer, [record(10, body=b"\xff"), record(11, body="é".encode())])
    writer.close()
    spool = get_spool(files)
    return files.url, spool.identity, list(SpoolView(spool).index.pieces(0, 12, spool=spool.identity))


def test_rows_are_read_in_order_as_few_batches(spool: tuple[str, str, list[Piece]]) -> None:
    url, identity, pieces = spool
    (batch,) = read_pieces({identity: url}, [piece.between(7, 12) for piece in pieces], array=False)
    assert batch.schema.equals(arrow_schema())
    assert batch.column("sequence").to_pylist() == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("repeated", [None, (("n", "8"), ("n", "ä"))])
def test_headers_are_a_map_or_the_array_of_kafkas_source(
    tmp_path: Path, repeated: tuple[tuple[str, str], ...] | None
) -> None:
    files = spool_files(tmp_path / "spool")
    writer = spool_writer(files)
    seal(writer, [record(number, headers={"n": "7"})._replace(repeated_headers=repeated) for number in range(3)])
    writer.close()
    spool = get_spool(files)
    (piece,) = SpoolView(spool).index.pieces(1, 3, spool=spool.identity)
    (batch,) = read_pieces({spool.identity: files.url}, [piece], array=True)
    assert batch.schema.equals(arrow_schema(array=True))
    pairs = [[(one["key"], one["value"]) for one in row] for row in batch.column("headers").to_pylist()]
    values = [b"7", *(value.encode() for _, value in repeated or ())]
    assert [[value for name, value in row if name == "n"] for row in pairs] == [values] * 2
    assert [row[0] for row in pairs] == [("message-id", b"id-1"), ("message-id", b"id-2")]
    (batch,) = read_pieces({spool.identity: files.url}, [piece], array=False)
    assert batch.schema.equals(arrow_schema())
    assert dict(batch.column("headers").to_pylist()[0])["n"] == "7"


def test_a_spool_that_is_not_visible_is_reported(spool: tuple[str, str, list[Piece]], tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=r"there is no spool, as .*use a shared folder"):
        list(read_pieces({spool[1]: str(tmp_path / "elsewhere")}, spool[2], array=False))


def test_another_spool_in_its_place_is_refused(spool: tuple[str, str, list[Piece]]) -> None:
    with pytest.raises(SpoolMismatchError, match="it is not the spool other of the query any more"):
        list(read_pieces({"other": spool[0]}, spool[2], array=False))


def test_a_segment_that_is_gone_is_named(spool: tuple[str, str, list[Piece]]) -> None:
    url, identity, pieces = spool
    name = pieces[0].segments[1].name
    os.unlink(f"{url}/{name}")
    with pytest.raises(SpoolDamagedError, match=rf"{name}: the segment is missing"):
        list(read_pieces({identity: url}, pieces, array=False))
