"""Agreeing on a version (STOMP 1.2, Protocol Negotiation)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stompy.errors import LocalProtocolError
from stompy.frames.version import NEGOTIABLE, Version


def speakable(versions: Iterable[Version]) -> tuple[Version, ...]:
    """Return the versions that one side is to speak, each once and in increasing order.

    Raises:
        LocalProtocolError: none at all, or the 1.0-draft, which is never negotiated, together with others.
    """
    ordered = tuple(sorted(set(versions)))
    if not ordered or (Version.DRAFT in ordered and len(ordered) > 1):
        raise LocalProtocolError("speak at least one version; the 1.0-draft only by itself")
    return ordered


def accept_version(versions: Iterable[Version]) -> str:
    """Return the value of the `accept-version` header: increasing, separated by commas."""
    return ",".join(version.value for version in sorted(versions))


def offered_by(value: str | None) -> tuple[Version, ...]:
    """Return the versions that an `accept-version` header names and stompy knows, in increasing order.

    Any order and spaces around the items are accepted, unknown and empty items are passed over. No header at all means
    that the peer speaks 1.0 only; an empty one means nothing in common.
    """
    if value is None:
        return (Version.V1_0,)
    names = {item.strip(" ") for item in value.split(",")}
    return tuple(version for version in NEGOTIABLE if version.value in names)


def highest_common(mine: Sequence[Version], theirs: Sequence[Version]) -> Version | None:
    """Return the newest version that both sides have, or `None`."""
    return max((version for version in mine if version in theirs), default=None)
