"""Each recipe of the page does what the page says, on the embedded broker."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from tests.spark.dataframes import needs_available_now
from tests.spark.receiver.helpers import fill
from tests.support.printed import blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "docs/spark/recipes.md"
Recipe = Callable[..., dict[str, Any]]

pytestmark = [
    needs_available_now,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def recipe(spark: SparkSession, broker: Broker, tmp_path: Path) -> Recipe:
    """Run one as printed, but for the broker's address and the folder; `instead` are further changes."""
    programs = [block.text for block in blocks(PAGE, "python")]
    assert len(programs) == 5

    def run(words: str, instead: Mapping[str, str] | None = None) -> dict[str, Any]:
        (program,) = (one for one in programs if words in one)
        text = f"{programs[0]}\n{program}"
        for printed, own in {"stomp://localhost:61613": broker.url, "/data": str(tmp_path), **(instead or {})}.items():
            assert printed in text
            text = text.replace(printed, own)
        names: dict[str, Any] = {}
        exec(compile(text, PAGE, "exec"), names)
        assert names["spark"] is spark
        return names

    return run


def send(broker: Broker, destination: str, *bodies: str) -> None:
    with connect(broker.url) as connection:
        for body in bodies:
            connection.send(destination, body, confirm=True)


def test_json_gets_a_field_and_what_does_not_fit_is_kept(broker: Broker, recipe: Recipe) -> None:
    send(broker, "/queue/orders", '{"id": 1, "amount": 2.5, "colour": "red"}', "oops")
    made = recipe("from_json")
    assert [(row.id, row.amount) for row in made["good"].collect()] == [(1, 2.5)]
    assert [(row.unparsed, row.text, row.id) for row in made["bad"].collect()] == [("oops", "oops", None)]
    (later,) = (line.split("`")[1] for line in page_lines() if line.startswith("`FIELDS ="))
    send(broker, "/queue/orders", '{"id": 2, "amount": 3, "currency": "EUR"}')
    made = recipe("from_json", {'FIELDS = "id BIGINT, amount DOUBLE"': later})
    found = made["good"].orderBy("id").collect()
    assert [(row.id, row.currency) for row in found] == [(1, None), (2, "EUR")]
    assert '"colour": "red"' in found[0].text


def page_lines() -> list[str]:
    return (Path(__file__).parents[3] / PAGE).read_text(encoding="utf-8").splitlines()


def test_a_stream_is_joined_with_a_table(broker: Broker, recipe: Recipe, tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "customers").mkdir()
    (tmp_path / "customers" / "all.csv").write_text("a,Ada\nb,Bob\n")
    for number, customer in enumerate("abc"):
        fill(broker.url, [number], queue="/queue/payments", customer=customer)
    recipe("join(customers")
    rows = spark.read.parquet(str(tmp_path / "payments")).orderBy("customer").collect()
    assert [(row.customer, row.amount, row.name) for row in rows] == [
        ("a", 0.0, "Ada"),
        ("b", 1.0, "Bob"),
        ("c", 2.0, None),
    ]


def test_a_micro_batch_that_is_run_again_is_in_the_database_once(
    broker: Broker, recipe: Recipe, tmp_path: Path
) -> None:
    fill(broker.url, range(50), queue="/queue/bookings")
    # Fails when everything is stored, and Spark does not know it yet.
    failing = {"foreachBatch(store)": "foreachBatch(lambda batch, number: (store(batch, number), 1 / 0))"}
    with pytest.raises(Exception, match="ZeroDivisionError"):
        recipe("sqlite3", failing)
    assert booked(tmp_path) == list(range(50))
    fill(broker.url, range(50, 60), queue="/queue/bookings")
    recipe("sqlite3")
    assert booked(tmp_path) == list(range(60))


def booked(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "bookings.db")) as database:
        return sorted(int(body) for (body,) in database.execute("SELECT body FROM bookings"))
