from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stompy.errors import (
    SpoolBusyError,
    SpoolDamagedError,
    SpoolDataLossError,
    SpoolError,
    SpoolFencedError,
    SpoolFullError,
    SpoolMismatchError,
)
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.files import Files, read_counts, write_mark
from stompy.spark.spool.record import Identifier, Record
from stompy.spark.spool.redelivery import StoredRange
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.writer import SpoolWriter
from tests.spark.receiver.helpers import SOON, eventually
from tests.spark.spool.builders import (
    identity_of,
    ids_in,
    known_ids,
    record,
    records,
    seal,
    segment_names,
    settle,
    spool_files,
    spool_writer,
)


class Overtaken(Files):
    """Has a successor take over while a segment is half written."""

    def write(self, name: str, data: bytes, *, look: Callable[[], None] | None = None) -> None:
        if name.startswith("seg-"):
            spool_writer(spool_files(Path(self.path(""))), patience=ClaimTimeouts(wait=60.0, frozen=0.1)).close()
            raise SpoolError("it cannot be used: No such file or directory", path=name)
        super().write(name, data, look=look)


class Worn(Files):
    """Removes nothing any more."""

    def remove(self, name: str) -> None:
        raise SpoolError("it can no longer be written", path=name)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return spool_files(tmp_path / "spool")


def filled(files: Files, *counts: int) -> tuple[SpoolWriter, list[StoredRange]]:
    """Return a writer that has written groups, and what waits for their ACKs."""
    writer = spool_writer(files)
    return writer, [seal(writer, records(range(writer.next, writer.next + count))) for count in counts]


def settled(files: Files, *counts: int) -> SpoolWriter:
    """Return a writer that has written groups whose ACKs are confirmed."""
    writer, deliveries = filled(files, *counts)
    for delivery in deliveries:
        writer.confirm(delivery)
    return writer


def again(writer: SpoolWriter, numbers: range, *, receiver: int = 0) -> int:
    """Deliver messages once more; return how many are taken for new ones."""
    delivery = seal(writer, records(numbers), receiver=receiver)
    return delivery.end - delivery.start


def test_the_next_writer_goes_on_where_the_last_one_ended(files: Files) -> None:
    filled(files, 10, 5)[0].close()
    writer, _ = filled(files, 3)
    assert (writer.next, writer._claim.epoch) == (18, 2)
    writer.close()
    assert ids_in(files) == [f"id-{number}" for number in range(18)]


def test_a_second_writer_is_refused_and_the_first_goes_on(files: Files) -> None:
    writer, _ = filled(files, 10)
    with pytest.raises(SpoolBusyError):
        spool_writer(files)
    seal(writer, records([10]))
    writer.close()


def test_a_writer_whose_unfinished_file_a_successor_has_removed_learns_why(tmp_path: Path) -> None:
    spool_files(tmp_path / "spool")
    zombie = spool_writer(Overtaken(str(tmp_path / "spool")))
    with pytest.raises(SpoolFencedError):
        seal(zombie, records([1]))
    zombie.close()


def test_a_fenced_writer_may_not_acknowledge_and_its_segment_does_not_count(files: Files) -> None:
    zombie, _ = filled(files, 10)
    successor = spool_writer(files, patience=ClaimTimeouts(wait=60.0, frozen=0.1))
    with pytest.raises(SpoolFencedError):
        seal(zombie, records(range(10, 15)))
    with pytest.raises(SpoolFencedError):
        zombie.maintain()
    with pytest.raises(SpoolFencedError):
        zombie.leave(0)
    seal(successor, records(range(10, 12)))
    successor.close()
    zombie.close()
    assert ids_in(files) == [f"id-{number}" for number in range(12)]


def test_what_was_durable_and_not_confirmed_is_recognised_by_the_next_writer_also_when_it_was_removed(
    files: Files,
) -> None:
    writer, (first, _) = filled(files, 10, 5)
    writer.confirm(first)
    writer.close()
    spool_writer(files).close()
    write_mark(files, "low", 15)
    spool_writer(files).close()
    assert segment_names(files) == []
    last = spool_writer(files)
    assert known_ids(last) == 5
    assert again(last, range(10, 20)) == 5
    last.close()


def test_a_lost_link_leaves_what_was_not_confirmed_to_be_recognised_by_any_receiver(files: Files) -> None:
    writer, (first, _) = filled(files, 10, 5)
    writer.confirm(first)
    assert writer.settled == 10
    writer.leave(0)
    assert (known_ids(writer), writer.settled) == (5, 15)
    writer.begin(1)
    delivery = seal(writer, records(range(10, 16)), receiver=1)
    assert (delivery.start, delivery.end, sum(one.dropped for one in writer.counts())) == (15, 16, 5)
    writer.confirm(delivery)
    assert (known_ids(writer), files.list("suspects")) == (0, [])
    writer.close()


def test_what_one_receiver_wrote_another_does_not_write_whatever_the_broker_has_confirmed(files: Files) -> None:
    writer = spool_writer(files)
    writer.begin(1)
    settle(writer, records(range(5)))
    assert again(writer, range(5), receiver=1) == 0
    writer.leave(1)
    assert known_ids(writer) == 0
    writer.close()


