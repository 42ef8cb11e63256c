"""What a connection knows of telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stompy.connection.config import Config
    from stompy.connection.connection import Connection
    from stompy.connection.listeners import Listener


class Telemetry(Protocol):
    """Records what connections do; `stompy.OpenTelemetry` is one."""

    def connection(self, config: Config, listeners: Sequence[Listener]) -> Connection:
        """Return a connection that is recorded."""
        ...

    def for_worker(self) -> Telemetry:
        """Return what records a worker's connection and is middleware for its tasks."""
        ...

    def inject(self, headers: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """Return headers with the current context, unless they have one."""
        ...
