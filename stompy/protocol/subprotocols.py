"""The WebSocket subprotocols of STOMP: `v10.stomp`, `v11.stomp` and `v12.stomp`."""

from __future__ import annotations

from collections.abc import Sequence

from stompy.frames.grammar import Version

_SUBPROTOCOLS = {
    f"v{version.value.replace('.', '')}.stomp": version for version in Version if version is not Version.DRAFT
}


def subprotocols(versions: Sequence[Version]) -> tuple[str, ...]:
    """Return the subprotocols of these versions, the newest first."""
    return tuple(name for name, version in sorted(_SUBPROTOCOLS.items(), reverse=True) if version in versions)


def version_of(transport: object) -> Version | None:
    """Return the version that a transport has agreed on by a subprotocol; `None` if it has agreed on none."""
    return _SUBPROTOCOLS.get(getattr(transport, "subprotocol", None) or "")
