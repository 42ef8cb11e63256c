"""The coverage-guided fuzzer of WebSocket's framing and handshake; README.md tells how to run it."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["stompy.transport.websocket"]):
    from tests.fuzz import websocket


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    atheris.Setup(sys.argv, websocket.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
