"""The files of an outbox damaged at random places: it opens with every message intact, or says that it is damaged."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stompy.deadline import Deadline
from stompy.errors import OutboxDamagedError
from stompy.outbox.record import Row
from stompy.outbox.store import Room, Store
from tests.support.peer import WITHIN
from tests.support.seed import SEED_SETTING
from tests.support.seed import chance as chance_of

PARTS = ("", "-wal", "-lock")


def open_store(path: str) -> Store:
    return Store(path, room=Room(), name="stompy-test", on_commit=lambda ledger: None)


def contents(store: Store) -> tuple[list[Row], list[Row]]:
    return store.read(after=0, limit=10_000, max_bytes=10**9), store.dead_letters(limit=10_000)


def fill(path: str, chance: random.Random) -> tuple[list[Row], list[Row]]:
    """Work with an outbox as a program does, and leave its files as a kill does, under `path`; return what is in it."""
    live = path + "-live"
    store = open_store(live)
    for number in range(120):
        size = chance.choice([0, 10, 200, 3_000, 20_000])
        body = chance.randbytes(size)
        store.put(Row(0, f"id-{number}", f"/queue/{number % 3}", '{"a":"b"}', body, 1_700_000_000_000))
        if number % 10 == 9:
            rows, _ = contents(store)
            store.refuse(rows[3], "no such queue", final=number % 20 == 9)
            store.remove(rows[:3])
        if number == 80:
            store.writer.call(lambda db, ledger: None)
            store.close(Deadline(WITHIN))  # moves the log into the file, so that both have a part
            store = open_store(live)
    expected = contents(store)
    for part in PARTS:
        shutil.copy(live + part, path + part)
    assert store.close(Deadline(WITHIN))
    return expected


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, tuple[list[Row], list[Row]]]:
    path = str(tmp_path_factory.mktemp("original") / "a.outbox")
    return path, fill(path, chance_of("filling"))


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def zero(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    length = chance.choice([1, 8, 512, 4_096])
    data[start : start + length] = bytes(min(length, len(data) - start))


def scramble(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    length = min(chance.choice([1, 8, 512, 4_096]), len(data) - start)
    data[start : start + length] = chance.randbytes(length)


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def cut_at_page(data: bytearray, chance: random.Random) -> None:
    del data[4_096 * chance.randrange(max(1, len(data) // 4_096)) :]


def swap_pages(data: bytearray, chance: random.Random) -> None:
    one, other = (4_096 * chance.randrange(max(1, len(data) // 4_096)) for _ in range(2))
    first, second = data[one : one + 4_096], data[other : other + 4_096]
    data[one : one + len(first)], data[other : other + len(second)] = second, first


def lengthen(data: bytearray, chance: random.Random) -> None:
    data += chance.randbytes(chance.choice([1, 4_096, 10_000]))


HARMS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip, zero, scramble, cut, cut_at_page, swap_pages, lengthen,
)  # fmt: skip


def outcome(path: str, expected: tuple[list[Row], list[Row]]) -> str:
    """Open an outbox; it must be damaged or whole."""
    try:
        store = open_store(path)
    except OutboxDamagedError:
        return "damaged"
    try:
        assert contents(store) == expected
        return "whole"
    finally:
        assert store.close(Deadline(WITHIN))


def harm_often(
    original: tuple[str, tuple[list[Row], list[Row]]], folder: Path, part: str, times: int
) -> Counter[tuple[str, str]]:
    source, expected = original
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(times):
        chance = chance_of(part, number)
        harm = chance.choice(HARMS)
        path = str(folder / "a.outbox")
        for one in PARTS:
            shutil.copy(source + one, path + one)
        data = bytearray(Path(path + part).read_bytes())
        harm(data, chance)
        Path(path + part).write_bytes(data)
        try:
            outcomes[harm.__name__, outcome(path, expected)] += 1
        except BaseException as error:
            raise AssertionError(f"{harm.__name__} number {number} of {part!r}, {SEED_SETTING}") from error
    return outcomes


@pytest.mark.parametrize("part", PARTS)
def test_damage_at_a_random_place_is_found_or_does_no_harm(
    original: tuple[str, tuple[list[Row], list[Row]]], tmp_path: Path, part: str
) -> None:
    outcomes = harm_often(original, tmp_path, part, 60)
    assert sum(count for (_, result), count in outcomes.items() if result == "damaged") > 20


@pytest.mark.load
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS)
def test_damage_at_thousands_of_random_places(
    original: tuple[str, tuple[list[Row], list[Row]]], tmp_path: Path, part: str
) -> None:
    print(sorted(harm_often(original, tmp_path, part, 3_000).items()))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_gone_is_damage(
    original: tuple[str, tuple[list[Row], list[Row]]], tmp_path: Path, part: str
) -> None:
    path = str(tmp_path / "a.outbox")
    for one in PARTS:
        if one != part:
            shutil.copy(original[0] + one, path + one)
    assert outcome(path, original[1]) == "damaged"


def test_the_undamaged_copy_is_whole(original: tuple[str, tuple[list[Row], list[Row]]], tmp_path: Path) -> None:
    path = str(tmp_path / "a.outbox")
    for one in PARTS:
        shutil.copy(original[0] + one, path + one)
    assert outcome(path, original[1]) == "whole"
    assert len(original[1][0]) > 50
    assert original[1][1]
