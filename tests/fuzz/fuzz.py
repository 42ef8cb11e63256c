"""The coverage-guided fuzzer: `fuzz.py TARGET [OPTIONS of libFuzzer]`; README.md tells how to run it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import atheris  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[2]))

TARGETS = {
    "parser": ("tests.fuzz.target", "check", ["stompy.frames"]),
    "websocket": ("tests.fuzz.websocket", "check", ["stompy.transport.websocket"]),
    "client": (
        "tests.fuzz.whole",
        "check_client",
        ["stompy.frames", "stompy.protocol", "stompy.link", "stompy.connection"],
    ),
    "broker": ("tests.fuzz.whole", "check_broker", ["stompy.frames", "stompy.protocol", "stompy.broker"]),
}
"""By name the module, its function that takes an input, and what is instrumented."""


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    module, function, instrumented = TARGETS[sys.argv.pop(1)]
    with atheris.instrument_imports(include=instrumented):
        check = getattr(import_module(module), function)
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
