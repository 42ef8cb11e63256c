"""What records spans and metrics in memory, with OpenTelemetry's SDK."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext

import stompy
from stompy.broker import Broker

WITHIN = 20.0
"""Seconds after which a test has failed."""


class Spans(SpanExporter):
    """The spans that have ended."""

    def __init__(self) -> None:
        self._ended: list[ReadableSpan] = []
        self._changed = threading.Condition()

    def export(self, spans: Any) -> SpanExportResult:
        with self._changed:
            self._ended += spans
            self._changed.notify_all()
        return SpanExportResult.SUCCESS

    def wait(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """Wait until there are that many spans of a name, and return them in the order in which they ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.named(name)) >= count, WITHIN), [
                span.name for span in self._ended
            ]
            return self.named(name)

    def one(self, name: str) -> ReadableSpan:
        """Wait for the only span of a name."""
        (span,) = self.wait(name)
        return span

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._ended if span.name == name]

    def all(self) -> list[ReadableSpan]:
        with self._changed:
            return list(self._ended)

    def traces(self) -> set[int]:
        """Return the ids of all traces."""
        return {trace_of(span) for span in self.all()}


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def trace_of(span: ReadableSpan) -> int:
    return context_of(span).trace_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == context_of(parent).span_id


class Telemetry:
    """An SDK, and what connects stompy with it."""

    def __init__(self) -> None:
        self.spans = Spans()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = tracers.get_tracer("test")
        self.stompy = stompy.OpenTelemetry(tracer_provider=tracers, meter_provider=self._meters)

    def points(self, metric: str) -> dict[tuple[str, str], int]:
        """Return the counts of a metric by operation and error."""
        data = self._reader.get_metrics_data()
        found: dict[tuple[str, str], int] = {}
        for each in data.resource_metrics[0].scope_metrics[0].metrics if data is not None else ():
            for point in each.data.data_points if each.name == metric else ():
                named: Any = point.attributes
                key = named["messaging.operation.name"], named.get("error.type", "")
                found[key] = found.get(key, 0) + int(getattr(point, "value", 0) or getattr(point, "count", 0))
        return found

    def metric_attributes(self) -> set[str]:
        """Return the names of all attributes of all metrics."""
        data = self._reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return {name for each in metrics for point in each.data.data_points for name in point.attributes or ()}


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def spans(telemetry: Telemetry) -> Spans:
    return telemetry.spans


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def conn(broker: Broker, telemetry: Telemetry) -> Iterator[stompy.Connection]:
    with stompy.connect(broker.url, telemetry=telemetry.stompy) as conn:
        yield conn


Make = Callable[..., stompy.Worker]


@pytest.fixture
def make_worker(telemetry: Telemetry) -> Iterator[Make]:
    """Return what makes a worker that records, and is stopped at the end."""
    made: list[stompy.Worker] = []

    def make(url: str, **options: Any) -> stompy.Worker:
        defaults = {"concurrency": 2, "timeouts": stompy.Timeouts(close=WITHIN), "telemetry": telemetry.stompy}
        worker = stompy.Worker(url, **{**defaults, **options})
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.close()
