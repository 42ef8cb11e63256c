"""Write `docs/reference/brokers.md` and `broker-profiles.md` from what the scenarios expect of each broker.

Run from the top of the tree: `python -m tests.scenarios.page [--check]`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.scenarios.expected.facts import ALL, SCENARIOS
from tests.scenarios.expected.model import KINDS, LIKE, NAMES, VERSIONS, Answer, Fact
from tests.scenarios.expected.profiles import DIFFERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "brokers.md"

INTRODUCTION = """\
# What brokers do

STOMP leaves much to the broker, and brokers do not always do what it says. This page is what the embedded broker,
ActiveMQ Classic 6 and 5.17, Artemis, RabbitMQ 3.10 and RabbitMQ 4 do on the wire in STOMP 1.0, 1.1 and 1.2. The tests
in `tests/scenarios/` ask each of them each of these questions and compare the answer with the one that stands here,
frames included; the page is written by `python -m tests.scenarios.page` from the same data, and a stale page fails the
tests.

The brokers are configured as `stompy.testing.containers.start_broker` does it, with users and with messages kept on
disk, and otherwise as they come. Frames are shown unescaped, `*` stands for what differs from one to the next and *no*
for a header that is not there; of each frame only what matters is shown.

```sh
python -m pytest tests/scenarios       # ends with a table: scenario by broker by version
STOMPY_SCENARIO_BROKERS=embedded,artemis python -m pytest tests/scenarios
```

| | |
|---|---|
| ✓ | as STOMP says, or as most brokers do |
| ~ | in a way of its own |
| ✗ | cannot be done; stompy says so before anything is sent, where it can |
"""

PROFILES_PAGE = PAGE.with_name("broker-profiles.md")

PROFILES_INTRODUCTION = """\
# Standing in for a broker

`Broker(like="activemq")` behaves as ActiveMQ 6 does; `"activemq5"`, `"artemis"` and `"rabbitmq"` are the others. The
tests in `tests/scenarios/` ask it what they ask the real brokers, and compare the answers with those of
[what brokers do](brokers.md), frames included. This page says which are equal, and which differ and how;
it is written by `python -m tests.scenarios.page`, and a difference that is none any more fails the tests.
The time that things take, the limits of memory, and what a broker is configured to do are not compared.
"""

SIGNS = {"yes": "✓", "own": "~", "no": "✗"}


def page() -> str:
    """Return the page."""
    lines = [INTRODUCTION, "", *_overview()]
    for scenario in SCENARIOS:
        lines += ["", f"## {scenario[0].upper()}{scenario[1:]}"]
        for fact in ALL:
            if fact.scenario == scenario:
                lines += ["", f"### {fact.asks}", "", *_answers(fact)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def profiles_page() -> str:
    """Return the page on profiles."""
    lines = [PROFILES_INTRODUCTION, "", _row(["", *(f"`{kind.removeprefix('like-')}`" for kind in LIKE)])]
    lines.append(_row(["---"] * (len(LIKE) + 1)))
    for scenario in SCENARIOS:
        facts = [fact for fact in ALL if fact.scenario == scenario]
        lines.append(_row([scenario, *(_compared(facts, kind) for kind in LIKE)]))
    lines.append(_row(["**all**", *(_compared(list(ALL), kind) for kind in LIKE)]))
    for kind in LIKE:
        lines += ["", f"## {kind.removeprefix('like-')}", "", _row(["scenario", "question", "STOMP", "what it does"])]
        lines.append(_row(["---"] * 4))
        for fact in ALL:
            hows: dict[str, list[str]] = {}
            for version in VERSIONS:
                if (how := DIFFERS.get((kind, version, fact.name))) is not None:
                    hows.setdefault(how, []).append(version)
            lines += [_row([fact.scenario, fact.asks, ", ".join(versions), how]) for how, versions in hows.items()]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _compared(facts: list[Fact], kind: str) -> str:
    """Return how many answers are equal, of how many."""
    other = sum(any((kind, version, fact.name) in DIFFERS for version in VERSIONS) for fact in facts)
    return f"{len(facts) - other} of {len(facts)}" if other else "equal"


def _overview() -> Iterator[str]:
    yield "## Overview"
    yield ""
    yield _row(["", *(NAMES[kind] for kind in KINDS)])
    yield _row(["---"] * (len(KINDS) + 1))
    for scenario in SCENARIOS:
        facts = [fact for fact in ALL if fact.scenario == scenario]
        link = f"[{scenario}](#{_slug(scenario)})"
        yield _row([link, *(_sign(facts, kind) for kind in KINDS)])


def _sign(facts: list[Fact], kind: str) -> str:
    answers = [fact.answer(kind, version) for fact in facts for version in VERSIONS]
    grades = {answer.grade for answer in answers if answer is not None}
    return " ".join(sign for grade, sign in SIGNS.items() if grade in grades)


def _slug(title: str) -> str:
    kept = "".join(char for char in title.lower() if char.isalnum() or char in " -")
    return kept.replace(" ", "-")


def _answers(fact: Fact) -> Iterator[str]:
    """Yield the table of a fact: a row for each answer that some broker gives in some version."""
    yield _row(["broker", "STOMP", "", "what it does", "frames"])
    yield _row(["---"] * 5)
    groups: dict[tuple[tuple[Answer, str], ...], list[str]] = {}
    for kind in KINDS:
        groups.setdefault(tuple(_by_answer(fact, kind)), []).append(kind)
    for shape, kinds in groups.items():
        names = "all" if len(kinds) == len(KINDS) else ", ".join(NAMES[kind] for kind in kinds)
        for answer, versions in shape:
            yield _row([names, versions, SIGNS[answer.grade], answer.says, _frames(answer)])


def _by_answer(fact: Fact, kind: str) -> list[tuple[Answer, str]]:
    """Return the answers of a broker, each with its versions."""
    versions: dict[Answer, list[str]] = {}
    for version in VERSIONS:
        answer = fact.answer(kind, version)
        if answer is not None:
            versions.setdefault(answer, []).append(version)
    return [(answer, "all" if len(said) == len(VERSIONS) else ", ".join(said)) for answer, said in versions.items()]


def _frames(answer: Answer) -> str:
    return "<br>".join(map(_frame, answer.frames))


def _frame(pattern: str) -> str:
    head, _, body = pattern.partition("\n\n")
    command, *headers = head.split("\n")
    parts = [f"`{command}`"]
    parts += [f"*no* `{line[1:]}`" if line.startswith("!") else f"`{line}`" for line in headers]
    return " ".join([*parts, *([f"body `{body}`"] if body else [])])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the page about brokers from the expectations.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is stale")
    check = parser.parse_args(arguments).check
    for path, text in ((PAGE, page()), (PROFILES_PAGE, profiles_page())):
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"docs/reference/{path.name} is stale: run python -m tests.scenarios.page", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