def test_what_each_receiver_has_got_is_on_disk_for_people_to_read(files: Files) -> None:
    writer = spool_writer(files)
    settle(writer, records(range(5)))
    writer.begin(1)
    flagged = [row._replace(redelivered=True) for row in records([5, 6])]
    seal(writer, [*flagged, *flagged], receiver=1)
    writer.maintain()
    first, second = read_counts(files)
    assert (first.messages, first.dropped, first.flagged) == (5, 0, 0)
    assert (second.messages, second.dropped, second.flagged) == (2, 2, 2)
    assert first.last is not None
    writer.close()
    spool_writer(files).close()
    assert read_counts(files) == []


def test_a_message_that_comes_twice_in_a_group_is_written_once(files: Files) -> None:
    writer = spool_writer(files)
    assert seal(writer, [record(1), record(1), record(2)]).end == 2
    writer.close()


def test_without_an_identity_everything_is_new(files: Files) -> None:
    writer = spool_writer(files)
    unstable = Identifier(stable=False)
    for _ in range(2):
        writer.store(0, [row._replace(identity=identity_of(unstable, row)) for row in records(range(3))])
    assert writer.next == 6
    writer.close()


def test_after_a_write_that_failed_no_other_gets_its_number(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = settled(files, 3)
    with monkeypatch.context() as patched:

        def half(name: str, data: bytes, **look: object) -> None:
            Files.write(files, name, data)
            raise SpoolFullError("it was not there in time", path=name)

        patched.setattr(files, "write", half)
        with pytest.raises(SpoolFullError):
            seal(writer, records([3]))
    with pytest.raises(SpoolFullError, match="not there in time"):
        seal(writer, records([4]))
    # Its reader sees the file, and it is reported to Spark.
    write_mark(files, "planned", 4)
    writer.close()
    later = spool_writer(files)
    assert later.next == 4, "the file was there all the same, and its messages are recognised"
    assert again(later, range(3, 5)) == 1
    later.close()
    assert ids_in(files) == [f"id-{number}" for number in range(5)]


def test_what_was_processed_is_removed_once_its_ack_is_confirmed(files: Files) -> None:
    writer, deliveries = filled(files, 10, 10, 10)
    writer.confirm(deliveries[0])
    write_mark(files, "low", 20)
    writer.maintain()
    assert len(segment_names(files)) == 2
    for delivery in deliveries[1:]:
        writer.confirm(delivery)
    writer.maintain()
    assert len(segment_names(files)) == 1
    writer.close()


def test_what_is_processed_in_part_is_kept(files: Files) -> None:
    writer = settled(files, 10, 10)
    write_mark(files, "low", 15)
    writer.close()
    assert len(segment_names(files)) == 1
    assert ids_in(files) == [f"id-{number}" for number in range(10, 20)]


def test_a_crash_between_mark_and_removal_leaves_nothing_behind(files: Files) -> None:
    settled(files, 10, 10).close()
    write_mark(files, "low", 10)
    assert len(segment_names(files)) == 2
    spool_writer(files).close()
    assert len(segment_names(files)) == 1


def test_the_spool_has_no_room_until_something_was_processed_or_all_was_planned(files: Files) -> None:
    writer = settled(files, 10)
    assert writer.room(100) < 0 < writer.room(1 << 20) < 1 << 20
    write_mark(files, "planned", 10)
    writer.maintain()
    assert writer.room(100) == 100
    settle(writer, records(range(10, 12)))
    both = sum(segment.size for segment in get_spool(files).segments())
    assert writer.room(both) == 0
    write_mark(files, "low", 10)
    writer.maintain()
    assert writer.room(both) > 0
    writer.close()


@pytest.mark.parametrize("which", [1, 2])
def test_a_segment_that_was_removed_is_an_error_that_names_the_messages(files: Files, which: int) -> None:
    settled(files, 10, 10, 10).close()
    os.unlink(files.path(segment_names(files)[which]))
    with pytest.raises(SpoolDataLossError, match=f"the messages {which}0 to {which}9 "):
        spool_writer(files)
    # Its predecessor's lock is free again, and who gives the messages up goes on after them.
    writer = spool_writer(files, fail_on_loss=False)
    assert writer.next == 30
    seal(writer, records([30]))
    writer.close()


@pytest.mark.parametrize(("name", "words"), [("low", "with the start of the spool is missing"), ("settled", "")])
def test_a_mark_that_is_gone_is_an_error_only_where_nothing_can_stand_for_it(
    files: Files, name: str, words: str
) -> None:
    settled(files, 10).close()
    os.unlink(files.path(name))
    if words:
        with pytest.raises(SpoolDamagedError, match=f"{name}: .*{words}"):
            spool_writer(files)
    else:
        writer = spool_writer(files)
        assert known_ids(writer) == 10
        writer.close()


@pytest.mark.parametrize("name", ["low", "settled"])
def test_a_damaged_mark_is_an_error(files: Files, name: str) -> None:
    settled(files, 10).close()
    Path(files.path(name)).write_bytes(b"")
    with pytest.raises(SpoolDamagedError, match=f"{name}: the file is empty"):
        spool_writer(files)


@pytest.mark.hard_case("T13")
def test_a_truncated_segment_whose_ids_are_needed_is_named_or_given_up(files: Files) -> None:
    filled(files, 10)[0].close()
    (name,) = segment_names(files)
    os.truncate(files.path(name), 100)
    with pytest.raises(SpoolDamagedError, match=name):
        spool_writer(files)
    # What the broker sends again is then no copy.
    writer = spool_writer(files, fail_on_loss=False)
    assert again(writer, range(10)) == 10
    writer.close()


def test_a_segment_of_another_spool_is_refused(files: Files, tmp_path: Path) -> None:
    filled(files, 10)[0].close()
    other = spool_files(tmp_path / "other")
    filled(other, 10)[0].close()
    (mine,), (theirs,) = segment_names(files), segment_names(other)
    os.unlink(files.path(mine))
    os.rename(other.path(theirs), files.path(theirs))
    with pytest.raises(SpoolMismatchError, match="belongs to another spool"):
        spool_writer(files)


def test_a_torn_file_is_swept(files: Files) -> None:
    filled(files, 10)[0].close()
    Path(files.path(".tmp-seg-00000000000000000010-x")).write_bytes(b"torn")
    spool_writer(files).close()
    assert [one for one in os.listdir(files.path("")) if one.startswith(".tmp")] == []


def test_one_that_cannot_open_the_spool_leaves_its_predecessors_claim_in_force(files: Files) -> None:
    settled(files, 10, 10, 10).close()
    os.unlink(files.path(segment_names(files)[1]))
    with pytest.raises(SpoolDataLossError):
        spool_writer(files)
    assert ids_in(files) == [f"id-{number}" for number in (*range(10), *range(20, 30))]


def test_a_claim_that_cannot_be_withdrawn_does_not_keep_the_lock(files: Files) -> None:
    settled(files, 10, 10, 10).close()
    os.unlink(files.path(segment_names(files)[1]))
    with pytest.raises(SpoolError, match="no longer"):
        spool_writer(Worn(files.path("")))
    with pytest.raises(SpoolDataLossError):  # not `SpoolBusyError`
        spool_writer(files, patience=ClaimTimeouts(wait=0.1, frozen=60.0))


@pytest.mark.parametrize("claims_ago", [1, 2])
def test_segments_that_are_newer_than_the_claims_are_no_orphans(files: Files, claims_ago: int) -> None:
    """The claims were put back from a copy: what a later process had stored and acknowledged must not be removed."""
    settled(files, 10).close()
    (older,) = files.list("epoch")
    document = files.read(f"epoch/{older}")
    assert document is not None
    for number in range(claims_ago):
        writer = spool_writer(files)
        settle(writer, records(range(10 + 10 * number, 20 + 10 * number)))
        writer.close()
    for name in files.list("epoch"):
        files.remove(f"epoch/{name}")
    files.write(f"epoch/{older}", document)
    for open_it in (spool_writer, ids_in):
        with pytest.raises(SpoolMismatchError, match="the claims below `epoch` are older than the segments"):
            open_it(files)
    assert len(segment_names(files)) == 1 + claims_ago


class Slow(Files):
    """Is held up in the first segment that it writes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def write(self, name: str, data: bytes, *, look: Callable[[], None] | None = None) -> None:
        if name.startswith("seg-") and not self.begun.is_set():
            self.begun.set()
            assert self.goes_on.wait(SOON)
        super().write(name, data, look=look)


def test_what_arrives_during_a_sync_is_one_segment_of_all_receivers(files: Files) -> None:
    slow = Slow(files.url)
    writer = spool_writer(slow)
    stored: list[StoredRange] = []

    def store(receiver: int, rows: list[Record]) -> threading.Thread:
        if receiver:
            writer.begin(receiver)
        thread = threading.Thread(target=lambda: stored.append(seal(writer, rows, receiver=receiver)))
        thread.start()
        return thread

    threads = [store(0, records(range(5)))]
    assert slow.begun.wait(SOON)
    # The last two have a message in common, as a broker redelivers it.
    threads += [store(number, records(range(5 * number, 5 * number + 6))) for number in (1, 2, 3)]
    eventually(lambda: len(writer._groups) == 3)
    slow.goes_on.set()
    for thread in threads:
        thread.join()
    assert [name[4:32] for name in segment_names(files)] == [f"{0:020d}-{5:07d}", f"{5:020d}-{16:07d}"]
    assert sorted(ids_in(files)) == sorted(f"id-{number}" for number in range(21))
    assert min((each.start, each.end) for each in stored) == (0, 5)
    assert sorted(each.end - each.start for each in stored) == [5, 5, 5, 6]
    for each in stored:
        writer.confirm(each)
    writer.close()
    assert writer.settled == 21
