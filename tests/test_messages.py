"""Every text with a placeholder, rendered with marked arguments: errors, log records and what the command prints.

A test that meets a message often looks for one word of it. So each text in the package is rendered here, and is held to
rules that a sentence cut in two or joined without a space breaks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
MARK = "\N{WHITE SQUARE}"
"""Stands for the argument of a placeholder."""

_PERCENT = re.compile(r"%(?:\.\d+)?[sdrgfxi]|%%")
_LOGGING = {"debug", "info", "warning", "error", "exception", "critical"}
_LETTER = r"[^\W\d_]"
_RULES = {
    # The plural and milliseconds follow a number.
    "a placeholder is glued to a word": re.compile(rf"{_LETTER}{MARK}|{MARK}(?!(?:s|ms)\b){_LETTER}|{MARK}{MARK}"),
    "a word stands twice": re.compile(r"\b([a-z]+) \1\b"),
    "two spaces": re.compile(r"[a-z,;.]  +[a-z]"),
    "a space before a comma or a full stop": re.compile(r"[a-z] [,.;](?:\s|$)"),
    "a bracket without its other": re.compile(r"^[^()]*\([^()]*$|^[^()]*\)[^()]*$"),
}
_TABLES = ("stompy/cli/spark.py", "stompy/cli/top.py")
"""What they print stands in columns."""
_ENDINGS = {
    "_NO_TABLE",
    "_date(own, 'notBefore', '; it is valid from ')",
    "' finite' if finite else ''",
    "'s'[:len(extra) > 1]",
    "alias.name[5:]",
    "did_you_mean(command, _COMMANDS)",
    "everybody",
    "hint",
    "more",
    "plain",
    "refusal",
    "state",
    "unsafe",
    "why",
}
"""Arguments that continue a word or a sentence: they begin with the space or comma that they need, or are empty."""


class Text:
    """One text in the source."""

    def __init__(self, place: str, rendered: str, arguments: int | None, placeholders: int) -> None:
        self.place, self.rendered, self.arguments, self.placeholders = place, rendered, arguments, placeholders


def texts(source: str, place: str) -> Iterator[Text]:
    """Yield the texts of a module that have a placeholder and are prose: three words or more."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        where = f"{place}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOGGING:
            match node.args:
                case [ast.Constant(value=str(text)), *arguments]:
                    yield _logged(where, text, arguments)
        elif isinstance(node, ast.JoinedStr):
            parts = [_part(part) for part in node.values]
            if len(re.findall(r"[A-Za-z]{2,}", "".join(parts))) > 2 and " " in "".join(parts).strip():
                yield Text(where, "".join(parts), None, 0)


def _logged(where: str, text: str, arguments: list[ast.expr]) -> Text:
    count = sum(found != "%%" for found in _PERCENT.findall(text))
    starred = any(isinstance(argument, ast.Starred) for argument in arguments)
    marks = iter(["" if ast.unparse(argument) in _ENDINGS else MARK for argument in arguments])
    rendered = _PERCENT.sub(lambda found: "%" if found[0] == "%%" else next(marks, MARK), text)
    return Text(where, rendered, None if starred else len(arguments), count)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return "" if ast.unparse(part.value) in _ENDINGS else MARK


def faults(text: Text) -> list[str]:
    columns = text.place.startswith(_TABLES)
    found = [
        rule for rule, breaks in _RULES.items() if breaks.search(text.rendered) and not (columns and "space" in rule)
    ]
    if text.arguments is not None and text.arguments != text.placeholders:
        found.append(f"{text.arguments} arguments for {text.placeholders} placeholders")
    return [f"{text.place}: {fault}: {text.rendered}" for fault in found]


def test_each_text_with_a_placeholder_reads_as_a_sentence() -> None:
    modules = sorted((TOP / "stompy").rglob("*.py"))
    found = [text for path in modules for text in texts(path.read_text(encoding="utf-8"), str(path.relative_to(TOP)))]
    assert len(found) > 500
    assert [fault for text in found for fault in faults(text)] == []


_JOINT = re.compile(r"""[a-z]["']\n\s*f?["'][a-z]""")
"""Two literals, one below the other, that make one word of two."""


def test_no_word_goes_on_in_the_next_line() -> None:
    modules = sorted((TOP / "stompy").rglob("*.py"))
    assert [path for path in modules if _JOINT.search(path.read_text(encoding="utf-8"))] == []
    assert _JOINT.search('raise E(\n    "segments are missing"\n    f"one of {them}"\n)')


GARBLED = """
_LOG.warning(
    "the checkpoint says that messages up to %d were processed, the spool ends at %it is an older "
    "copy, or segments are missingone. New messages are numbered from %d on", start, end, start,
)
"""


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        (GARBLED, "a placeholder is glued to a word"),
        ('raise E(f"no bytes from {peer}in time")', "a placeholder is glued to a word"),
        ('raise E(f"no bytes from{peer} in time")', "a placeholder is glued to a word"),
        ('raise E(f"no bytes from {a}{b} in time")', "a placeholder is glued to a word"),
        ('_LOG.info("no bytes from %s in time")', "0 arguments for 1 placeholders"),
        ('_LOG.info("no bytes from %s in %g s", a)', "1 arguments for 2 placeholders"),
        ('raise E(f"no bytes from the the peer {a}")', "a word stands twice"),
        ('raise E(f"no bytes from {a} in  time")', "two spaces"),
        ('raise E(f"no bytes from {a} in time ; it ended")', "a space before a comma or a full stop"),
        ('raise E(f"no bytes (from {a} in time")', "a bracket without its other"),
    ],
)
def test_each_rule_finds_what_breaks_it(planted: str, rule: str) -> None:
    found = [fault for text in texts(planted, "planted.py") for fault in faults(text)]
    assert len(found) == 1
    assert rule in found[0]
