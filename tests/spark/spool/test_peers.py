"""What one spool of a source has stored, no other one stores again: the protocol, and its parts on real folders."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stompy.errors import SpoolBusyError, SpoolFencedError, SpoolMismatchError
from stompy.spark.spool.claims import Claim
from stompy.spark.spool.files import Files, write_mark
from stompy.spark.spool.peers import NOTES, Peers
from stompy.spark.spool.record import Identifier, Record
from stompy.spark.spool.redelivery import KEPT_FOR
from stompy.spark.spool.spool import make_spool
from stompy.spark.spool.writer import SpoolWriter
from tests.spark.receiver.helpers import SOON
from tests.spark.spool.builders import IMPATIENT, ids_in, records, seal, segment_names
from tests.spark.spool.peers_model import PARTS, Model


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(Model(losses=2), id="two lost sessions"),
        pytest.param(Model(losses=1, crashes=1), id="a lost session and a crash"),
        pytest.param(Model(losses=2, crashes=1), id="two lost sessions and a crash", marks=pytest.mark.long),
        pytest.param(Model(losses=3, crashes=1), id="three lost sessions and a crash", marks=pytest.mark.long),
        pytest.param(Model(messages=2), id="two messages", marks=pytest.mark.long),
        pytest.param(Model(spools=3, losses=2), id="three spools", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(1800)
def test_in_no_state_is_a_message_lost_or_in_two_spools(model: Model) -> None:
    assert model.search() is None
    assert len(model.seen) > 1000, "the model has stopped to do anything"


@pytest.mark.parametrize("part", sorted(PARTS))
def test_the_search_finds_what_is_wrong_without_a_part(part: str) -> None:
    assert Model(losses=2, without=part).search() is not None


class Source:
    """Folders of spools side by side, and their writers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self, name: str) -> Files:
        return Files(str(self.path / name))

    def writer(self, name: str, *, destination: str = "/queue/a", fresh: int = 0, patience: float = 0.0) -> SpoolWriter:
        spool = make_spool(self.files(name), destination, shared=True)
        peers = Peers(spool, self.folders, Identifier(), fresh=fresh, patience=patience)
        writer = SpoolWriter(spool, patience=IMPATIENT, peers=peers)
        writer.begin(0)
        return writer

    def folders(self) -> list[str]:
        return sorted(map(str, self.path.iterdir()))

    def ids(self) -> list[str]:
        return sorted(one for path in self.path.iterdir() for one in ids_in(Files(str(path))))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def redelivered(numbers: range) -> list[Record]:
    return [one._replace(redelivered=True) for one in records(numbers)]


def die(writer: SpoolWriter) -> None:
    """End the process of a writer, without what it does at its end."""
    writer._claim.release()


def is_fenced(writer: SpoolWriter, rows: list[Record]) -> None:
    with pytest.raises(SpoolFencedError):
        seal(writer, rows)


def expected(count: int) -> list[str]:
    return sorted(f"id-{number}" for number in range(count))


def test_what_a_dead_spool_has_is_not_stored_again(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    seal(a, records(range(10)))
    die(a)  # before the ACK
    stored = seal(b, redelivered(range(8, 12)))
    assert stored.end - stored.start == 2
    assert source.ids() == expected(12)
    assert b.counts()[0].dropped == 2


def test_what_a_spool_has_processed_and_removed_is_not_stored_again(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    seal(a, records(range(5)))
    a.leave(0)  # the session is lost: the ids are suspects
    write_mark(source.files("a"), "low", a.next)
    a.maintain()
    assert segment_names(source.files("a")) == []
    assert seal(b, redelivered(range(5))).ids
    assert b.total == 0


def test_an_old_copy_in_the_inbox_of_a_session_that_was_given_up_is_not_stored(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    a.confirm(seal(a, redelivered(range(5))))
    write_mark(source.files("a"), "low", a.next)
    a.maintain()
    assert segment_names(source.files("a")) == []
    seal(b, records(range(7)))
    assert (a.total, b.total) == (5, 2)


def test_a_redelivered_message_that_the_spool_knew_is_noted_for_the_others(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    seal(a, records(range(5)))
    a.leave(0)
    a.begin(0)
    a.confirm(seal(a, redelivered(range(5))))
    write_mark(source.files("a"), "low", a.next)
    a.maintain()
    seal(b, redelivered(range(5)))
    assert (a.total, b.total) == (5, 0)


def test_of_a_new_session_every_message_is_looked_up_as_a_restarted_broker_marks_none(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b", fresh=8)
    seal(a, records(range(10)))
    seal(b, records(range(8)))
    assert b.total == 0
    seal(b, records(range(8, 10)))
    assert b.total == 2, "a broker that is not restarted marks what it redelivers"


class Held(Files):
    """Is held up before a segment gets its name."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.complete, self.goes_on = threading.Event(), threading.Event()

    @classmethod
    def of(cls, writer: SpoolWriter) -> Held:
        """Return the files of a writer, held up from now on."""
        held = writer._files = cls(writer._files.url)
        return held

    def write(self, name: str, data: bytes, *, look: Callable[[], None] | None = None) -> None:
        def hold() -> None:
            assert look is not None
            look()
            if not self.complete.is_set():
                self.complete.set()
                assert self.goes_on.wait(SOON)

        super().write(name, data, look=None if look is None else hold)


def test_a_segment_without_a_name_is_removed_by_the_peer_that_gets_its_message(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    held = Held.of(a)
    storing = threading.Thread(target=lambda: seal(a, records(range(5))))
    storing.start()
    assert held.complete.wait(SOON)
    seal(b, redelivered(range(3, 6)))
    held.goes_on.set()
    storing.join()
    assert (a.total, b.total) == (3, 3)
    assert source.ids() == expected(6)


def test_the_segment_of_a_process_that_died_before_it_had_a_name_stops_nobody(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    held = Held.of(a)
    died = threading.Thread(target=is_fenced, args=(a, redelivered(range(5))))
    died.start()
    assert held.complete.wait(SOON)
    seal(b, redelivered(range(5)))
    assert b.total == 5
    die(a)
    successor = source.writer("a")
    assert len(source.files("a").list(NOTES)) == 0
    seal(successor, records(range(5)))
    held.goes_on.set()
    died.join()
    assert source.ids() == expected(5)


def test_while_a_process_is_about_to_begin_a_peer_waits_and_says_so(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    seal(a, records(range(5)))
    die(a)
    Claim(source.files("a"), patience=IMPATIENT)  # and has not begun
    with pytest.raises(SpoolBusyError, match="does not start to fill it, so that its messages are not known"):
        seal(b, redelivered(range(5)))


def test_a_spool_of_another_destination_is_refused(source: Source) -> None:
    b = source.writer("b")
    source.writer("a", destination="/queue/other")
    with pytest.raises(SpoolMismatchError, match="spools of one destination"):
        seal(b, redelivered(range(5)))


def test_a_spool_that_was_removed_has_nothing(source: Source) -> None:
    a, b = source.writer("a"), source.writer("b")
    seal(a, records(range(5)))
    seal(b, redelivered(range(4, 6)))
    die(a)
    shutil.rmtree(source.path / "a")
    seal(b, redelivered(range(5, 8)))
    assert b.total == 3


def test_notes_are_removed_after_a_day(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    a = source.writer("a")
    seal(a, redelivered(range(5)))
    now = a._peers._notes  # type: ignore[union-attr]
    for file in now:
        now[file] = now[file][0] - KEPT_FOR - 1, now[file][1]
    seal(a, redelivered(range(5, 6)))
    assert len(source.files("a").list(NOTES)) == 1
