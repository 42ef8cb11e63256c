from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stompy.frames.headers import Headers
from stompy.spark.receiver.group import Group, group_of, knows_again
from tests.spark.spool.making import lane_writer, spool_files


@dataclass
class Message:
    """What a group looks at of a message."""

    headers: Headers
    body: bytes


def message(number: int, *, redelivered: bool = False, body: bytes = b"x") -> Any:
    again = [("redelivered", "true")] if redelivered else []
    return Message(Headers([("message-id", f"id-{number}"), ("destination", "/queue/a"), *again]), body)


def grouped(path: Path, *messages: Any, identified: bool, suspects: tuple[int, ...] = ()) -> Group:
    writer = lane_writer(spool_files(path))
    known = group_of([message(number) for number in suspects or (0,)], writer, broker="b", identified=True)
    if suspects:
        writer.seal(known.records)
        writer.unsettled_to_suspects()
    try:
        return group_of(messages, writer, broker="b", identified=identified)
    finally:
        writer.close()


def ids(group: Group) -> list[str | None]:
    return [record.message_id for record in group.records]


def test_the_last_message_is_the_one_to_acknowledge(tmp_path: Path) -> None:
    messages = [message(1), message(2)]
    assert grouped(tmp_path, *messages, identified=True).last is messages[1]


def test_what_is_in_the_spool_already_is_acknowledged_and_not_written(tmp_path: Path) -> None:
    group = grouped(tmp_path, message(1), message(2), message(3), identified=True, suspects=(1, 3))
    assert (ids(group), group.again) == (["id-2"], ["id-1", "id-3"])


def test_another_content_under_the_same_id_is_another_message(tmp_path: Path) -> None:
    group = grouped(tmp_path, message(1, body=b"other"), identified=True, suspects=(1,))
    assert (ids(group), group.again) == (["id-1"], [])


def test_without_stable_ids_nothing_is_dropped_and_what_is_redelivered_is_flagged(tmp_path: Path) -> None:
    group = grouped(tmp_path, message(1, redelivered=True), message(2), identified=False, suspects=(1,))
    assert [record.possible_duplicate for record in group.records] == [True, False]


def test_without_suspects_nothing_is_in_doubt(tmp_path: Path) -> None:
    group = grouped(tmp_path, message(1, redelivered=True), identified=False)
    assert [record.possible_duplicate for record in group.records] == [False]


@pytest.mark.parametrize(
    ("server", "ids", "header", "known"),
    [
        ("ActiveMQ/6.3.1", "auto", None, True),
        ("ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine", "auto", None, True),
        ("RabbitMQ/4.1", "auto", None, False),
        ("RabbitMQ/4.1", "auto", "x-id", True),
        ("RabbitMQ/4.1", "stable", None, True),
        ("ActiveMQ/6.3.1", "unstable", None, False),
        ("stompy-broker", "auto", None, False),
        (None, "auto", None, False),
    ],
)
def test_which_brokers_name_messages(server: str | None, ids: str, header: str | None, known: bool) -> None:
    assert knows_again(server, message_ids=ids, dedup_header=header) is known
