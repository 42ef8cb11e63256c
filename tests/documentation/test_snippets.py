"""What pages print and no other test runs: it compiles, and its names, options, commands, targets and links exist."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli.main import build_parser
from stompy.testing.proxy import FaultProxy
from tests.support.printed import TOP

PAGES = [
    path.relative_to(TOP).as_posix()
    for path in [*TOP.glob("*.md"), *sorted((TOP / "docs").rglob("*.md"))]
    if "_build" not in path.parts and path.name != "CHANGELOG.md"
]

CALLED_ON = {
    "stompy": stompy,
    "conn": stompy.Connection,
    "worker": stompy.Worker,
    "outbox": stompy.Outbox,
    "broker": Broker,
    "proxy": FaultProxy,
}
"""Variables of the pages, and what they are."""


def snippets(page: str, language: str) -> Iterator[str]:
    """Yield the blocks of one language, indented ones in lists and docstrings too."""
    text = (TOP / page).read_text(encoding="utf-8")
    for found in re.finditer(rf"^( *)```{language}\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE):
        yield textwrap.dedent(found[2])


def calls(code: str) -> Iterator[tuple[Any, ast.Call]]:
    for node in ast.walk(ast.parse(code)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            owner = CALLED_ON.get(node.func.value.id)
            called = getattr(owner, node.func.attr) if owner is not None else None
            if callable(called):  # `broker.url` is one word for two kinds of brokers
                yield called, node


@pytest.mark.parametrize("page", PAGES)
def test_programs_call_what_exists_with_options_that_exist(page: str) -> None:
    for code in snippets(page, "python"):
        if "import stomp\n" in code:  # to be moved to stompy
            continue
        for called, node in calls(code):
            parameters = inspect.signature(called).parameters
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
                assert {keyword.arg for keyword in node.keywords} - {None} <= set(parameters), ast.unparse(node)


def commands(page: str) -> Iterator[list[str]]:
    for language, prompt in (("shell", ""), ("console", "$ ")):
        for block in snippets(page, language):
            for line in block.splitlines():
                if line.startswith(prompt):
                    lexer = shlex.shlex(line[len(prompt) :], posix=True, punctuation_chars=True)
                    lexer.commenters, lexer.whitespace_split = "#", True
                    words = list(lexer)
                    for start, word in enumerate(words):
                        if word == "stompy" or word.endswith("/stompy"):
                            rest = words[start + 1 :]
                            end = next((i for i, each in enumerate(rest) if set(each) <= set("|&;<>")), len(rest))
                            yield rest[:end]


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_commands_of_stompy(page: str) -> None:
    for arguments in commands(page):
        if arguments != ["--version"]:
            assert build_parser().parse_args(arguments).run is not None, arguments


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = (TOP / page).read_text(encoding="utf-8")
    named = re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )*([a-z][a-z-]+)", text, re.MULTILINE)
    assert set(named) <= targets


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("docs/")])
def test_links_lead_somewhere(page: str) -> None:
    """Those of `docs/` are checked when it is built."""
    for link in re.findall(r"\]\(([^)#:]+)\)", (TOP / page).read_text(encoding="utf-8")):
        assert (TOP / Path(page).parent / link).exists(), link


def commands_of(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """Yield the names of the commands that do something, such as `stompy spark archive`."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if parser.get_default("run") is not None:
        yield name
    for action in below:
        for word, each in action.choices.items():
            yield from commands_of(each, f"{name} {word}")


def test_the_reference_has_every_command() -> None:
    page = (TOP / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert [name for name in commands_of(build_parser(), "stompy") if f"`{name}" not in page] == []
