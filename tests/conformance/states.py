"""Draw `docs/topics/session-states.svg` from the TRANSITIONS table of `stompy.protocol.state`.

Run from the top of the tree: `python -m tests.conformance.states [--check]`. Where each state stands is said here;
which arrows there are, and what is written on them, comes from the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from stompy.protocol.state import TRANSITIONS, ProtocolEvent, State

PAGE = Path(__file__).parent.parent.parent / "docs" / "topics" / "session-states.svg"

Table = Mapping[State, Mapping[ProtocolEvent, State]]


@dataclass(frozen=True)
class Box:
    """Where a state stands, in pixels."""

    left: int
    top: int
    width: int
    height: int

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def middle(self) -> int:
        return self.left + self.width // 2

    @property
    def bottom(self) -> int:
        return self.top + self.height


_ROW = 144
_WIDTH, _HEIGHT = 1010, 4 * _ROW + 90


def _in_chain(row: int) -> Box:
    return Box(left=350, top=30 + row * _ROW, width=230, height=92)


# A session goes down the middle; what may happen in each of its states leads sideways, to boxes as high as all of them.
BOXES: dict[State, Box] = {
    State.NEW: _in_chain(0),
    State.CONNECTING: _in_chain(1),
    State.CONNECTED: _in_chain(2),
    State.DISCONNECTING: _in_chain(3),
    State.CLOSED: Box(left=30, top=30, width=150, height=_HEIGHT - 60),
    State.FAILED: Box(left=830, top=30, width=150, height=_HEIGHT - 60),
}

_STYLE = """\
text { font: 13px sans-serif; fill: #1b1f24; }
.name { font-weight: bold; font-size: 14px; }
.state { fill: #eef2f7; stroke: #56606b; stroke-width: 1.5; }
.arrow { fill: none; stroke: #56606b; stroke-width: 1.5; marker-end: url(#head); }"""


def drawing(table: Table = TRANSITIONS) -> str:
    """Return the drawing as SVG.

    Raises:
        ValueError: a state has no place, or an arrow cannot be drawn between two.
    """
    missing = set(table) - set(BOXES)
    if missing:
        raise ValueError(f"no place is known for {', '.join(sorted(state.name for state in missing))}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        "<!-- Drawn from stompy.protocol.state by python -m tests.conformance.states -->",
        "<title>The states of a session</title>",
        f"<desc>{escape(' '.join(_sentences(table)))}</desc>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0 0 L10 5 L0 10 z" fill="#56606b"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="#ffffff"/>',
    ]
    for state in table:
        lines += _box(state, BOXES[state])
    for state, target, events in arrows(table):
        lines += _arrow(state, target, events)
    return "\n".join([*lines, "</svg>", ""])


def arrows(table: Table) -> Iterator[tuple[State, State, list[ProtocolEvent]]]:
    """Yield each pair of states that an event leads between, with all such events."""
    for state, targets in table.items():
        for target in dict.fromkeys(targets.values()):
            yield state, target, [event for event, leads in targets.items() if leads is target]


def _sentences(table: Table) -> Iterator[str]:
    for state, target, events in arrows(table):
        yield f"{state.name} to {target.name}: {', '.join(event.value for event in events)}."


def _box(state: State, box: Box) -> list[str]:
    middle = box.top + box.height // 2
    rect = f'<rect class="state" x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="8"/>'
    return [rect, _text(box.middle, middle - 4, state.name, name=True), _text(box.middle, middle + 16, state.value)]


def _arrow(state: State, target: State, events: list[ProtocolEvent]) -> list[str]:
    words = [event.value for event in events]
    if state is target:
        return _loop(BOXES[state], words)
    if {state, target} == {State.FAILED, State.CLOSED}:
        return _below(BOXES[state], BOXES[target], words)
    if target in (State.CLOSED, State.FAILED):
        return _sideways(BOXES[state], BOXES[target], words)
    if BOXES[target].top - BOXES[state].top == _ROW:
        return _down(BOXES[state], BOXES[target], words)
    raise ValueError(f"no arrow can be drawn from {state.name} to {target.name}")


def _down(start: Box, end: Box, words: list[str]) -> list[str]:
    halfway = (start.bottom + end.top) // 2 + 5
    path = _path(f"M{start.middle} {start.bottom} V{end.top}")
    return [path, *_texts(start.middle + 10, halfway, words, anchor="start")]


def _sideways(start: Box, end: Box, words: list[str]) -> list[str]:
    height = start.bottom - 16
    begin, stop = (start.left, end.right) if end.left < start.left else (start.right, end.left)
    return [_path(f"M{begin} {height} H{stop}"), *_texts((begin + stop) // 2, height - 7, words)]


def _below(start: Box, end: Box, words: list[str]) -> list[str]:
    height = _HEIGHT - 50
    path = _path(f"M{start.left} {height} H{end.right}")
    return [path, *_texts((start.left + end.right) // 2, height - 7, words)]


def _loop(box: Box, words: list[str]) -> list[str]:
    side = box.right if box.left > BOXES[State.CLOSED].left else box.left + box.width // 2
    if side == box.right:
        top, bottom = box.top + 8, box.top + 40
        path = _path(f"M{side} {top} C{side + 45} {top - 8} {side + 45} {bottom + 8} {side} {bottom}")
        return [path, *_texts(side + 40, (top + bottom) // 2 + 5, words, anchor="start")]
    low = box.top + 150
    path = _path(f"M{side - 20} {low} C{side - 40} {low - 60} {side + 40} {low - 60} {side + 20} {low}")
    return [path, *_texts(side, low + 18, words)]


def _path(steps: str) -> str:
    return f'<path class="arrow" d="{steps}"/>'


def _texts(x: int, y: int, words: list[str], *, anchor: str = "middle") -> list[str]:
    top = y - 8 * (len(words) - 1)
    return [_text(x, top + 16 * number, line, anchor=anchor) for number, line in enumerate(words)]


def _text(x: int, y: int, words: str, *, name: bool = False, anchor: str = "middle") -> str:
    kind = ' class="name"' if name else ""
    return f'<text{kind} x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the states of a session from their table.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the drawing is stale")
    check = parser.parse_args(arguments).check
    text = drawing()
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"docs/topics/{PAGE.name} is stale: run python -m tests.conformance.states", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
