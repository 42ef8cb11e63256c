"""`OpenTelemetry`, the public class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from stompy.arguments import check_arguments
from stompy.connection.config import Config
from stompy.connection.connection import Connection
from stompy.connection.listeners import Listener
from stompy.connection.message import Message
from stompy.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider

    from stompy.connection.connecting import Telemetry


class OpenTelemetry:
    """Records traces and metrics of connections and workers: `connect(telemetry=...)`, `Worker(telemetry=...)`.

    It uses the API of OpenTelemetry only: the program sets up with an SDK where the records go. One object may
    be used for several connections. Needs `pip install 'stompy-client[otel]'`.

    Args:
        tracer_provider: `None` uses the global one.
        meter_provider: `None` uses the global one.
        propagator: writes the context into headers, and reads it; `None` uses the global one, by default `traceparent`,
            `tracestate` and `baggage`.

    Raises:
        ConfigurationError: the extra is not installed, or an argument is of another type.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        check_arguments(OpenTelemetry.__init__, locals())
        try:
            from stompy.telemetry.recorder import Recorder
        except ImportError as error:
            raise ConfigurationError(
                f"OpenTelemetry needs opentelemetry-api: pip install 'stompy-client[otel]' ({error})"
            ) from error
        self._recorder = Recorder(tracer_provider, meter_provider, propagator)

    def process(self, message: Message) -> AbstractContextManager[object]:
        """Return a context manager: its block is the processing of a message that was received.

        Handlers and tasks need none. The span is a child of the sender's, and the current one in the block.

        Args:
            message: from `receive` or iteration.
        """
        return self._recorder.processing(message)

    # For connections, workers and outboxes.

    def connection(self, config: Config, listeners: Sequence[Listener]) -> Connection:
        """See `stompy.connection.connecting.Telemetry`."""
        from stompy.telemetry.traced import TracedConnection

        return TracedConnection(self._recorder, config, listeners, handlers=True)

    def for_worker(self) -> Telemetry:
        """See `stompy.connection.connecting.Telemetry`."""
        from stompy.telemetry.tasks import WorkerTelemetry

        return WorkerTelemetry(self._recorder)

    def inject(self, headers: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """See `stompy.connection.connecting.Telemetry`."""
        return self._recorder.inject(headers)
