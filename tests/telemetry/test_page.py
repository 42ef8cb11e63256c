"""The page on observing has the names that are recorded, and its programs run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import stompy
from stompy.telemetry import recorder
from stompy.worker.service import TaskHealth, WorkerHealth, metric_families

PAGE = (Path(__file__).parents[2] / "docs/how-to/observing.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    part = PAGE.split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def recorded(kind: type) -> list[Any]:
    """Return the constants of a type, in order."""
    return [value for name, value in vars(recorder).items() if name.isupper() and type(value) is kind]


def test_the_spans_are_those_of_the_page() -> None:
    assert [row[:3] for row in rows("Spans")] == [
        [each.name, each.kind, each.type] for each in recorded(recorder.Operation)
    ]


def test_the_attributes_are_those_of_the_page() -> None:
    found = rows("Attributes")
    attributes = [name for name in recorded(str) if name not in (recorder.SCHEMA_URL, recorder._INSTRUMENTED)]
    assert [row[0] for row in found] == attributes
    of_metrics = attributes[: attributes.index(recorder.ERROR_TYPE) + 1]
    assert [row[0] for row in found if row[1] == "yes"] == of_metrics


def test_the_metrics_are_those_of_the_page() -> None:
    assert [row[:2] for row in rows("Metrics")] == [[each.name, each.unit] for each in recorded(recorder.Metric)]


def test_the_metrics_of_workers_are_those_of_the_page() -> None:
    made = metric_families(
        WorkerHealth(state="running", tasks={"a": TaskHealth(running=0, queued=0, stuck=0, counts={})}), "w"
    )
    assert [row[:3] for row in rows("Prometheus")] == [
        [each.name + "_total" * (each.kind == "counter"), each.kind, "`, `".join(each.labels)] for each in made
    ]


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_programs_compile(block: str) -> None:
    compile(textwrap.dedent(block), "observing.md", "exec")


def test_a_worker_is_registered_as_the_page_does() -> None:
    registry = CollectorRegistry()
    registry.register(stompy.PrometheusCollector(stompy.Worker()))
    assert registry.get_sample_value("stompy_worker_connected", {"worker": "worker"}) == 0
