"""The versions of the protocol."""

from __future__ import annotations

import enum

from stompy.errors import ConfigurationError


class Version(enum.Enum):
    """A version of STOMP; the value is what the `version` header says.

    `DRAFT` is the early "1.0-draft" text, a profile of its own that is never negotiated: both sides must be told.
    """

    DRAFT = "1.0-draft"
    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"

    def __str__(self) -> str:
        return self.value

    def __lt__(self, other: Version) -> bool:
        return _ORDER[self] < _ORDER[other]

    @property
    def has_heartbeats(self) -> bool:
        """Whether this version knows heart-beats and escapes (1.1 and newer)."""
        return self in (Version.V1_1, Version.V1_2)


_ORDER = {version: place for place, version in enumerate(Version)}

NEGOTIABLE = (Version.V1_0, Version.V1_1, Version.V1_2)
"""The versions that CONNECT can offer, in increasing order."""


def parse_version(text: str | Version) -> Version:
    """Return the version named `text`, such as `"1.2"`.

    Raises:
        ConfigurationError: there is no such version.
    """
    try:
        return Version(text)
    except ValueError:
        known = ", ".join(version.value for version in Version)
        raise ConfigurationError(f"unknown STOMP version {text!r}: stompy speaks {known}") from None
