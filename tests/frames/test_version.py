from __future__ import annotations

import pytest

from stompy.errors import ConfigurationError
from stompy.frames.version import NEGOTIABLE, Version, parse_version


def test_a_version_is_written_as_in_the_version_header() -> None:
    assert [str(version) for version in Version] == ["1.0-draft", "1.0", "1.1", "1.2"]


def test_versions_are_ordered_by_age() -> None:
    assert sorted({Version.V1_2, Version.V1_0, Version.DRAFT, Version.V1_1}) == list(Version)
    assert max(NEGOTIABLE) is Version.V1_2
    assert not Version.V1_1 < Version.V1_1


@pytest.mark.requirement("A-29")
def test_the_draft_is_never_negotiated() -> None:
    assert NEGOTIABLE == (Version.V1_0, Version.V1_1, Version.V1_2)


@pytest.mark.requirement("HBT-13")
def test_1_1_and_newer_have_heartbeats() -> None:
    assert [version for version in Version if version.has_heartbeats] == [Version.V1_1, Version.V1_2]


def test_a_version_is_found_by_its_name() -> None:
    for version in Version:
        assert parse_version(version.value) is version
        assert parse_version(version) is version
    with pytest.raises(ConfigurationError, match=r"'2\.0': stompy speaks 1\.0-draft, 1\.0, 1\.1, 1\.2"):
        parse_version("2.0")
