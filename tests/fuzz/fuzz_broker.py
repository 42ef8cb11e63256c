"""The coverage-guided fuzzer of the whole broker; README.md tells how to run it."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["stompy.frames", "stompy.protocol", "stompy.broker"]):
    from tests.fuzz import whole


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    atheris.Setup(sys.argv, whole.check_broker)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
