from __future__ import annotations

import json
from typing import Any

import pytest

from tools import audit


def answer(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": list(packages)})


GOOD = {"name": "tenacity", "version": "9", "vulns": []}
BAD = {"name": "leaky", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}
UNKNOWN = {"name": "tenacity", "skip_reason": "not found"}


@pytest.mark.parametrize("said", ["", "no network", "[]", "{}"])
def test_an_audit_without_an_answer_says_that_it_was_none(said: str) -> None:
    assert audit.judged(said) == ("pip-audit could not reach its data: nothing was audited", [])


def test_an_audit_that_reached_no_advisory_says_so() -> None:
    assert audit.judged(answer(UNKNOWN)) == (
        "the advisories of none of 1 packages could be reached: nothing was audited",
        [],
    )


def test_a_vulnerability_is_named_with_what_mends_it() -> None:
    words, found = audit.judged(answer(GOOD, UNKNOWN, BAD))
    assert words == "2 of 3 packages audited, 1 vulnerabilities"
    assert found == ["leaky 1: X-1 (fixed in 2)"]


def test_a_vulnerability_that_does_not_matter_here_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(audit.TOLERATED, "X-1", "it is about Windows")
    assert audit.judged(answer(BAD))[1] == []


@pytest.mark.parametrize(("package", "code"), [(GOOD, 0), (BAD, 1), (UNKNOWN, 0)])
def test_only_a_vulnerability_ends_it_badly(
    package: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "asked", lambda: answer(package))
    assert audit.main() == code
