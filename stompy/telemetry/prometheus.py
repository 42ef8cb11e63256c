"""`PrometheusCollector`: the metrics of a worker for Prometheus's client library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompy.arguments import check_value
from stompy.errors import ConfigurationError
from stompy.worker.service import MetricFamily, WorkerHealth, metric_families
from stompy.worker.worker import Worker

if TYPE_CHECKING:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric


class PrometheusCollector:
    """The metrics of workers, which `/metrics` also has, for a registry of `prometheus_client`.

    `prometheus_client.REGISTRY.register(stompy.PrometheusCollector(worker))`; one for all workers of the process.
    Needs `pip install 'stompy-client[prometheus]'`.

    Args:
        workers: running or not; with child processes, the sums of theirs.

    Raises:
        ConfigurationError: the extra is not installed, or a worker is none.
    """

    def __init__(self, *workers: Worker) -> None:
        try:
            from prometheus_client import metrics_core
        except ImportError as error:
            raise ConfigurationError(
                f"PrometheusCollector needs prometheus_client: pip install 'stompy-client[prometheus]' ({error})"
            ) from error
        self._kinds: dict[str, type[CounterMetricFamily | GaugeMetricFamily]] = {
            "counter": metrics_core.CounterMetricFamily,
            "gauge": metrics_core.GaugeMetricFamily,
        }
        check_value("workers", workers, tuple[Worker, ...])
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by the registry."""
        found = [metric_families(worker.health(), worker.name) for worker in self._workers]
        for families in zip(*found, strict=True):
            made = self._empty(families[0])
            for family in families:
                for labels, value in family.samples:
                    made.add_metric(labels, value)
            yield made

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without samples; called by the registry."""
        return map(self._empty, metric_families(WorkerHealth(state="stopped"), ""))

    def _empty(self, family: MetricFamily) -> CounterMetricFamily | GaugeMetricFamily:
        return self._kinds[family.kind](family.name, family.help, labels=family.labels)
