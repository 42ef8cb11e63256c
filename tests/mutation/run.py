"""Break one rule at a time, and see that the tests notice: `python -m tests.mutation.run frames protocol`.

A list of mutations is a module beside this one with `TESTS`, the tests to run, and `MUTATIONS`: file, old text, new
text, name. Each is applied to a copy of the tree, where the tests run until the first failure. A mutant that no test
notices has survived, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).parents[2]
COPIED = ("stompy", "tests", "docs", "pyproject.toml")
LIMIT = 600
"""Seconds that the tests of one mutant may take; a mutant that never ends is noticed too."""

Mutation = tuple[str, str, str, str]


def copy_tree(to: Path) -> None:
    """Copy what the tests need, without what was compiled."""
    for name in COPIED:
        source = TOP / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)


def run_tests(tree: Path, tests: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether all tests passed, and the last line they said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    # The same examples each time, so that a survivor can be looked at; nothing of the outer tree is imported.
    environment = {**os.environ, "CI": "1", "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return False, "did not end"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    lines = failed or done.stdout.splitlines() or done.stderr.splitlines() or [""]
    return done.returncode == 0, lines[-1]


def try_one(tree: Path, mutation: Mutation, tests: tuple[str, ...]) -> tuple[bool, str]:
    """Apply a mutation, run the tests and take it back; return whether it survived, and what the tests said."""
    path, old, new, _ = mutation
    file = tree / path
    text = file.read_text()
    if text.count(old) != 1:
        raise SystemExit(f"{path} holds {text.count(old)} times what the mutation is to change: {old!r}")
    file.write_text(text.replace(old, new))
    try:
        return run_tests(tree, tests)
    finally:
        file.write_text(text)


def run_list(tree: Path, name: str, only: str) -> list[str]:
    """Try the mutations of one list whose names hold `only`; return the names of those that survived."""
    module = importlib.import_module(f"tests.mutation.{name}")
    mutations: list[Mutation] = [mutation for mutation in module.MUTATIONS if only in mutation[3]]
    survivors = []
    for number, mutation in enumerate(mutations, 1):
        started = time.monotonic()
        survived, words = try_one(tree, mutation, module.TESTS)
        fate = "SURVIVED" if survived else "killed  "
        took = time.monotonic() - started
        print(f"{fate} {number:3}/{len(mutations)} {took:5.1f} s  {name}: {mutation[3]}  [{words[:100]}]", flush=True)
        if survived:
            survivors.append(f"{name}: {mutation[3]}")
    return survivors


def main() -> int:
    """Run the lists named on the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("lists", nargs="+", metavar="list", help="a module of tests/mutation, such as frames")
    options.add_argument("--only", default="", help="only mutations with this text in their name")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="stompy-mutation-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        modules = [importlib.import_module(f"tests.mutation.{name}") for name in arguments.lists]
        for module in modules:
            passed, words = run_tests(tree, module.TESTS)
            if not passed:
                print(f"the tests fail without any mutation: {words}")
                return 2
        survivors = [survivor for name in arguments.lists for survivor in run_list(tree, name, arguments.only)]
    print(f"{len(survivors)} survived" + "".join(f"\n  {survivor}" for survivor in survivors))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
