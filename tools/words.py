"""Find words that are not used here, and the term to use instead: `python tools/words.py [PATH ...]`.

The glossary is `docs/reference/glossary.md`. Without paths, everything in `CLEAN` is checked, names in the code too;
and the docstrings of each folder of the package may name things by vague pronouns, such as "what", only so often.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent

CLEAN = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "examples",
    "stompy",
    "tests",
    "tools",
    "benchmarks",
)

LEFT_OUT = (
    "docs/_build",
    "docs/reference/conformance.md",  # quotes the specifications
    "tests/tools/test_words.py",  # has these words as its inputs
)

INSTEAD = {
    r"octets?": "bytes",
    r"for ever": "forever, or without a limit",
    r"goodbyes?|farewell": "DISCONNECT",
    r"in vain": "without success",
    r"borne with|bears? with": "tolerated",
    r"passed over": "ignored",
    r"set aside": "dead letter",
    r"under way": "in flight",
    r"hears? of|is heard": "called when",
    r"told of|tells of": "reported",
    r"heart-beats": "heartbeats",
    r"the (?:broker|peer)'s (?:own )?words": "error message",
    r"let (?:her|him|us|them|one|everybody|nobody) in": "accept",
    r"pacemaker": "heartbeat thread",
    r"surroundings": "settings",
    r"onlooker|crew|witness": "the class name in the glossary",
    r"mended": "fixed",
    r"(?:the|a) door": "the public package",
    r"whoever refuses": "rejecting",
    r"not held": "not protected",
    r"without a word": "silently, or without ERROR",
    r"by lot": "at random",
    r"what is promised": "guarantees",
    r"laws": "rules",
    r"at hand": "current, or connected",
    r"anybody's": "any",
    r"pose as": "impersonate",
    r"never rests": "never pauses",
}
"""What is not written, as a regular expression that matches in any case, and what is written instead."""

VAGUE = re.compile(
    r"\b(?:what|who|whoever|whatever|those|nobody|somebody|anybody|everybody|something|ones? that)\b", re.IGNORECASE
)
MOST_VAGUE = 5.0
"""Vague pronouns in 1,000 words of docstrings; h11 has 3, trio 2."""
MORE_VAGUE = {
    "broker": 22,
    "compat": 11,
    "outbox": 6,
    "telemetry": 12,
    "worker": 16,
}
"""Folders that still have more."""

_NAMES_OF_OTHERS = re.compile(r"application/octet-stream")

_ENDINGS = {".py", ".pyi", ".md"}


def found_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of a line, the word in it, and what to write instead."""
    for number, line in enumerate(text.splitlines(), 1):
        line = _NAMES_OF_OTHERS.sub("", line).replace("_", " ")  # identifiers are words too
        for pattern, instead in INSTEAD.items():
            for match in re.finditer(rf"\b(?:{pattern})\b", line, re.IGNORECASE):
                yield number, match[0], instead


def vague_folders(package: Path) -> Iterator[tuple[str, float, float]]:
    """Yield each folder with too many vague pronouns, how many there are in 1,000 words, and how many may be."""
    words: Counter[str] = Counter()
    vague: Counter[str] = Counter()
    for file in package.rglob("*.py"):
        inner = file.relative_to(package).parts
        folder = inner[0] if len(inner) > 1 else "."
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ""
                words[folder] += len(re.findall(r"[A-Za-z']+", text))
                vague[folder] += len(VAGUE.findall(text))
    for folder in sorted(vague):
        density, most = 1000 * vague[folder] / words[folder], MORE_VAGUE.get(folder, MOST_VAGUE)
        if density > most:
            yield folder, density, most


def files(paths: Iterable[Path], left_out: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield the files of text at or below the paths, without this one."""
    excluded = {Path(__file__).resolve(), *left_out}
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in _ENDINGS and excluded.isdisjoint([file, *file.parents]):
                yield file


def main(arguments: list[str]) -> int:
    """Print what is found; return 1 if there is something."""
    paths = [Path(argument).resolve() for argument in arguments] or [TOP / name for name in CLEAN]
    code = 0
    for file in files(paths, [TOP / name for name in LEFT_OUT]):
        for number, word, instead in found_in(file.read_text(encoding="utf-8")):
            name = file.relative_to(TOP) if file.is_relative_to(TOP) else file
            print(f"{name}:{number}: {word!r}: write {instead}")
            code = 1
    for folder, density, most in () if arguments else vague_folders(TOP / "stompy"):
        print(
            f"stompy/{folder}: {density:.1f} vague pronouns in 1,000 words of docstrings, at most {most:g}: name things"
        )
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
