from __future__ import annotations

import random

import pytest

from stompy.spark.sink.rows import DedupMode, Outgoing, digest_of, identified

PART = "query/7/3"
MESSAGES = [Outgoing("/queue/a", f"body {number % 40}") for number in range(100)]


def ids(messages: list[Outgoing], way: DedupMode = "content", part: str = PART) -> list[str | None]:
    return [message.dedup_id for message in identified(messages, part, way)]


def test_a_second_run_gives_the_same_ids() -> None:
    assert ids(MESSAGES) == ids(MESSAGES)
    assert ids(MESSAGES, "position") == ids(MESSAGES, "position")


def test_every_row_has_an_id_of_its_own_even_if_rows_are_equal() -> None:
    assert len(set(ids(MESSAGES))) == len(set(ids(MESSAGES, "position"))) == 100


def test_ids_of_content_do_not_depend_on_the_order_of_rows() -> None:
    mixed = random.Random(1).sample(MESSAGES, k=100)
    assert set(ids(mixed)) == set(ids(MESSAGES))


@pytest.mark.parametrize("other", ["query/8/3", "query/7/4", "next/7/3"])
def test_ids_of_other_partitions_batches_and_jobs_are_others(other: str) -> None:
    assert not set(ids(MESSAGES)) & set(ids(MESSAGES, part=other))


def test_the_id_of_the_row_wins() -> None:
    mine = Outgoing("/queue/a", "x", dedup_id="mine")
    assert [ids([mine], way)[0] for way in ("content", "position", "none")] == ["mine"] * 3


def test_no_id_can_be_had_too() -> None:
    assert ids(MESSAGES, "none") == [None] * 100


def test_a_job_without_batches_has_ids() -> None:
    assert all(one is not None and one.startswith("job/-/0/") for one in ids(MESSAGES, part="job/-/0"))


@pytest.mark.parametrize(
    "other",
    [
        Outgoing("/queue/b", "x", {"a": "1"}),
        Outgoing("/queue/a", "y", {"a": "1"}),
        Outgoing("/queue/a", "x", {"a": "2"}),
        Outgoing("/queue/a", "x", {"a": "1", "b": ""}),
        Outgoing("/queue/a", "x", {"a": "1"}, content_type="text/plain"),
        Outgoing("/queue/a", "x", {"a": "1"}, priority=4),
        Outgoing("/queue/a", "x", {"a": "1"}, expires=1),
    ],
)
def test_messages_that_differ_have_other_digests(other: Outgoing) -> None:
    assert digest_of(Outgoing("/queue/a", "x", {"a": "1"})) != digest_of(other)


def test_the_digest_does_not_depend_on_the_order_of_headers_or_on_how_text_is_held() -> None:
    one = Outgoing("/queue/a", "Grüße", {"a": "1", "b": "2"})
    same = Outgoing("/queue/a", "Grüße".encode(), {"b": "2", "a": "1"})
    assert digest_of(one) == digest_of(same)
