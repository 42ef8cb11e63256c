from __future__ import annotations

import itertools

import pytest

from stompy.errors import LocalProtocolError
from stompy.frames.version import NEGOTIABLE, Version
from stompy.protocol.negotiation import accept_version, highest_common, offered_by, speakable
from tests.protocol.exchange import DRAFT, V1_0, V1_1, V1_2


@pytest.mark.requirement("CON-08")
@pytest.mark.parametrize("versions", list(itertools.permutations(NEGOTIABLE)), ids=str)
def test_versions_are_offered_in_increasing_order(versions: tuple[Version, ...]) -> None:
    assert accept_version(versions) == "1.0,1.1,1.2"


@pytest.mark.requirement("CON-19")
def test_no_accept_version_means_1_0() -> None:
    assert offered_by(None) == (V1_0,)


@pytest.mark.requirement("A-28")
@pytest.mark.parametrize(
    ("value", "versions"),
    [
        ("1.0", (V1_0,)),
        ("1.2,1.0,1.1", (V1_0, V1_1, V1_2)),
        ("1.0, 1.1 ,  1.2", (V1_0, V1_1, V1_2)),
        (" 1.1 ", (V1_1,)),
        ("1.2,1.2", (V1_2,)),
        ("1.1,2.0", (V1_1,)),
        ("9.9", ()),
        ("", ()),
        (" ", ()),
        (",", ()),
        (",1.1,,", (V1_1,)),
        ("1.10", ()),
        ("1", ()),
        ("1.2;1.1", ()),
        ("1.0-draft", ()),
    ],
)
def test_a_list_of_versions_is_read_in_any_order_and_unknown_ones_are_passed_over(
    value: str, versions: tuple[Version, ...]
) -> None:
    assert offered_by(value) == versions


@pytest.mark.requirement("CON-20")
def test_the_highest_common_version_is_chosen() -> None:
    subsets = [s for size in range(4) for s in itertools.combinations(NEGOTIABLE, size)]
    for mine, theirs in itertools.product(subsets, subsets):
        common = [version for version in NEGOTIABLE if version in mine and version in theirs]
        assert highest_common(mine, theirs) is (common[-1] if common else None)


def test_what_a_side_speaks_is_ordered_and_listed_once() -> None:
    assert speakable([V1_2, V1_0, V1_2]) == (V1_0, V1_2)
    assert speakable([DRAFT, DRAFT]) == (DRAFT,)


@pytest.mark.parametrize("versions", [(), (DRAFT, V1_0), (V1_2, DRAFT)], ids=str)
def test_a_side_speaks_something_and_the_draft_only_by_itself(versions: tuple[Version, ...]) -> None:
    with pytest.raises(LocalProtocolError, match=r"at least one version; the 1\.0-draft only by itself"):
        speakable(versions)
