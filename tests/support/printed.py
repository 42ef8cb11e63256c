"""What the documentation prints, as the tests run it: programs, and whole pages of them with their commands."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from stompy.deadline import Deadline

TOP = Path(__file__).parents[2]
_END = "\x1e"
"""Ends the output of a command, and is followed by its exit code."""

JAVAS_OWN = re.compile(r"Picked up JAVA_TOOL_OPTIONS: |WARNING: Using incubator modules: ")
"""What no setting takes away: the first is of the tests, the second of the flags that Spark's launcher gives Java."""

SHIMS = {
    "python": 'exec "{python}" "$@"',
    "stompy": 'exec "{python}" -m stompy "$@"',
    # The environment is that of the tests; what is left to see is that there is such an extra.
    "pip": 'extra=$(sed -n "s/^stompy-client\\[\\([a-z]*\\)\\]$/\\1/p" <<<"$2")\n'
    'test "$1" = install && grep -q "^$extra =" "{top}/setup.cfg"',
}
"""Commands that a reader has from the installation."""


@dataclass(frozen=True)
class Block:
    """A block of a page: in which language, and its text."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that the reader is to save a program in: it stands in its first line."""
        named = re.match(r"# (\S+\.py)\n", self.text)
        return named[1] if self.language == "python" and named else None

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands of a console, each with the lines that it prints."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines() if self.language == "console" else ():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        return found


def blocks(page: str, language: str = "") -> list[Block]:
    """Return the blocks of a page in order, those of one language if it is named."""
    text = (TOP / page).read_text(encoding="utf-8")
    found = (Block(*one) for one in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    return [block for block in found if language in ("", block.language)]


class Shell:
    """A shell in which the commands of a page run one after the other.

    Args:
        folder: where it starts.
        environment: of its commands, which find `python`, `stompy` and `pip` of this interpreter.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        shims = folder.parent / f"{folder.name}-commands"
        shims.mkdir()
        for name, script in SHIMS.items():
            path = shims / name
            path.write_text(f"#!/bin/bash\n{script.format(python=sys.executable, top=TOP)}\n")
            path.chmod(0o755)
        own = {"PATH": f"{shims}:{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(TOP)}
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **own, **environment},
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()

    def run(self, command: str, expected: list[str], *, within: float) -> str:
        """Run a command; return what it printed, once it has ended or, in the background, printed what is expected.

        Args:
            command: one line.
            expected: lines that it prints in this order, among others; `...` stands for anything.
            within: seconds for it.
        """
        assert self._process.stdin is not None
        background = command.endswith("&")
        self._process.stdin.write(f"{command}\n".encode())
        if not background:
            self._process.stdin.write(f"printf '{_END}%s{_END}\\n' $?\n".encode())
        self._process.stdin.flush()
        output = self._read(within, re.compile(_pattern(expected) if background else f"{_END}\\d+{_END}", re.DOTALL))
        if background:
            return output
        printed, code, _ = output.rsplit(_END, 2)
        assert code == "0", f"{command}: exit code {code}\n{printed[-4000:]}"
        assert re.search(_pattern(expected), printed, re.DOTALL), f"{command} printed\n{printed[-4000:]}"
        return printed

    def _read(self, within: float, until: re.Pattern[str]) -> str:
        assert self._process.stdout is not None
        deadline = Deadline(within)
        output = b""
        while not until.search(output.decode(errors="replace")):
            ready, _, _ = select.select([self._process.stdout], [], [], deadline.remaining())
            assert ready, f"nothing more within {within:g} s:\n{output[-4000:].decode(errors='replace')}"
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            assert part, f"the shell has ended:\n{output[-4000:].decode(errors='replace')}"
            output += part
        # What writes over its line, as progress does, shows the last on a terminal.
        return output.decode(errors="replace").replace("\r", "\n")


def _pattern(expected: list[str]) -> str:
    """Return what is expected as a regular expression: lines in their order."""
    lines = (".*".join(map(re.escape, line.split("..."))) for line in expected)
    return "(?m:" + ".*".join(f"^{line}" for line in lines) + ")"


def run_page(
    page: str, folder: Path, environment: Mapping[str, str], *, within: float, instead: Mapping[str, str]
) -> Iterator[str]:
    """Do what a page says, in order: save its programs, run its commands; yield what each command printed.

    Args:
        page: such as `docs/getting-started.md`.
        folder: where.
        environment: of the commands.
        within: seconds for each command.
        instead: text to put in place of other text, for what may be taken on the machine, such as a port.
    """
    with Shell(folder, environment) as shell:
        for printed in blocks(page):
            text = printed.text
            for old, new in instead.items():
                text = text.replace(old, new)
            block = Block(printed.language, text)
            if block.file is not None:
                (folder / block.file).write_text(block.text, encoding="utf-8")
            for command, expected in block.commands:
                yield shell.run(command, expected, within=within)
