"""The coverage-guided fuzzer of the whole client; README.md tells how to run it."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["stompy.frames", "stompy.protocol", "stompy.link", "stompy.connection"]):
    from tests.fuzz import whole


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    atheris.Setup(sys.argv, whole.check_client)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
