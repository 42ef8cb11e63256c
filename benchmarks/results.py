"""The results of runs: JSON files in benchmarks/results/, and how they are shown."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import SECTION_OF, Row

FOLDER = Path(__file__).resolve().parent / "results"
DISTRIBUTIONS = {"stompy": "stompy-client", "stomp.py": "stomp.py", "stompest": "stompest", "stompman": "stompman"}

Run = dict[str, Any]


def new(clients: Sequence[str], rounds: int, part: int) -> Run:
    """Return a run without rows: what ran where."""
    versions = {name: importlib.metadata.version(DISTRIBUTIONS[name]) for name in clients if name in DISTRIBUTIONS}
    if "go-stomp" in clients:
        versions["go-stomp"] = go_version()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "rounds": rounds,
        "part": part,
        "versions": versions,
        "rows": {},
    }


def go_version() -> str:
    """Return the version of go-stomp that the program asks for."""
    text = (Path(__file__).parent / "clients" / "go_stomp" / "go.mod").read_text(encoding="utf-8")
    return text.partition("github.com/go-stomp/stomp/v3 v")[2].split()[0]


def commit() -> str:
    """Return the commit that is measured, with a `+` if the tree differs from it; empty outside of a checkout."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=10"]
    return subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False).stdout.strip()


def row(measured: Row, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a run."""
    return {
        "section": SECTION_OF.get(measured.name, "brokers"),
        "title": measured.title,
        "unit": measured.unit,
        "reference": measured.reference,
        "goal": measured.goal,
        "clients": dict(figures),
    }


def last() -> Run:
    """Return the last run that is kept, or one without rows."""
    files = sorted(FOLDER.glob("*.json"))
    run: Run = json.loads(files[-1].read_text(encoding="utf-8")) if files else {"rows": {}}
    return run


def keep(run: Run) -> Path:
    """Write a run to its file, named by the time (UTC) and the commit."""
    FOLDER.mkdir(exist_ok=True)
    when = run["date"].replace(" ", "-").replace(":", "")
    file = FOLDER / f"{when}-{run['commit'].rstrip('+') or 'unknown'}.json"
    file.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def title(run: Run) -> str:
    """Return in one line what ran where."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return f"{run['python']}, {run['cores']} cores, load {run['load']}, commit {run['commit']}; {versions}"


def lines(name: str, run: Run, before: Run) -> Iterator[str]:
    """Yield a row for the terminal: the results of each client, and its ratio next to that of the previous run."""
    measured = run["rows"][name]
    goal = f", goal {measured['goal']}" if measured["goal"] else ""
    to = f"ratio to {measured['reference']}" if measured["reference"] else "figure"
    yield f"{name}: {measured['title']} ({to}{goal})"
    for client, figures in measured["clients"].items():
        line = f"    {client:12} {number(figures['value']):>8} {measured['unit']}"
        if "ratio" in figures:
            low, high = figures["ratio_spread"]
            line += f"  ratio {figures['ratio']:6.3f} ({low:.3f} to {high:.3f}"
            old = before["rows"].get(name, {}).get("clients", {}).get(client, {}).get("ratio")
            line += f"; was {old:.3f})" if old else ")"
        yield f"{line}  {figures['rate']:>11,.0f}/s  peak {figures['peak_mib']:.0f} MiB"


def number(value: float) -> str:
    """Return a figure with as many places as it has to say."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
