"""What users may rely on, pinned: a public name or signature changes only together with `public_api.txt`."""

from __future__ import annotations

from tests.support.public_api import PINNED, public_api


def test_public_names_and_signatures_are_those_of_the_file() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    now = public_api()
    hint = "if this is meant, run `python -m tests.support.public_api`, and name the change in CHANGELOG.md"
    assert sorted(set(pinned) ^ set(now)) == [], hint
