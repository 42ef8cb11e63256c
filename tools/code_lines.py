"""Count the lines of code, without blank lines, comments and docstrings: `python tools/code_lines.py [FOLDER]`."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Return the number of lines of a Python file that hold code. A text that stands as a statement is a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main(folder: Path) -> None:
    """Print the files and the lines of code of each folder in `folder`, and of all."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        inner = path.relative_to(folder).parts
        part = inner[0] if len(inner) > 1 else "."
        for name in (part, "all"):
            files[name] += 1
            lines[name] += code_lines(path.read_text(encoding="utf-8"))
    for name in [*sorted(files.keys() - {"all"}), "all"]:
        print(f"{name:12} {files[name]:4} files {lines[name]:6} lines of code")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else TOP / "stompy")
