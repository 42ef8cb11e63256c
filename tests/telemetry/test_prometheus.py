"""The metrics of workers, in a registry of Prometheus's client library."""

from __future__ import annotations

import sys
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import stompy
import stompy.worker
from stompy.broker import Broker
from stompy.worker.service import metrics
from tests.telemetry.conftest import WITHIN


def samples(text: str) -> dict[str, float]:
    """Return the samples of the text format, each by its name and labels."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_registry_has_what_the_endpoint_has(broker: Broker) -> None:
    done = threading.Event()

    class Last(stompy.worker.Middleware):
        def after(self, task: object, message: stompy.Message) -> None:
            done.set()

    worker = stompy.Worker(broker.url, concurrency=1, name='a "name"', middleware=[Last()])
    worker.add(lambda message: None, "/queue/a", name="nothing")
    registry = CollectorRegistry()
    registry.register(stompy.PrometheusCollector(worker))
    with worker, stompy.connect(broker.url) as conn:
        conn.send("/queue/a", "x")
        assert done.wait(WITHIN)
        labels = {"worker": 'a "name"', "task": "nothing", "outcome": "processed"}
        assert registry.get_sample_value("stompy_worker_messages_total", labels) == 1
        assert registry.get_sample_value("stompy_worker_connected", {"worker": 'a "name"'}) == 1
        found = samples(generate_latest(registry).decode())
        assert found == samples(metrics(worker.health(), worker.name))
        assert {name.partition("[")[0] for name in found} == {
            "stompy_worker_connected",
            "stompy_worker_parked",
            "stompy_worker_overdue",
            "stompy_worker_running",
            "stompy_worker_queued",
            "stompy_worker_stuck",
            "stompy_worker_messages_total",
        }


def test_one_collector_takes_several_workers() -> None:
    registry = CollectorRegistry()
    registry.register(stompy.PrometheusCollector(stompy.Worker(name="a"), stompy.Worker(name="b")))
    assert [registry.get_sample_value("stompy_worker_connected", {"worker": name}) for name in "ab"] == [0, 0]
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(stompy.PrometheusCollector(stompy.Worker(name="c")))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(stompy.ConfigurationError, match=r"pip install 'stompy-client\[prometheus\]'"):
        stompy.PrometheusCollector()
