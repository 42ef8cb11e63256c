"""What a message may hold comes out of Spark as it went in, over every version of STOMP."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from tests.spark.dataframes import needs_available_now, run_once, stream, table
from tests.spark.receiver.helpers import QUEUE, eventually, fill
from tests.support.seed import chance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.timeout(150),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BODIES = (b"", b"\0", b"a\0\nb\r\n\0", "ä€😀".encode(), b"\xff\xfe no text \x80", chance("body").randbytes(5 << 20))
HEADERS = {"plain": "x", "a:b": "c:d\ne\\f\rg", "name": "ä€", "empty": ""}


def repeat_a_header(broker: Broker) -> None:
    """Send a message with a header that is there twice, which no client of ours would."""
    frames = (
        b"CONNECT\naccept-version:1.2\nhost:a\n\n\0",
        f"SEND\ndestination:{QUEUE}\ntwice:first\ntwice:second\nreceipt:r\n\n\0".encode(),
    )
    port = urlsplit(broker.url).port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(b"".join(frames))
        heard = b""
        while b"RECEIPT" not in heard:
            heard += raw.recv(4096)


@needs_available_now
@pytest.mark.hard_case("T24")
def test_every_byte_of_bodies_and_headers_comes_through(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with connect(broker.url) as connection:
        for body in BODIES:
            connection.send(QUEUE, body, headers=HEADERS, confirm=True)
    repeat_a_header(broker)
    run_once(stream(stomp, broker, tmp_path, idleTimeout="1.5"), tmp_path)
    rows = stomp.read.parquet(str(tmp_path / "out")).orderBy("sequence").collect()
    assert [bytes(row.body) for row in rows] == [*BODIES, b""]
    for row in rows[: len(BODIES)]:
        assert HEADERS.items() <= row.headers.items()
    assert rows[-1].headers["twice"] == "first", "STOMP 1.2: of a repeated header the first one counts"


@needs_available_now
def test_headers_as_the_array_of_kafkas_source_go_through_a_stream_and_the_sink(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    repeat_a_header(broker)
    frame = stream(stomp, broker, tmp_path, headersAs="array", idleTimeout="1.5")
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    run_once(frame, tmp_path)
    (row,) = stomp.read.parquet(str(tmp_path / "out")).collect()
    assert [bytes(one.value) for one in row.headers if one.key == "twice"] == [b"first", b"second"]
    sent = stomp.read.parquet(str(tmp_path / "out")).select("body", "headers")
    sent.write.format("stomp").mode("append").options(url=broker.url, destination=QUEUE).save()
    (again,) = table(stomp, broker, tmp_path / "table", headersAs="array").select("headers").collect()
    assert [bytes(one.value) for one in again.headers if one.key == "twice"] == [b"first"]


@pytest.mark.hard_case("T25")
def test_a_broker_of_stomp_1_0_is_read_and_acknowledged(stomp: SparkSession, tmp_path: Path) -> None:
    with Broker(versions=["1.0"]) as old:
        fill(old.url, range(300))
        frame = table(stomp, old, tmp_path, idleTimeout="1.5").selectExpr("cast(body as string) AS n", "headers")
        rows = frame.collect()
        assert sorted(int(row.n) for row in rows) == list(range(300))
        assert not any("ack" in row.headers for row in rows)
        eventually(lambda: old.depth(QUEUE) == 0)
