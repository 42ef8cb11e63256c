"""A table whose process is killed as it takes: every later action reads what was taken, and takes the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.broker import Broker
from tests.spark.dataframes import table
from tests.spark.receiver.helpers import QUEUE, eventually, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.timeout(150),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.hard_case("T19")
@pytest.mark.parametrize("moment", ["seg-", "done"])
def test_a_read_that_is_killed_while_it_takes_or_after_it_is_gone_on_with(
    stomp: SparkSession, broker: Broker, tmp_path: Path, moment: str
) -> None:
    fill(broker.url, range(500))
    given = {"readId": "x", "dedupHeader": "n", "idleTimeout": "1.5", "prefetch": "100"}
    frame = table(stomp, broker, tmp_path, **given)
    (tmp_path / "spool").mkdir()
    order = tmp_path / "spool" / f"read-x.kill-{moment}"
    order.write_text("SIGKILL")
    with pytest.raises(Exception):  # noqa: B017, PT011 - Spark says only that its Python is gone
        frame.count()
    assert not order.exists(), "it was killed"
    for _ in range(2):
        assert sorted(int(row.body) for row in frame.select("body").collect()) == list(range(500))
    eventually(lambda: broker.depth(QUEUE) == 0)
    # The same by name in another load(); a load() without a name takes anew.
    fill(broker.url, range(500, 503))
    assert table(stomp, broker, tmp_path, **given).count() == 500
    assert table(stomp, broker, tmp_path, idleTimeout="1.5").count() == 3
