"""What destinations name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.broker.destinations import MAX_PARTS, has_wildcards, least_of, reply_target, targets_of
from stompy.broker.topology import Patterns
from stompy.errors import RemoteProtocolError


@pytest.mark.parametrize(
    ("destination", "kind"),
    [
        ("/topic/a", "topic"),
        ("/topic/", "topic"),
        ("/topic", "queue"),
        ("/queue/a", "queue"),
        ("a", "queue"),
        ("/Topic/a", "queue"),
        ("/temp-queue/a", "queue"),
        ("/temp-topic/a", "topic"),
    ],
)
def test_a_topic_is_known_by_its_prefix(destination: str, kind: str) -> None:
    (target,) = targets_of(destination, "s")
    assert (target.kind, target.shown) == (kind, destination)


def test_a_temporary_destination_has_another_name_for_others() -> None:
    (own,) = targets_of("/temp-queue/r", "s-1")
    (remote,) = targets_of("/remote-temp-queue/s-1/r", "s-2")
    assert own == remote
    assert (own.name, own.shown, own.owner) == ("/remote-temp-queue/s-1/r", "/temp-queue/r", "s-1")
    assert reply_target("/temp-queue/r", "s-1") == own
    assert reply_target("/queue/r", "s-1") is None


def test_a_composite_destination_names_several() -> None:
    names = [target.name for target in targets_of("/queue/a,/topic/b,/queue/c,d", "s")]
    assert names == ["/queue/a", "/topic/b", "/queue/c,d"]
    for wrong in ("/queue/a,/queue/a", ",".join(f"/queue/{number}" for number in range(MAX_PARTS + 1))):
        with pytest.raises(RemoteProtocolError, match="composite"):
            targets_of(wrong, "s")


@pytest.mark.parametrize("name", ["/topic/a.*", "/topic/*", "/topic/*.b", "/topic/a.>", "/topic/>", "/topic/a.#"])
def test_a_pattern(name: str) -> None:
    assert has_wildcards(name)


@pytest.mark.parametrize("name", ["/topic/a*", "/topic/a.>.b", "/topic/a>", "/topic/c#", "/queue/a", "*x"])
def test_no_pattern(name: str) -> None:
    assert not has_wildcards(name)


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("/topic/a.*", ["/topic/a.b"], ["/topic/a", "/topic/a.b.c", "/queue/a.b"]),
        ("/topic/*.b", ["/topic/a.b"], ["/topic/a.c"]),
        ("/topic/a.>", ["/topic/a", "/topic/a.b", "/topic/a.b.c"], ["/topic/b.a"]),
        ("/topic/#", ["/topic/a", "/topic/a.b"], ["/queue/a"]),
    ],
)
def test_what_fits_a_pattern(pattern: str, fitting: list[str], others: list[str]) -> None:
    patterns: Patterns[str] = Patterns()
    patterns.add(pattern, "x")
    assert [list(patterns.matching(name)) for name in fitting] == [["x"]] * len(fitting)
    assert [list(patterns.matching(name)) for name in others] == [[]] * len(others)


def test_the_shortest_name_that_fits_a_pattern() -> None:
    assert [least_of(name) for name in ("/topic/a.>", "/topic/a.*", "/topic/#")] == [
        "/topic/a",
        "/topic/a.*",
        "/topic/",
    ]


def test_a_pattern_has_so_many_words() -> None:
    with pytest.raises(RemoteProtocolError, match="words"):
        Patterns[str]().add("/topic/" + "a." * MAX_PARTS + "*", "x")


@given(st.lists(st.lists(st.sampled_from("ab*>"), min_size=1, max_size=3), max_size=6, unique_by=tuple))
def test_what_was_removed_does_not_fit(words: list[list[str]]) -> None:
    patterns: Patterns[str] = Patterns()
    names = ["/topic/" + ".".join(name) for name in words]
    for name in names:
        patterns.add(name, name)
    for name in names:
        patterns.remove(name, name)
        assert name not in [*patterns.matching("/topic/a.b"), *patterns.matching("/topic/a")]
    assert len(patterns) == 0
    assert vars(patterns) == vars(Patterns())
