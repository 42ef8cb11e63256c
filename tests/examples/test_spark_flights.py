"""The example of the data pipeline runs by its own command, and what it leaves is counted again by other means.

It needs what `make test-spark` installs. The whole year takes minutes: `make test-long-spark`.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from stompy.testing.containers import missing
from tests.support.local_brokers import for_programs
from tests.support.marked import marked
from tests.support.needs import each
from tests.support.printed import JAVAS_OWN

TOP = Path(__file__).parents[2]
PROGRAM = TOP / "examples" / "spark" / "flights.py"
SOME, ALL = 8_000, 336_776
"""Flights: so many that one of them is late enough for an alert; those of the year."""

pytestmark = [
    pytest.mark.broker,
    pytest.mark.needs("spark examples"),
]


def test_the_flights_of_the_year_come_by_their_hours_else_the_watermark_would_drop_some() -> None:
    hours = [flight["time_hour"] for flight in runpy.run_path(str(PROGRAM))["flights"]()]
    assert len(hours) == ALL
    assert hours == sorted(hours)


@pytest.mark.xdist_group("java")
@pytest.mark.timeout(180)
def test_flights_become_tables_alerts_and_a_picture(tmp_path: Path) -> None:
    check(run(tmp_path / "out", "embedded", "--flights", str(SOME), within=160), tmp_path / "out", SOME)


@pytest.mark.parametrize("kind", each(["embedded", "activemq"]))
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_whole_year_does(kind: str, tmp_path: Path) -> None:
    check(run(tmp_path / "out", kind, within=850), tmp_path / "out", ALL)


def run(out: Path, kind: str, *arguments: str, within: float) -> str:
    """Run the program, see that nothing of it runs any more, and return what it printed."""
    command = [sys.executable, str(PROGRAM), "--broker", kind, "--out", str(out), *arguments]
    with marked() as mark:
        environment = {**os.environ, **for_programs(), **mark, "PYTHONPATH": str(TOP)}
        result = subprocess.run(
            command, env=environment, cwd=out.parent, capture_output=True, text=True, timeout=within, check=False
        )
    if result.stderr.rpartition(f"no {kind} broker: ")[1]:
        missing(kind, result.stderr.rpartition(f"no {kind} broker: ")[2])
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert [line for line in result.stderr.splitlines() if not JAVAS_OWN.match(line)] == []
    return result.stdout


def check(printed: str, out: Path, count: int) -> None:
    """Compare what was printed and written with the data."""
    example = runpy.run_path(str(PROGRAM))
    flights = list(example["flights"](count))
    assert len(flights) == count
    late = [flight for flight in flights if flight.get("dep_delay", 0) >= example["LATE"]]
    hours = windows(flights)

    assert f"sent {count:,} flights" in printed
    assert f"{count:,} flights in files, {count:,} in {len(hours):,} windows, {len(late):,} alerts" in printed
    assert late
    first = late[0]
    line_of_alert = f"late: {first['carrier']} {first['flight']} {first['origin']} -> {first['dest']}"
    assert len(re.findall(r"^ *late: ", printed, re.MULTILINE)) == min(len(late), 10)
    assert line_of_alert in printed

    assert written(out) == hours
    png = (out / "delays.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert png.endswith(b"IEND\xaeB`\x82")


def windows(flights: list[dict[str, Any]]) -> dict[tuple[datetime, str], list[int]]:
    """Return the number of flights and of delays, and the sum of these, by hour and airport."""
    found: dict[tuple[datetime, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for flight in flights:
        hour = datetime.fromisoformat(flight["time_hour"].replace("Z", "+00:00"))
        one = found[hour, flight["origin"]]
        one[0] += 1
        if "dep_delay" in flight:
            one[1] += 1
            one[2] += flight["dep_delay"]
    return dict(found)


def written(out: Path) -> dict[tuple[datetime, str], list[int]]:
    """Return the same from the files of the example."""
    import pyarrow.parquet as pq

    rows = pq.read_table(str(out / "delays"), coerce_int96_timestamp_unit="us").to_pylist()
    found = {
        (row["hour"].replace(tzinfo=timezone.utc), row["origin"]): [
            row["flights"],
            row["departed"],
            round((row["mean_delay"] or 0) * row["departed"]),
        ]
        for row in rows
    }
    assert len(found) == len(rows), "a window was written twice"
    return found
