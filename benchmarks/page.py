"""Write the figures of the last kept run into docs/topics/performance.md and docs/why.md, and draw performance.svg.

    python -m benchmarks.page [--check]

What stands between the lines `% NAME` and `% end` is written; the rest of the page is by hand.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks import instructions, results, scale
from benchmarks.results import Run, number
from benchmarks.rows import ALL

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "topics" / "performance.md"
COMPARISON = DOCS / "why.md"
CHART = PAGE.with_suffix(".svg")
COLOURS = dict(zip(ALL, ("#c0392b", "#2563a8", "#c77d0a", "#1a8a5a", "#8e5bb5", "#7a828c"), strict=True))
CLIENTS = tuple(client for client in ALL if client != "raw socket")
CHARTED = (
    "receive",
    "receive-headers",
    "subscriptions",
    "receive-ack",
    "send",
    "send-typed-prompt",
    "send-persistent-prompt",
    "send-json-prompt",
    "send-batch",
    "batch-typed-prompt",
    "send-receipts",
    "latency",
)

_LEFT, _RIGHT, _ROW, _TOP = 330, 930, 34, 70


def part(run: Run, name: str) -> str:
    """Return what the page says in one of its parts."""
    if name == "run":
        share = f" of 1/{run['part']} of the messages" if run["part"] > 1 else ""
        return f"{results.title(run)}; {run['date']} UTC, {run['rounds']} rounds{share}."
    if name == "compared":
        return "\n".join(_compared(run))
    if name == "instructions":
        return "\n".join(instructions.table())
    if name == "scale":
        return "\n".join(scale.table(scale.Costs.of(run)))
    return "\n".join(_growth(run) if name == "growth" else _beside(run, name))


def _beside(run: Run, section: str) -> Iterator[str]:
    rows = [row for row in run["rows"].values() if row["section"] == section]
    if not rows:
        yield "Not in this run."
        return
    clients = [client for client in ALL if any(client in row["clients"] for row in rows)]
    yield f"| | {' | '.join(clients)} | stompy's ratio, and its goal |"
    yield "|---" * (len(clients) + 2) + "|"
    for row in rows:
        cells = (_figure(row, client) for client in clients)
        yield f"| {row['title']} | {' | '.join(cells)} | {_ratio(row)} |"


def _compared(run: Run) -> Iterator[str]:
    rows = [run["rows"][name] for name in (*CHARTED, "import") if name in run["rows"]]
    yield f"| | {' | '.join(CLIENTS)} |"
    yield "|---" * (len(CLIENTS) + 1) + "|"
    for row in rows:
        title = row["title"].partition(";")[0]
        yield f"| {title} | {' | '.join(_figure(row, client) for client in CLIENTS)} |"


def _growth(run: Run) -> Iterator[str]:
    yield "| | figure | beside | ratio, and its goal | raw socket |"
    yield "|---|---|---|---|---|"
    for row in run["rows"].values():
        if row["section"] in ("growth", "long"):
            base = row["reference"] if row["reference"] != "raw socket" else ""
            beside = f"{base}: {_figure(row, base)}" if base else ""
            raw = _figure(row, "raw socket")
            yield f"| {row['title']} | {_figure(row, 'stompy')} | {beside} | {_ratio(row)} | {raw} |"


def _figure(row: Run, client: str) -> str:
    figures = row["clients"].get(client)
    if figures is None:
        return ""
    unit = row["unit"]
    if row["section"] == "users":
        return f"{number(figures['user'])} + {number(figures['system'])} {unit}"
    if unit == "µs" and figures["value"] >= 10_000:
        return f"{number(figures['value'] / 1000)} ms"
    return f"{number(figures['value'])} {unit}"


def _ratio(row: Run) -> str:
    figures = row["clients"]["stompy"]
    goal = f", {row['goal']}" if row["goal"] else ""
    if "ratio" not in figures:
        return goal.lstrip(", ")
    low, high = figures["ratio_spread"]
    return f"{figures['ratio']:.2f} ({low:.2f} to {high:.2f}){goal}"


def render(run: Run, text: str) -> str:
    """Return the page with the figures of a run."""

    def written(match: re.Match[str]) -> str:
        return f"% {match[1]}\n\n{part(run, match[1])}\n\n% end"

    return re.sub(r"^% (\w+)\n.*?^% end$", written, text, flags=re.DOTALL | re.MULTILINE)


def drawing(run: Run) -> str:
    """Return the chart: a line for each path, a dot for each client, by the CPU of a message on a logarithmic scale."""
    rows = [run["rows"][name] for name in CHARTED if name in run["rows"]]
    values = [figures["value"] for row in rows for figures in row["clients"].values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    bottom = _TOP + _ROW * len(rows)

    def across(value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (math.log10(value) - low) / (high - low), 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_RIGHT + 40} {bottom + 40}" role="img">',
        "<!-- Drawn by python -m benchmarks.page -->",
        "<title>CPU of the client for each message, in microseconds</title>",
        "<style>text { font: 13px sans-serif; fill: #1b1f24; } .end { text-anchor: end; } .mid { text-anchor: middle; }"
        " line { stroke: #d5dae0; }</style>",
        f'<rect width="{_RIGHT + 40}" height="{bottom + 40}" rx="8" fill="#ffffff"/>',
    ]
    for place, client in enumerate(ALL):
        lines += [
            f'<circle cx="{_LEFT - 300 + 150 * place}" cy="26" r="6" fill="{COLOURS[client]}"/>',
            f'<text x="{_LEFT - 288 + 150 * place}" y="31">{client}</text>',
        ]
    for power in range(low, high + 1):
        x = across(10**power)
        lines += [
            f'<line x1="{x}" y1="{_TOP - 12}" x2="{x}" y2="{bottom}"/>',
            f'<text class="mid" x="{x}" y="{bottom + 20}">{10**power:g} µs</text>',
        ]
    for place, row in enumerate(rows):
        y = _TOP + 8 + _ROW * place
        title = escape(row["title"].partition(";")[0].replace("`", ""))
        lines += [
            f'<line x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}"/>',
            f'<text class="end" x="{_LEFT - 14}" y="{y + 5}">{title}</text>',
        ]
        for client in reversed(ALL):  # stompy on top
            if client in row["clients"]:
                figure = row["clients"][client]["value"]
                lines.append(
                    f'<circle cx="{across(figure)}" cy="{y}" r="{7 if client == "stompy" else 5}"'
                    f' fill="{COLOURS[client]}"><title>{client}: {number(figure)} µs</title></circle>'
                )
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    """Write the page and the chart, or with `--check` say whether they are true to the last run."""
    parser = argparse.ArgumentParser(description="Writes the page of the last run.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would be written")
    check = parser.parse_args().check
    run = results.last()
    wanted = {page: render(run, page.read_text(encoding="utf-8")) for page in (PAGE, COMPARISON)}
    wanted[CHART] = drawing(run)
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.name} is {'not of the last run: python -m benchmarks.page' if check else 'written'}")
        if not check:
            path.write_text(wanted[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
