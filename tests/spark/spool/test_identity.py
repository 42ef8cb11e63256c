from __future__ import annotations

import pytest

from stompy.spark.spool.record import Identifier, are_stable
from stompy.spark.spool.spool import decode, encode
from tests.spark.spool.builders import identity_of, record, records


def test_the_same_id_with_another_content_is_another_message() -> None:
    identifier = Identifier()
    assert identity_of(identifier, record(1)) == identity_of(identifier, record(1))
    assert identity_of(identifier, record(1)) != identity_of(identifier, record(1, body=b"other"))


def test_artemis_writes_its_consumer_into_the_id_and_another_one_in_each_session() -> None:
    identifier = Identifier()
    first, again, other = (record(1, headers={"message-id": identity}) for identity in ("38,24", "46,24", "38,26"))
    assert identity_of(identifier, first) == identity_of(identifier, again)
    assert identity_of(identifier, first) != identity_of(identifier, other)


def test_the_same_number_at_another_moment_is_another_message() -> None:
    identifier = Identifier()
    early, late = (record(1)._replace(broker_timestamp=moment) for moment in (1_000, 2_000))
    assert identity_of(identifier, early) != identity_of(identifier, late)


def test_ids_that_name_deliveries_identify_nothing_and_a_header_does_all_the_same() -> None:
    assert identity_of(Identifier(stable=False), record(1)) is None
    assert identity_of(Identifier("n", stable=False), record(1, headers={"n": "5"})) == ("5", "/queue/a")
    assert identity_of(Identifier("n"), record(1)) is None


@pytest.mark.parametrize("header", [None, "dedup"])
def test_a_message_and_its_row_are_identified_alike(header: str | None) -> None:
    identifier = Identifier(header)
    rows = [
        *records(range(2)),
        record(2, headers={"message-id": "7,2"})._replace(broker_timestamp=1_700_000_000_123_000),
    ]
    rows.append(record(3, headers={"dedup": "x"}))
    segment, data = encode(rows, spool="s", first=0, epoch=1)
    batch = decode(data, segment, spool="s", path="")
    found = {identity_of(identifier, row) for row in rows} - {None}
    assert identifier.of_batch(batch) == found
    assert len(found) == (4 if header is None else 1)


@pytest.mark.parametrize(
    ("server", "stable"),
    [
        ("ActiveMQ/6.3.1", True),
        ("ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine", True),
        ("RabbitMQ/4.1", False),
        ("stompy-broker/1.0", True),
        (None, False),
    ],
)
def test_which_brokers_name_messages(server: str | None, stable: bool) -> None:
    assert are_stable(server) is stable
