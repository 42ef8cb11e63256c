from __future__ import annotations

import pytest

from stompy.errors import FrameTooLarge, RemoteProtocolError
from stompy.frames.grammar import grammar_of, handshake_grammar
from stompy.frames.limits import Limits
from stompy.frames.parser import Parser
from stompy.frames.version import Version
from tests.frames.cases import ALL, DRAFT, FINAL, GROUPS, HANDSHAKE, V1_0, V1_1, V1_2, Case, frame
from tests.support.codec import cut, feed_all, parser, plain
from tests.support.reference import Reference


EVERY_CASE = [
    pytest.param(case, profile, id=f"{profile} {group}: {case.name}", marks=pytest.mark.requirement(*case.rows))
    for group, cases in GROUPS.items()
    for case in cases
    for profile in case.profiles
]


def check(case: Case, profile: str, reads: list[bytes], more: int = 0) -> None:
    """Feed the case to a fresh parser; `more` frames of no interest may follow its own where it is a good one."""
    frames, error = feed_all(parser(profile, case.leniency, case.limits), reads)
    expected = list(case.frames)
    assert frames[: len(expected)] == expected
    if case.error is not None:
        assert len(frames) == len(expected)
        assert error is not None
    else:
        assert error is None
        assert len(frames) == len(expected) + more


@pytest.mark.parametrize(("case", "profile"), EVERY_CASE)
def test_the_parser_makes_of_it(case: Case, profile: str) -> None:
    octets = case.octets
    whole = parser(profile, case.leniency, case.limits)
    whole.feed(octets)
    assert (case.error or "") in str(whole.error)

    check(case, profile, [octets])
    check(case, profile, cut(octets, 1))
    for at in range(1, len(octets)):
        check(case, profile, [octets[:at], octets[at:]])

    another = b"\n\n\nACK\nid:1\n\n\0"
    check(case, profile, [octets + another], more=1)
    check(case, profile, cut(octets + another, 1), more=1)
    check(case, profile, [octets, another], more=1)
    check(case, profile, [octets + b"\n\n"])
    check(case, profile, [octets, b"\n", b"\n"])



@pytest.mark.parametrize(("case", "profile"), EVERY_CASE)
def test_the_reference_makes_of_it(case: Case, profile: str) -> None:
    frames, refusal = Reference(profile, case.leniency, case.limits).decode(case.octets)
    assert frames == list(case.frames)
    assert (refusal is not None) == (case.error is not None)
